"""A task that writes to a folder and is killed at one of its steps."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class Killed(BaseException):
    """Raised to kill the process: nothing of the task runs after it."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Kill the task at the `step`-th call that changes the folder."""
    left = [step]

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(os, "link", wrap(os.link))
    monkeypatch.setattr(os, "fsync", wrap(os.fsync))
    for name in ("rename", "mkdir", "unlink"):
        monkeypatch.setattr(Path, name, wrap(getattr(Path, name)))
