"""Count calls of Python functions: a cost that is the same on every machine."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def counted(work: Callable[[], T]) -> tuple[int, T]:
    """Return how many calls `work` makes, its own included, and what it returns.

    Garbage collection is off during the work, because its callbacks and finalizers are calls, too.
    """
    calls = 0

    def count(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    collects = gc.isenabled()
    gc.disable()
    sys.setprofile(count)
    try:
        found = work()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
    return calls, found
