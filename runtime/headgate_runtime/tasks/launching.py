"""What the runners around a `Launcher` share: to launch, to beat, to watch a pid, to kill."""

import logging
import os
import signal
import threading
from collections.abc import Callable

from headgate.ports import Launcher, LaunchRefusal
from headgate.task.run import LaunchOver
from headgate_runtime.tasks.lifeline import monotonic_ms
from headgate_runtime.tasks.protocol import Hello, is_alive

_log = logging.getLogger("headgate.task")

START_LIMIT_MS = 60_000
TICK_S = 0.02
CLOSE_LIMIT_MS = 3_000
"""How long `close` waits for what it killed to be gone."""


def launch(
    launcher: Launcher, run: str, name: str, argument: str, over: Callable[[LaunchOver], None]
) -> None:
    """Launch `run` on a thread of its own. `over` is told once what was launched has ended, or
    that it could not be launched."""

    def ended(error: str | None) -> None:
        over(LaunchOver(error, isinstance(error, LaunchRefusal)))

    def work() -> None:
        try:
            launcher.launch(run, argument, ended)
        except Exception as error:  # each launcher's library has its own; the run did not begin
            _log.exception("%s could not be launched", name)
            ended(f"it could not be launched: {error}")

    try:
        threading.Thread(target=work, name=f"launch-{name}", daemon=True).start()
    except RuntimeError as error:  # there are too many: the run did not begin
        ended(f"it could not be launched: {error}")


def kill_launched(launcher: Launcher, run: str, name: str) -> None:
    """End what was launched, on a thread of its own: of a Spark job that can take seconds."""

    def work() -> None:
        try:
            launcher.kill(run)
        except Exception:  # the runner kills its process by pid as well, and waits for its end
            _log.exception("%s: the launcher could not end it", name)

    threading.Thread(target=work, daemon=True).start()


def kill_process(name: str, hello: Hello | None) -> None:
    """End the process of this machine that said `hello`; its end is seen by its pid."""
    if hello is None or not is_alive(hello):
        return
    _log.warning("%s: killing process %d", name, hello.pid)
    try:
        os.kill(hello.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        # An executor of another user. It ends itself once it hears nothing more.
        _log.warning("%s: process %d may not be killed", name, hello.pid)


class Beats:
    """When the worker beats on its lifelines: ten times within the limit of silence."""

    def __init__(self, limit_ms: int, alive: Callable[[], bool]) -> None:
        """`alive`: there are beats only while it returns True (the herder is being served)."""
        self._every_ms = limit_ms // 10
        self._alive = alive
        self._last_ms = 0

    def due(self) -> bool:
        """Whether to beat now; the next time is counted from then on."""
        now_ms = monotonic_ms()
        due = now_ms - self._last_ms >= self._every_ms and self._alive()
        if due:
            self._last_ms = now_ms
        return due


def is_gone(hello: Hello | None, watching_pid: bool) -> bool:
    """Whether the process that said `hello` is gone; asked only where its end is awaited."""
    return hello is not None and watching_pid and not is_alive(hello)
