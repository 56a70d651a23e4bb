"""How readers of internal topics keep and describe rejected records."""

import json
from collections.abc import Sequence
from typing import Final, TypeVar

REJECTED_KEPT: Final = 100
_SHOWN_LENGTH: Final = 60

_Rejected = TypeVar("_Rejected")


def kept(before: tuple[_Rejected, ...], more: Sequence[_Rejected]) -> tuple[_Rejected, ...]:
    """Return the last `REJECTED_KEPT` records of `before` followed by `more`."""
    return (*before, *more)[-REJECTED_KEPT:] if more else before


def seen(value: object) -> str:
    """Return a short description of a part of a parsed record; the part itself may be large."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 3]}..."
