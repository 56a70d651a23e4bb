"""JSON of many small values, read so that other threads run meanwhile.

The C reader of Python does not let go of the interpreter before its end: half a second for a text
of 1 MiB that is all brackets. The one in Python is slower, and is interrupted every few
milliseconds. Both are the standard library's, and read the same.
"""

import json
import json.scanner
from typing import Any, Final, cast

MANY: Final = 10_000
"""So many lists, objects and keys take the C reader a few milliseconds."""


class _PatientDecoder(json.JSONDecoder):
    def __init__(self, **hooks: Any) -> None:
        super().__init__(**hooks)
        self.parse_object = json.decoder.JSONObject  # type: ignore[attr-defined]
        self.parse_array = json.decoder.JSONArray  # type: ignore[attr-defined]
        self.scan_once = cast(Any, json.scanner).py_make_scanner(self)


def has_many_values(body: bytes) -> bool:
    return body.count(b"[") + body.count(b"{") + body.count(b":") > MANY


def load_patiently(body: bytes, **hooks: Any) -> Any:
    """As `json.loads` with these hooks."""
    return json.loads(body, cls=_PatientDecoder, **hooks)
