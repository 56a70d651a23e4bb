"""How much `make test` tries, and how much `make test-all`.

A test that is marked `exhaustive` is run by `make test-all` only. So are the further values of
`first` and `first_rows`, and the long random histories of `tries`.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest

VARIABLE = "HEADGATE_TESTS"
ALL = "all"


def everything() -> bool:
    """Whether random histories are long, as `make test-all` wants them."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", ALL):
        raise ValueError(f"{VARIABLE} is {wanted!r}; expected {ALL!r}, or nothing")
    return wanted == ALL


def tries(few: int, many: int) -> int:
    """How many random histories a test tries: `few` in `make test`, `many` in `make test-all`."""
    return many if everything() else few


def first(count: int, values: Iterable[Any]) -> list[Any]:
    """Values of a parameter; those after the first `count` are for `make test-all`."""
    return first_rows(count, ((value,) for value in values))


def first_rows(count: int, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Values of several parameters; rows after the first `count` are for `make test-all`."""
    return [
        pytest.param(*row, marks=[pytest.mark.exhaustive] if place >= count else [])
        for place, row in enumerate(rows)
    ]
