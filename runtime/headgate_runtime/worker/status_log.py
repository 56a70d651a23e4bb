"""Log lines about the statuses that a worker reports, one each."""

import logging

from headgate.ids import State, TaskId
from headgate.topics.status import (
    ConnectorStatusRemoved,
    ConnectorStatusReported,
    Status,
    TaskStatusRemoved,
    TaskStatusReported,
    TopicReset,
    TopicUsed,
    decode_status,
)
from headgate_runtime.worker.log_format import STATUS_LOGGER, subject
from headgate_runtime.worker.traces import first_words

log = logging.getLogger(STATUS_LOGGER)


def log_status(key: str, value: bytes | None) -> None:
    """Log a record that is about to be written to the status topic."""
    match decode_status(key, value):
        case ConnectorStatusReported(connector, status):
            _reported("connector", connector, status)
        case TaskStatusReported(task, status):
            _reported("task", task, status)
        case ConnectorStatusRemoved(connector):
            log.info("connector %s: its status is deleted", connector, extra=subject(connector))
        case TaskStatusRemoved(task):
            log.info("task %s: its status is deleted", task, extra=subject(task))
        case TopicUsed(topic, connector):
            log.info("connector %s uses topic %s", connector, topic, extra=subject(connector))
        case TopicReset(topic, connector):
            text = "connector %s: the record of topic %s is deleted"
            log.info(text, connector, topic, extra=subject(connector))
        case rejected:
            log.warning("a status that nobody can read: %s", rejected)


def _reported(kind: str, what: TaskId | str, status: Status) -> None:
    """Log a status with its reason, for failures and restarts. The trace of a failure goes with
    it."""
    reason = first_words(status.trace)
    if status.state is State.FAILED:
        shown = subject(what, status.trace)
        log.error("%s %s FAILED%s", kind, what, f": {reason}" if reason else "", extra=shown)
        return
    text, why = "%s %s is %s (generation %d)%s", f": {reason}" if reason else ""
    log.info(text, kind, what, status.state, status.generation, why, extra=subject(what))
