"""Reports about connector code that does not return: which call, for how long, and where it is.

The log has a warning with its place, and the worker shows the call beside the task's state. A body
has one thread, which connector code holds. So another thread of the process looks at the calls that
are under way. It exists while there are bodies.
"""

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headgate.ids import TaskId
from headgate.task.messages import LongCall
from headgate_runtime.worker.log_format import subject

_log = logging.getLogger("headgate.task")

LONG_S: Final = 30.0
"""A call that takes longer is logged, and logged again whenever its time has doubled. In
seconds."""
BATCH_S: Final = 300.0
"""The same limit for a batch of a planned sink, which may be many gigabytes."""
LOOK_S: Final = 5.0
"""Time between two looks, in seconds."""
_LIBRARY: Final = f"{Path(os.__file__).parent}{os.sep}"
_POLL_HINT: Final = "; a poll that has nothing waits with self.context.wait()"


@dataclass(slots=True)
class _Call:
    name: str
    limit_s: float
    since_s: float = field(default_factory=time.monotonic)
    told_s: float = 0.0
    """How long it had taken when it was last logged. 0: it was not logged."""
    reported: bool = False
    """Whether it was reported to the worker."""


@dataclass(slots=True, eq=False)
class _Body:
    of: TaskId | str
    """The task, or the name of the connector."""
    report: Callable[[LongCall], None]
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while `call` changes and while it is reported, so that the last report is true."""
    thread: int = field(default_factory=threading.get_ident)
    call: _Call | None = None
    """The call under way. None: no connector code runs, or it waits as it should."""
    usual_s: float = 0.0
    """Calls up to this long are not logged. So a sink whose `put` always takes a minute is logged
    once."""


class _Watch:
    """Watch over the bodies of this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._bodies: dict[_Body, None] = {}
        self._looks = False

    def add(self, body: _Body) -> None:
        with self._changed:
            self._bodies[body] = None
            if not self._looks:
                self._looks = True
                threading.Thread(target=self._run, name="headgate-long-calls", daemon=True).start()

    def remove(self, body: _Body) -> None:
        with self._changed:
            del self._bodies[body]
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._bodies, LOOK_S)
                if not self._bodies:
                    self._looks = False
                    return
                bodies = list(self._bodies)
            for body in bodies:
                _look(body, time.monotonic())


_watch = _Watch()
_here = threading.local()


def _forked() -> None:
    """Start anew in a forked process: it has none of the bodies, nor the watching thread."""
    global _watch, _here
    _watch, _here = _Watch(), threading.local()


os.register_at_fork(after_in_child=_forked)


@contextmanager
def watched(of: TaskId | str, report: Callable[[LongCall], None]) -> Iterator[None]:
    """Inside this context, watch the calls of this thread as those of a task, or of the connector
    of this name. `report` is called from another thread, too."""
    body = _Body(of, report)
    _here.body = body
    _watch.add(body)
    try:
        yield
    finally:
        _here.body = None
        _watch.remove(body)


@contextmanager
def call(name: str, limit_s: float | None = None) -> Iterator[None]:
    """Mark that connector code runs inside this context. `name` is the method, and `limit_s` how
    long it may take before it is reported."""
    body: _Body | None = getattr(_here, "body", None)
    if body is None:
        yield
        return
    body.call = _Call(name, LONG_S if limit_s is None else limit_s)
    try:
        yield
    finally:
        ended = _end(body)
        if ended.told_s:
            _went_on(body, ended)


@contextmanager
def waiting() -> Iterator[None]:
    """Inside this context, the call waits as it should: it wakes up for stop and pause."""
    body: _Body | None = getattr(_here, "body", None)
    if body is None or body.call is None:
        yield
        return
    under_way = _end(body)
    if under_way.told_s:
        _went_on(body, under_way)
    try:
        yield
    finally:
        body.call = _Call(under_way.name, under_way.limit_s)


def _end(body: _Body) -> _Call:
    """End the call under way and return it. If it was reported, report that it has ended."""
    with body.lock:
        ended, body.call = body.call, None
        assert ended is not None
        if ended.reported:
            body.report(LongCall())
    return ended


def _look(body: _Body, now_s: float) -> None:
    """Report the call under way, if it is time."""
    with body.lock:
        under_way = body.call
        if under_way is None:
            return
        taken_s = now_s - under_way.since_s
        if taken_s >= under_way.limit_s and not under_way.reported:
            under_way.reported = True
            body.report(LongCall(under_way.name, int(taken_s * 1000)))
        if taken_s >= max(under_way.limit_s, body.usual_s, 2 * under_way.told_s):
            under_way.told_s = taken_s
            _warn(body, under_way, taken_s)


def _warn(body: _Body, under_way: _Call, taken_s: float) -> None:
    frame = sys._current_frames().get(body.thread)
    stack = traceback.extract_stack(frame) if frame is not None else traceback.StackSummary()
    # The stack is part of the text, so it reaches the worker's log from the task's process, too.
    _log.warning(
        "%s: in %s for %.0f s%s%s%s",
        *(body.of, under_way.name, taken_s, _place(stack)),
        _POLL_HINT if under_way.name == "poll" else "",
        "\n" + "".join(traceback.format_list(stack)).rstrip() if stack else "",
        extra=subject(body.of),
    )


def _place(stack: traceback.StackSummary) -> str:
    """Return the innermost frame that is not in Python's own library."""
    for frame in reversed(stack):
        if not frame.filename.startswith(_LIBRARY) or "site-packages" in frame.filename:
            return f"; it is at {frame.filename}:{frame.lineno} ({frame.name})"
    return ""


def _went_on(body: _Body, ended: _Call) -> None:
    taken_s = time.monotonic() - ended.since_s
    body.usual_s = max(body.usual_s, 2 * taken_s)
    _log.info("%s: %s went on after %.0f s", body.of, ended.name, taken_s)
