"""JSON for records: a strict check of text, and rows to text. Uses orjson where it is installed.

Both ways agree: what orjson refuses is judged by the standard library's parser.
"""

import json
from typing import Any

try:
    import orjson
except ImportError:  # the extra is not installed
    orjson = None  # type: ignore[assignment,unused-ignore]


def fault(line: bytes) -> str | None:
    """Why `line` is not one JSON value, or None when it is."""
    if orjson is not None:
        try:
            orjson.loads(line)
            return None
        except orjson.JSONDecodeError:
            pass
    try:
        # As text: of bytes it would guess UTF-16, and pass over a byte order mark.
        # Numbers stay text: of an integer beyond 4,300 digits Python makes none.
        json.loads(line.decode(), parse_constant=_refuse, parse_int=str)
        return None
    except (ValueError, RecursionError) as error:
        return str(error)


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def text_of(row: dict[str, Any]) -> str:
    """Compact JSON of a row of texts, keys in the row's order."""
    if orjson is not None:
        return orjson.dumps(row).decode()
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))
