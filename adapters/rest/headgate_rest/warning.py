"""The header Warning: what is to be told of a config that is no error, beside Connect's answer.

Source: RFC 9110 has the field no more; RFC 7234 says its form, and Kubernetes answers so, too.
"""

import re
from collections.abc import Iterable
from typing import Final

WARNING: Final = "Warning"
_NOTE: Final = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')
"""299: "miscellaneous persistent warning"; the dash: whoever warns has no name."""


def warning_header(notes: Iterable[tuple[str, str]]) -> str:
    """The field's value for notes of keys; empty: there is none. What is not ASCII, which other
    clients could not read, is a question mark."""
    return ", ".join(f'299 - "{_quoted(f"{key}: {text}")}"' for key, text in notes)


def _quoted(text: str) -> str:
    printable = "".join(each if " " <= each <= "~" else "?" for each in text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')


def notes_of_header(value: str) -> list[tuple[str, str]]:
    """What `warning_header` made it of."""
    texts = (re.sub(r"\\(.)", r"\1", each) for each in _NOTE.findall(value))
    parts = (each.partition(": ") for each in texts)
    return [(key, text) for key, _, text in parts]
