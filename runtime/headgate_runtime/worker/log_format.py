"""Formats of a worker's log: text, or one JSON object a line (``headgate.log.format``).

Each line about a connector or a task has its name, in the text or before it. The name is given with
the log call (`subject`), or is that of the thread's current work (`work_on`).
"""

import datetime
import json
import logging
import os
import sys
from contextvars import ContextVar
from typing import Any, Final

from headgate.ids import TaskId

KEY: Final = "headgate.log.format"
TEXT: Final = "text"
JSON: Final = "json"
FORMATS: Final = (TEXT, JSON)
CHATTY: Final = ("httpcore", "kafka", "uvicorn")
"""Libraries whose messages below WARNING are not logged."""
STATUS_LOGGER: Final = "headgate_runtime.worker.status"
"""Name of the logger for status changes of connectors and tasks."""
_TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LEVELS_SHOWN: Final = ("WARNING", "ERROR", "CRITICAL")

_work: ContextVar[TaskId | str | None] = ContextVar("headgate_work", default=None)


def work_on(what: TaskId | str | None) -> None:
    """Declare what this thread works on from now on: a task, a connector (its name), or neither."""
    _work.set(what)


def subject(what: TaskId | str, trace: str | None = None) -> dict[str, Any]:
    """Return the ``extra`` of a log record about a task or a connector, with a stack trace if one
    is given."""
    task = what.task if isinstance(what, TaskId) else None
    name = what.connector if isinstance(what, TaskId) else what
    return {"connector": name, "task": task, "trace": trace}


def set_up(log_format: str = TEXT) -> None:
    """Log to standard error in this format. May be called again once the format is known."""
    if not logging.getLogger().handlers:
        level = os.environ.get("HEADGATE_LOG_LEVEL", "INFO")
        logging.basicConfig(level=level, stream=sys.stderr)
        for chatty in CHATTY:
            logging.getLogger(chatty).setLevel(logging.WARNING)
    made = JsonFormatter() if log_format == JSON else TextFormatter()
    for handler in logging.getLogger().handlers:
        handler.setFormatter(made)


class TextFormatter(logging.Formatter):
    """Formatter for a line with time, level and logger, and traces below it."""

    def __init__(self) -> None:
        super().__init__(_TEXT_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        name = _name(*subject_of(record))
        if name and name not in record.message:
            record.message = f"{name}: {record.message}"
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        text, trace = super().format(record), getattr(record, "trace", None)
        return f"{text}\n{trace}" if trace else text


class JsonFormatter(logging.Formatter):
    """Formatter for one JSON object a line. It has timestamp (UTC), level, logger and message, and
    connector, task and trace if there are any."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        connector, task = subject_of(record)
        trace = record.exc_text or getattr(record, "trace", None)
        if record.exc_info and not trace:
            trace = self.formatException(record.exc_info)
        fields = {
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "connector": connector,
            "task": task,
            "trace": trace,
        }
        return json.dumps({key: value for key, value in fields.items() if value is not None})


def subject_of(record: logging.LogRecord) -> tuple[str | None, int | None]:
    """Return the connector and the task that a log record is about."""
    connector = getattr(record, "connector", None)
    if isinstance(connector, str):
        return connector, getattr(record, "task", None)
    match _work.get():
        case TaskId(connector, task):
            return connector, task
        case name:
            return name, None


def _name(connector: str | None, task: int | None) -> str:
    if connector is None:
        return ""
    return connector if task is None else str(TaskId(connector, task))


def warning_of(line: str) -> tuple[str, str] | None:
    """Return logger and message of a log line that is a warning or an error, in either format.
    Return None for any other line."""
    if line.startswith("{"):
        try:
            fields = json.loads(line)
            level, logger, text = fields["level"], fields["logger"], fields["message"]
        except (ValueError, KeyError, TypeError):
            return None
        return (str(logger), str(text).partition("\n")[0]) if level in _LEVELS_SHOWN else None
    parts = line.split(" ", 4)  # date, time, level, logger, message
    if len(parts) < 5 or parts[2] not in _LEVELS_SHOWN or not parts[3].endswith(":"):
        return None
    return parts[3].removesuffix(":"), parts[4].strip()
