"""A process that has loaded what task bodies need, and is forked to become one on request.

Run it as ``python -m headgate_runtime.tasks.zygote FD MODULE... -- PADDING``. FD is a stream socket
to the worker's launcher. The modules are imported first, and their `before_forks` called if they
have one. Then the installed packages are searched for connectors, once, as the worker does. What
fails is left to the bodies.

A body that is forked from here starts in milliseconds, where a new interpreter needs most of a
second of CPU. It shares the memory of all that was loaded.

launcher -> zygote   ``{"fork": id, "name": text}`` with the body's stdin and stdout, or
                     ``{"kill": id}``
zygote -> launcher   ``{"ended": id, "status": n}``, the number of a signal negative;
                     `EXEC_FAILED` also if there could be no process

Messages are JSON, a line each. When it forks, the zygote has one thread and no clients, so no fork
copies a lock that another thread holds. If an imported module has started threads, the body begins
with a new interpreter.

Only the zygote knows which of its children are not collected yet, so only it kills them: none of
these pids can be another process's. It ends when its launcher does. The bodies notice that
themselves.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from headgate_runtime.tasks.signals import leave_signals_to_the_worker

BODY: Final = "headgate_runtime.tasks.main"
LINE_MAX: Final = 65_536
NAME_MAX: Final = 400
PADDING: Final = "-" * NAME_MAX
"""The last argument, which reserves room for a body's command line with the name of its task."""
EXEC_FAILED: Final = 127
SPARE_AFTER_S: Final = 0.2
"""Time without a request after which a body is forked ahead, in seconds. Before, others may be in a
hurry."""
SPARE: Final = "(no task yet)"
"""What process listings show of a body that is forked ahead."""
LATE: Final = ("encodings.idna",)
"""Modules that the standard library loads at its first connection, which every body makes."""


@dataclass(frozen=True, slots=True)
class Body:
    """The body that a forked process is to be."""

    name: str
    prepared: bool
    """Whether it has done all that can be done before its task is known."""


