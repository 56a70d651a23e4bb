"""Medians of costs that were measured in turns."""

import statistics
from collections.abc import Sequence
from typing import Any, TypeVar

C = TypeVar("C", bound=tuple[Any, ...])
"""A NamedTuple of numbers."""


def medians(costs: Sequence[C]) -> C:
    """A cost whose fields are the medians of this field in `costs`."""
    return type(costs[0])(*(statistics.median(values) for values in zip(*costs, strict=True)))
