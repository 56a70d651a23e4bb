"""Times of a study as text: ``500ms``, ``60s``, ``5m``, ``1h``, and several of them in a row."""

import re
from typing import Final

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")


class TimeError(ValueError):
    """A text that is no time."""


def time_ms(text: str) -> int:
    """``"1m30s"`` in milliseconds.

    Raises:
        TimeError: no number with a unit, or anything besides.
    """
    rest = text.strip()
    total = 0.0
    while rest:
        found = _PART.match(rest)
        if found is None:
            raise TimeError(f'the text "{text}", expected a time: "500ms", "60s", "5m" or "1m30s"')
        total += float(found[1]) * _UNITS[found[2]]
        rest = rest[found.end() :].lstrip()
    if not text.strip():
        raise TimeError('an empty text, expected a time: "60s"')
    return round(total)


def time_text(ms: int) -> str:
    """``ms`` in seconds with what of the milliseconds is not 0: ``60 s``, ``0.5 s``."""
    return f"{ms / 1000:.3f}".rstrip("0").rstrip(".") + " s"
