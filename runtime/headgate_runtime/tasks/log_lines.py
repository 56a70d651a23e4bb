"""The way of a body's log records to its worker's log. A process on this machine uses its pipe, a
body on an executor its lifeline. A thread's log is the worker's already."""

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
"""Character before a log record among the lines that a process prints. JSON never has it
unescaped."""
TEXT_MAX: Final = 8_192
"""Longest text on the lifeline, in characters. Longer ones are cut."""
KEPT_MAX: Final = 500
"""Most log records that wait for the lifeline, which takes them several times a second."""


class LineFormatter(logging.Formatter):
    """Formatter for a record as one line, traceback included, that `relog_line` recognises."""

    def format(self, record: logging.LogRecord) -> str:
        return MARK + wire.dumps(_logged(record, super().format(record))).decode()


class Outbox(logging.Handler):
    """A handler that keeps log records for the lifeline. It never waits: a record that finds it
    full is only counted."""

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
        except Exception:  # such as arguments that do not fit their text: as other handlers do
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
    """Send what is logged meanwhile to `outbox`, in a process that is not ours alone. Warnings
    still go where they went before, too. With None nothing changes."""
    if outbox is None:
        yield
        return
    root = logging.getLogger()
    level = root.level
    # With a handler at the root, Python's last resort would not be used.
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
    """Log a body's record in this process, by the level that the logger has here. `task` is its
    subject unless the record names one."""
    task = line_logged.task or task
    own = f"{task}: "
    text = line_logged.text if line_logged.text.startswith(own) else own + line_logged.text
    logging.getLogger(line_logged.logger).log(line_logged.level, "%s", text, extra=_about(task))


def relog_line(task: str, line: str) -> None:
    """Log a line that a process printed. A line that is no log record is logged with the task's
    name."""
    printed, mark, told = line.partition(MARK)
    line_logged: Logged | None = None
    if mark:
        try:
            line_logged = wire.loads(Logged, told.encode())
        except wire.WireError:  # another program's mark, or a line into which others have written
            printed = line
    if printed or line_logged is None:
        _log.info("%s: %s", task, printed, extra=_about(task))
    if line_logged is not None:
        relog(task, line_logged)


def _about(task: str) -> Mapping[str, object]:
    try:
        return subject(TaskId.parse(task))
    except ValueError:  # the process is no task's
        return {}


def _logged(record: logging.LogRecord, text: str) -> Logged:
    # File names may hold bytes that are no text and could not travel.
    name, shown = (
        each.encode("utf-8", "backslashreplace").decode() for each in (str(record.name), text)
    )
    connector, task = subject_of(record)
    about = ""
    if connector is not None and isinstance(task, int):
        about = str(TaskId(connector, task))
    return Logged(int(record.levelno), name, shown, about)
