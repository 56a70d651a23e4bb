"""Computes medians of costs that were measured in turns."""

import statistics
from collections.abc import Sequence
from typing import Any, TypeVar

C = TypeVar("C", bound=tuple[Any, ...])
"""Type of a cost: a NamedTuple of numbers."""


def medians(costs: Sequence[C]) -> C:
    """Return a cost whose fields are the medians of the same fields in `costs`."""
    return type(costs[0])(*(statistics.median(values) for values in zip(*costs, strict=True)))
