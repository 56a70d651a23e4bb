"""What readers of internal topics keep, and say, of records that nobody can use."""

import json
from collections.abc import Sequence
from typing import Final, TypeVar

REJECTED_KEPT: Final = 100
_SHOWN_LENGTH: Final = 60

_Rejected = TypeVar("_Rejected")


def kept(before: tuple[_Rejected, ...], more: Sequence[_Rejected]) -> tuple[_Rejected, ...]:
    """The last `REJECTED_KEPT` of both."""
    return (*before, *more)[-REJECTED_KEPT:] if more else before


def seen(value: object) -> str:
    """A part of a parsed record in a few words: whoever wrote it may have written a lot."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 3]}..."
