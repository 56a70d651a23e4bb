"""Errors that cost one record: those which converters and transforms raise for it."""

import logging

from headgate.connector.api import DataError
from headgate.connector.schema_registry import RegistryUnreachableError
from headgate.ids import TaskId

_log = logging.getLogger("headgate.task")


def data_error_text(error: Exception) -> str:
    """Return the text of an error that a converter or a transform raised.

    Every such error is a data error of that record, as in Connect. An error that is not meant as
    one is named by its type. Source: RetryWithToleranceOperator (stages TRANSFORMATION,
    KEY_CONVERTER, VALUE_CONVERTER, HEADER_CONVERTER tolerate Exception).

    Raises:
        MemoryError, RegistryUnreachableError: no record is to blame for these. The task fails,
            whatever it tolerates, and takes its records up again.
    """
    if isinstance(error, (MemoryError, RegistryUnreachableError)):
        raise error
    return str(error) if isinstance(error, DataError) else f"{type(error).__name__}: {error}"


def log_skipped(task: TaskId, reason: str, error: Exception | None) -> None:
    """Log a line about a record that is passed over, with a traceback if the error may be a bug."""
    bug = None if isinstance(error, DataError) else error
    _log.info("%s: cannot be used: %s", task, reason, exc_info=bug)
