"""Points before each change of a file's name. A sink of planned batches commits by such changes."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

from headgate_runtime.testing.points import Points

CALLS: Final = ("link", "symlink", "rename", "replace", "remove", "unlink")
_REAL: Final[dict[str, Callable[..., Any]]] = {name: getattr(os, name) for name in CALLS}
_without: Final[list[str]] = []
"""Folders that `remove_folder` is removing."""


@contextmanager
def file_points(points: Points) -> Iterator[None]:
    """In this context, calls of `os` on this thread that make, move or remove a name pass a point.
    Calls of `pathlib` and `shutil` end in such calls, too.

    A run inside another run has points of its own, and none of the outer run.
    """
    thread = threading.get_ident()
    before = {name: getattr(os, name) for name in CALLS}
    for name, real in _REAL.items():
        setattr(os, name, _pointed(name, real, points, thread))
    try:
        yield
    finally:
        for name, call in before.items():
            setattr(os, name, call)


def remove_folder(folder: str) -> None:
    """Remove a folder that is not the task's. It may happen at any moment, and passes no point."""
    _without.append(folder)
    try:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        _without.remove(folder)


def _pointed(
    name: str, real: Callable[..., Any], points: Points, thread: int
) -> Callable[..., Any]:
    @wraps(real)
    def pointed(*given: Any, **named: Any) -> Any:
        if threading.get_ident() == thread and not _without:
            points.pass_by(f"before os.{name}()")
        return real(*given, **named)

    return pointed
