"""A reader for JSON with many small values, which lets other threads run meanwhile.

The standard library's reader in C holds the interpreter lock until its end, half a second for a
text of 1 MiB that is all brackets. The standard library's reader in Python is slower, but other
threads run every few milliseconds. Both accept the same texts.
"""

import json
import json.scanner
import re
from typing import Any, Final, cast

_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""A JSON string, or the rest of the text after a quote without its end. So each byte is matched
once."""
MANY: Final = 10_000
"""Number of lists, objects and keys for which the C reader takes a few milliseconds."""


class _PatientDecoder(json.JSONDecoder):
    def __init__(self, **hooks: Any) -> None:
        super().__init__(**hooks)
        self.parse_object = json.decoder.JSONObject  # type: ignore[attr-defined]
        self.parse_array = json.decoder.JSONArray  # type: ignore[attr-defined]
        self.scan_once = cast(Any, json.scanner).py_make_scanner(self)


def has_many_values(body: bytes) -> bool:
    return body.count(b"[") + body.count(b"{") + body.count(b":") > MANY


def marks_in(body: bytes) -> int:
    """Return the number of commas and opening brackets, including those in strings. It is an upper
    bound of `values_in`."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def values_in(body: bytes) -> int:
    """Return about how many values, lists and objects JSON has, without reading it: the number of
    commas and opening brackets outside of strings. It takes some milliseconds for a MiB."""
    return marks_in(_TEXT.sub(b"", body))


def load_patiently(body: bytes, **hooks: Any) -> Any:
    """As `json.loads` with these hooks."""
    return json.loads(body, cls=_PatientDecoder, **hooks)
