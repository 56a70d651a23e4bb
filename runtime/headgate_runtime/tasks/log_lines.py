"""What a body logs, on its way to its worker's log: through the pipe of a process on this machine,
or over the lifeline of a body on an executor. A thread's is there already.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from headgate import wire
from headgate.ids import TaskId
from headgate_runtime.tasks.protocol import Logged
from headgate_runtime.worker.log_format import subject, subject_of

_log = logging.getLogger("headgate.task")

MARK: Final = "\x1e"
"""Begins a log record among the lines that a process prints. JSON does not have it as it is."""
TEXT_MAX: Final = 8_192
"""Length of a text on the lifeline: a longer one is cut."""
KEPT_MAX: Final = 500
"""Log records that wait for the lifeline, which takes them several times a second."""


class LineFormatter(logging.Formatter):
    """A record as one line, its traceback included, that `relog_line` knows again."""

    def format(self, record: logging.LogRecord) -> str:
        return MARK + wire.dumps(_logged(record, super().format(record))).decode()


class Outbox(logging.Handler):
    """Keeps log records for the lifeline. Never waits: what finds it full is counted instead."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._kept: deque[Logged] = deque()
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if len(self._kept) < KEPT_MAX:
                self._kept.append(_logged(record, self.format(record)[:TEXT_MAX]))
            else:
                self._left_out += 1
        except Exception:  # arguments that do not fit their text, say: as other handlers do
            self.handleError(record)

    def next(self) -> Logged | None:
        self.acquire()
        try:
            if self._kept:
                return self._kept.popleft()
            count, self._left_out = self._left_out, 0
        finally:
            self.release()
        if not count:
            return None
        text = f"{count} more log records came too fast and are not in this log"
        return Logged(logging.WARNING, _log.name, text)


@contextlib.contextmanager
def logging_to(outbox: Outbox | None) -> Iterator[None]:
    """In a process that is not ours alone: what is logged meanwhile goes to `outbox`, and warnings
    go where they went before, too. None: all stays as it is."""
    if outbox is None:
        yield
        return
    root = logging.getLogger()
    level = root.level
    # With a handler at the root, Python's last resort would be silent.
    last = [] if root.handlers or logging.lastResort is None else [logging.lastResort]
    for handler in (outbox, *last):
        root.addHandler(handler)
    root.setLevel(min(level, logging.INFO))
    try:
        yield
    finally:
        root.setLevel(level)
        for handler in (outbox, *last):
            root.removeHandler(handler)


def relog(task: str, line_logged: Logged) -> None:
    """Into the log of this process, by the level that the logger has here. `task`: what it is about
    unless it says so itself."""
    task = line_logged.task or task
    own = f"{task}: "
    text = line_logged.text if line_logged.text.startswith(own) else own + line_logged.text
    logging.getLogger(line_logged.logger).log(line_logged.level, "%s", text, extra=_about(task))


def relog_line(task: str, line: str) -> None:
    """A line of what a process prints; what is no log record is logged with the task's name."""
    printed, mark, told = line.partition(MARK)
    line_logged: Logged | None = None
    if mark:
        try:
            line_logged = wire.loads(Logged, told.encode())
        except wire.WireError:  # somebody else's mark, or a line that others have written into
            printed = line
    if printed or line_logged is None:
        _log.info("%s: %s", task, printed, extra=_about(task))
    if line_logged is not None:
        relog(task, line_logged)


def _about(task: str) -> Mapping[str, object]:
    try:
        return subject(TaskId.parse(task))
    except ValueError:  # the name of a process that is no task's
        return {}


def _logged(record: logging.LogRecord, text: str) -> Logged:
    # Names of files may hold what is no text, which could not travel.
    name, shown = (
        each.encode("utf-8", "backslashreplace").decode() for each in (str(record.name), text)
    )
    connector, task = subject_of(record)
    about = ""
    if connector is not None and isinstance(task, int):
        about = str(TaskId(connector, task))
    return Logged(int(record.levelno), name, shown, about)