class _Spare:
    """The zygote's view of a body that waits for its task."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self._connection = connection

    def take(self, name: str, ends: Sequence[int]) -> bool:
        """Give the body its task and the ends of its standard input and output. Return whether that
        succeeded; if not, the body was killed and collected."""
        with self._connection:
            try:
                socket.send_fds(self._connection, [name.encode()], ends)
                return True
            except OSError:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return False

    def gone(self) -> bool:
        """Return whether it has ended without a task."""
        found, _ = os.waitpid(self.pid, os.WNOHANG)
        if found:
            self._connection.close()
        return bool(found)


class Zygote:
    """The zygote's loop. Used by its only thread."""

    def __init__(self, launcher: socket.socket) -> None:
        self._launcher = launcher
        self._ids: dict[int, str] = {}
        """Ids of the children that are not collected, by pid."""
        self._unread = b""
        self._descriptors: list[int] = []
        self._spare: _Spare | None = None
        self._ahead = True
        """Whether to fork a body ahead. Not if a module has started threads: a fork would get locks
        that nobody releases. And not again after one that ended without a task."""
        self._wakes, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._wakes, False)
        self._wake = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler there is no wake-up
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> Body | None:
        """Serve until the launcher is gone, and return None. In each forked process, return its
        body."""
        while True:
            after_s = SPARE_AFTER_S if self._spare is None and self._ahead else None
            ready, _, _ = select.select([self._launcher.fileno(), self._wakes], [], [], after_s)
            if not ready and (body := self._fork_ahead()) is not None:
                return body
            if self._wakes in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakes, LINE_MAX)
                self._collect()
            if self._launcher.fileno() in ready:
                if not self._receive():
                    return None
                if (body := self._obey()) is not None:
                    return body

    def _receive(self) -> bool:
        """Read requests. Return whether the launcher is still there."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._launcher, LINE_MAX, 64)
        except ConnectionError:
            return False
        self._unread += data
        self._descriptors += descriptors
        return bool(data)

    def _obey(self) -> Body | None:
        while b"\n" in self._unread:
            line, _, self._unread = self._unread.partition(b"\n")
            asked: dict[str, Any] = json.loads(line)
            if "kill" in asked:
                self._kill(asked["kill"])
            elif (body := self._fork(asked["fork"], asked["name"])) is not None:
                return body
        return None

    def _fork(self, run: str, name: str) -> Body | None:
        standard_in, standard_out = self._descriptors[:2]
        del self._descriptors[:2]
        spare, self._spare, self._ahead = self._spare, None, True
        if spare is not None and spare.take(name, (standard_in, standard_out)):
            os.close(standard_in)
            os.close(standard_out)
            self._ids[spare.pid] = run
            return None
        try:
            alone = threads() == 1
            pid = os.fork()
        except OSError as error:
            # There are too many processes, or no memory for one more. The existing ones go on.
            os.close(standard_in)
            os.close(standard_out)
            self._say({"ended": run, "status": EXEC_FAILED})
            print(f"no process for task {name}: {error}", file=sys.stderr, flush=True)
            return None
        if pid == 0:
            self._become_body(standard_in, standard_out)
            if alone:
                show_as(f"{sys.executable} -m {BODY} {name}")
                return Body(name, prepared=False)
            _exec(name)
        os.close(standard_in)
        os.close(standard_out)
        self._ids[pid] = run
        return None

    def _fork_ahead(self) -> Body | None:
        """Fork a body ahead. Return None in the zygote, and in the new process its body once it has
        a task."""
        try:
            self._ahead = threads() == 1
            pair = socket.socketpair() if self._ahead else None
        except OSError:  # no resources for it now
            pair = None
        if pair is None:
            return None
        ours, its = pair
        with its:
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                return None
            if pid:
                self._spare = _Spare(pid, ours)
                return None
            ours.close()
            self._leave()
            show_as(f"{sys.executable} -m {BODY} {SPARE}")
            return _await_task(its)

    def _become_body(self, standard_in: int, standard_out: int) -> None:
        """Set up a forked process as a new interpreter would find it."""
        _take_ends(standard_in, standard_out)
        self._leave()

    def _leave(self) -> None:
        """Close the zygote's descriptors in a forked process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._launcher.close()
        for descriptor in (self._wakes, self._wake, *self._descriptors):
            os.close(descriptor)

    def _kill(self, run: str) -> None:
        for pid, known in self._ids.items():
            if known == run:
                os.kill(pid, signal.SIGKILL)

    def _collect(self) -> None:
        if self._spare is not None and self._spare.gone():
            self._spare, self._ahead = None, False
        for pid in list(self._ids):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                run = self._ids.pop(pid)
                self._say({"ended": run, "status": os.waitstatus_to_exitcode(status)})

    def _say(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # a lost launcher is noticed when reading
            self._launcher.sendall(json.dumps(message).encode() + b"\n")


def _await_task(connection: socket.socket) -> Body:
    """Wait for the task of a body that was forked ahead. Does not return if the zygote is gone."""
    from headgate_runtime.tasks.main import prepare

    prepare()
    told, ends, _, _ = socket.recv_fds(connection, LINE_MAX, 2)
    if len(ends) < 2:
        os._exit(0)
    _take_ends(*ends)
    name = told.decode()
    show_as(f"{sys.executable} -m {BODY} {name}")
    return Body(name, prepared=True)


def _take_ends(standard_in: int, standard_out: int) -> None:
    """Use these ends as standard input, and as output and errors."""
    os.dup2(standard_in, 0)
    os.dup2(standard_out, 1)
    os.dup2(standard_out, 2)
    os.close(standard_in)
    os.close(standard_out)


def threads() -> int:
    """Return the number of this process's threads. It includes those of libraries if the system
    tells."""
    tasks = Path("/proc/self/task")
    if tasks.exists():
        return len(list(tasks.iterdir()))
    import threading

    return threading.active_count()


def show_as(command: str) -> None:
    """Make process listings show `command`, as far as the room for arguments goes. Linux only."""
    with contextlib.suppress(OSError, ValueError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        if 0 < start < end and sys.platform == "linux":
            # If the last byte is not 0, the system reads this as one text that ends with its first
            # 0.
            text = command.encode()[: end - start - 2]
            ctypes.memmove(start, text.ljust(end - start - 1, b"\0") + b"-", end - start)


def _exec(name: str) -> None:
    try:
        os.execv(sys.executable, [sys.executable, "-m", BODY, name])
    finally:
        os._exit(EXEC_FAILED)


def _load(modules: list[str]) -> None:
    """Import modules ahead, and list the connectors. Even a search of few installed packages takes
    milliseconds."""
    loads: dict[str, Callable[[], object]] = {
        module: partial(_load_module, module) for module in modules
    }
    loads["the list of connectors"] = _list_connectors
    for what, load in loads.items():
        try:
            load()
        except Exception:  # a body that needs it reports the error
            print(f"{what} cannot be loaded ahead of the tasks:", file=sys.stderr)
            traceback.print_exc()


def _load_module(name: str) -> None:
    """Import a module and call its `before_forks`, if any: work that an adapter can do once for all
    bodies. It leaves no thread."""
    prepare = getattr(importlib.import_module(name), "before_forks", None)
    if prepare is not None:
        prepare()


def _list_connectors() -> None:
    from headgate_runtime.plugins.find import available

    available()


def main(arguments: list[str]) -> int:
    leave_signals_to_the_worker()
    launcher = socket.socket(fileno=int(arguments[0]))
    _load([BODY, *LATE, *arguments[1 : arguments.index("--")]])
    gc.collect()
    gc.freeze()  # keeps the pages of what is loaded shared
    if (body := Zygote(launcher).serve()) is None:
        os._exit(0)  # even if the modules have started threads
    from headgate_runtime.tasks.main import prepare, run_invited

    if not body.prepared:
        prepare()
    _leave_at_once(run_invited())


def _leave_at_once(status: int) -> NoReturn:
    """End a body as multiprocessing ends a forked child.

    Its threads and exit functions are waited for. The interpreter is not finalised: that would copy
    each page that the zygote and all bodies share.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
