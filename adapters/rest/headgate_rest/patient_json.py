"""JSON of many small values, read so that other threads run meanwhile.

The C reader of Python does not let go of the interpreter before its end: half a second for a text
of 1 MiB that is all brackets. The one in Python is slower, and is interrupted every few
milliseconds. Both are the standard library's, and read the same.
"""

import json
import json.scanner
import re
from typing import Any, Final, cast

_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""A JSON text, or all that follows a quote that has no other: so it is looked at once."""
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


def marks_in(body: bytes) -> int:
    """Commas and opening brackets, in texts too: what `values_in` is at most."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def values_in(body: bytes) -> int:
    """About how many values, lists and objects JSON has, before it is read: commas and opening
    brackets outside of texts. It takes some milliseconds for a MiB."""
    return marks_in(_TEXT.sub(b"", body))


def load_patiently(body: bytes, **hooks: Any) -> Any:
    """As `json.loads` with these hooks."""
    return json.loads(body, cls=_PatientDecoder, **hooks)
