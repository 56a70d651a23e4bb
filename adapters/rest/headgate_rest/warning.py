"""The header Warning, with remarks on a config that are no errors, beside Connect's answer.

Source: RFC 7234 defines its form. RFC 9110 has the field no more, but Kubernetes uses it too.
"""

import re
from collections.abc import Iterable
from typing import Final

WARNING: Final = "Warning"
_NOTE: Final = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')
"""299 is a "miscellaneous persistent warning". The dash means that the agent has no name."""


def warning_header(notes: Iterable[tuple[str, str]]) -> str:
    """Return the field's value for (key, remark). Empty: there are none. Characters that are not
    printable ASCII, which some clients could not read, become question marks."""
    return ", ".join(f'299 - "{_quoted(f"{key}: {text}")}"' for key, text in notes)


def _quoted(text: str) -> str:
    printable = "".join(each if " " <= each <= "~" else "?" for each in text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')


def notes_of_header(value: str) -> list[tuple[str, str]]:
    """Return the (key, remark) pairs in a value that `warning_header` has made."""
    texts = (re.sub(r"\\(.)", r"\1", each) for each in _NOTE.findall(value))
    parts = (each.partition(": ") for each in texts)
    return [(key, text) for key, _, text in parts]
