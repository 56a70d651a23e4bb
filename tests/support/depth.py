"""How much `make test` tries, and how much `make test-all` tries.

`make test-all` alone runs a test that is marked `exhaustive`, the further values of `first` and
`first_rows`, and the long random histories of `tries`.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest

VARIABLE = "HEADGATE_TESTS"
ALL = "all"


def everything() -> bool:
    """Return whether all is to be run and random histories are long, as in `make test-all`."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", ALL):
        raise ValueError(f"{VARIABLE} is {wanted!r}; expected {ALL!r}, or nothing")
    return wanted == ALL


def tries(few: int, many: int) -> int:
    """Return how many random histories a test tries: `few` in `make test`, `many` in `make
    test-all`."""
    return many if everything() else few


def first(count: int, values: Iterable[Any]) -> list[Any]:
    """Return the values of a test's parameter. Those after the first `count` are for `make
    test-all`."""
    return first_rows(count, ((value,) for value in values))


def first_rows(count: int, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return the values of several parameters. Rows after the first `count` are for `make
    test-all`."""
    return [
        pytest.param(*row, marks=[pytest.mark.exhaustive] if place >= count else [])
        for place, row in enumerate(rows)
    ]
