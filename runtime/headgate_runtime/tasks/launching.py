"""What the runners around a `Launcher` share: launches, beats, checks of a pid, kills."""

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
"""How long `close` waits for the end of what it killed, in ms."""


def launch(
    launcher: Launcher, run: str, name: str, argument: str, over: Callable[[LaunchOver], None]
) -> None:
    """Launch `run` on a thread of its own. Call `over` once, when it has ended or could not be
    launched."""

    def ended(error: str | None) -> None:
        over(LaunchOver(error, isinstance(error, LaunchRefusal)))

    def work() -> None:
        try:
            launcher.launch(run, argument, ended)
        except Exception as error:  # each library has its own errors; the run did not begin
            _log.exception("%s could not be launched", name)
            ended(f"it could not be launched: {error}")

    try:
        threading.Thread(target=work, name=f"launch-{name}", daemon=True).start()
    except RuntimeError as error:  # there are too many: the run did not begin
        ended(f"it could not be launched: {error}")


def kill_launched(launcher: Launcher, run: str, name: str) -> None:
    """End a launched run, on a thread of its own: for a Spark job it can take seconds."""

    def work() -> None:
        try:
            launcher.kill(run)
        except Exception:  # the runner kills by pid as well, and waits for the end
            _log.exception("%s: the launcher could not end it", name)

    threading.Thread(target=work, daemon=True).start()


def kill_process(name: str, hello: Hello | None) -> None:
    """Kill the process of this machine that sent `hello`. Its end is noticed by its pid."""
    if hello is None or not is_alive(hello):
        return
    _log.warning("%s: killing process %d", name, hello.pid)
    try:
        os.kill(hello.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        # This is an executor of another user. It ends itself once it hears no more beats.
        _log.warning("%s: process %d may not be killed", name, hello.pid)


class Beats:
    """Schedule of the worker's beats on its lifelines: ten within the limit of silence."""

    def __init__(self, limit_ms: int, alive: Callable[[], bool]) -> None:
        """Beat only while `alive` returns True, that is, while the herder is served."""
        self._every_ms = limit_ms // 10
        self._alive = alive
        self._last_ms = 0

    def due(self) -> bool:
        """Return whether to beat now. If so, the next beat is due an interval later."""
        now_ms = monotonic_ms()
        due = now_ms - self._last_ms >= self._every_ms and self._alive()
        if due:
            self._last_ms = now_ms
        return due


def is_gone(hello: Hello | None, watching_pid: bool) -> bool:
    """Return whether the process that sent `hello` is gone. It is checked only if its end is
    awaited."""
    return hello is not None and watching_pid and not is_alive(hello)
