"""Starts task bodies as processes of this machine, forked from a zygote."""

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from headgate_runtime.tasks import zygote
from headgate_runtime.tasks.log_lines import relog_line

_log = logging.getLogger("headgate.task")

DRAIN_S = 2.0
"""How long output may still come after the process has ended, in seconds. A grandchild may hold the
pipe."""
_GONE = "the process that tasks are forked from has ended"


class ProcessLauncher:
    """Launcher with a process per task, forked from a zygote that has loaded what tasks need. What
    it logs and prints goes to the worker's log. Its command line ends with the task's name, for
    process lists.

    A body ends when its zygote ends, and the zygote ends when the worker does. The end of a zygote
    is reported, and the next body is forked from a new one.

    Args:
        preload: modules to load ahead, besides those of the bodies. They must not start threads.
    """

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._preload = tuple(preload)
        self._lock = threading.Lock()
        self._zygote: _Zygote | None = None
        self._closed = False

    def prepare(self) -> None:
        """Begin to load modules, so that the first task need not wait for them. Returns at once."""
        with self._lock:
            self._serving()

    def launch(self, run: str, argument: str, ended: Callable[[str | None], None]) -> None:
        body = _Body(str(json.loads(argument).get("task", run)), ended)
        with self._lock:
            while not self._closed:
                # A zygote that cannot be asked is gone. Its listener is about to notice.
                if (serving := self._serving()).fork(run, body, argument):
                    return
                serving.gone = True
        body.give_up()
        raise RuntimeError("the launcher is closed")

    def kill(self, run: str) -> None:
        with self._lock:
            if self._zygote is not None:
                self._zygote.kill(run)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._zygote is not None:
                self._zygote.close()

    def _serving(self) -> "_Zygote":
        if self._zygote is None or self._zygote.gone:
            self._zygote = _Zygote(self._preload)
        return self._zygote


class _Body:
    """A body's process, with the worker's ends of its standard input and output."""

    def __init__(self, name: str, ended: Callable[[str | None], None]) -> None:
        self.name = name
        self._ended = ended
        standard_in, self._input = os.pipe()
        self._output, standard_out = os.pipe()
        self.ends = (standard_in, standard_out)
        """The process's ends of its standard input, and of its standard output and error."""
        self._drained = threading.Thread(target=self._relay, name=f"task-{name}", daemon=True)

    def give_up(self) -> None:
        """Close all pipes: there will be no process."""
        for descriptor in (*self.ends, self._input, self._output):
            os.close(descriptor)

    def begin(self, argument: str) -> None:
        """Begin to relay, when the process has its ends or will have them."""
        for descriptor in self.ends:
            os.close(descriptor)
        self._drained.start()
        with contextlib.suppress(OSError):  # it died at once: its exit status says why
            # The argument is far smaller than a pipe's buffer, so this does not wait.
            os.write(self._input, argument.encode() + b"\n")

    def over(self, error: str | None) -> None:
        """Report the end of the process, once its last output is in the log."""
        os.close(self._input)
        threading.Thread(target=self._finish, args=(error,), daemon=True).start()

    def _finish(self, error: str | None) -> None:
        self._drained.join(DRAIN_S)
        self._ended(error)

    def _relay(self) -> None:
        with os.fdopen(self._output, "rb") as output:
            for line in output:
                relog_line(self.name, line.decode(errors="replace").rstrip())


class _Zygote:
    """The launcher's view of a zygote."""

    def __init__(self, preload: Sequence[str]) -> None:
        self._socket, its = socket.socketpair()
        with its:
            command = [sys.executable, "-m", zygote.__name__, str(its.fileno())]
            self._process = subprocess.Popen(
                [*command, *preload, "--", zygote.PADDING],
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
            )
        self._lock = threading.Lock()
        self._bodies: dict[str, _Body] = {}
        """Bodies whose processes have not ended, by run."""
        self._closed = False
        self.gone = False
        """The zygote has ended, and so will its bodies. Their ends are reported, or will be."""
        threading.Thread(target=self._listen, name="zygote", daemon=True).start()

    def fork(self, run: str, body: _Body, argument: str) -> bool:
        """Ask for a fork. Return whether the zygote could be asked."""
        with self._lock:
            if self.gone or not self._say({"fork": run, "name": body.name}, body.ends):
                return False
            self._bodies[run] = body
            # Under the lock: the process may be reported as ended at once.
            body.begin(argument)
        return True

    def kill(self, run: str) -> None:
        with self._lock:
            if run in self._bodies:
                self._say({"kill": run})

    def close(self) -> None:
        """Kill the bodies. The zygote ends after the last of them."""
        with self._lock:
            self._closed = True
            for run in self._bodies:
                self._say({"kill": run})
            self._leave()

    def _listen(self) -> None:
        with self._socket.makefile("rb") as lines, contextlib.suppress(ConnectionError):
            for line in lines:
                told: dict[str, Any] = json.loads(line)
                if "ended" in told:
                    self._over(told["ended"], told["status"])
        self._process.wait()
        with self._lock:
            self.gone = True
            bodies, self._bodies = list(self._bodies.values()), {}
            self._socket.close()
        if not self._closed:
            _log.warning("%s, with status %s", _GONE, self._process.returncode)
        for body in bodies:
            body.over(_GONE)

    def _over(self, run: str, status: int) -> None:
        with self._lock:
            body = self._bodies.pop(run)
            self._leave()
        body.over(None if status == 0 else _why(status))

    def _leave(self) -> None:
        if self._closed and not self._bodies and not self.gone:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def _say(self, message: dict[str, str], descriptors: Sequence[int] = ()) -> bool:
        try:
            socket.send_fds(self._socket, [json.dumps(message).encode() + b"\n"], descriptors)
        except OSError:
            return False
        return True


def _why(status: int) -> str:
    if status < 0:
        return f"its process was ended by signal {-status}"
    return f"its process ended with status {status}"
