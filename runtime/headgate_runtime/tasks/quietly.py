"""Calls into a connector, or a client, whose errors must keep nothing else from happening."""

import logging

_log = logging.getLogger("headgate.task")


def quietly(call: object, spec: object, where: str = "while closing") -> None:
    """On the way out nothing may keep the rest from being closed; and what is committed stays so,
    whatever the task makes of it."""
    if not callable(call):
        return
    try:
        call()
    except BaseException:  # connector code may raise anything, SystemExit too
        _log.warning("%s: %s", getattr(spec, "task", spec), where, exc_info=True)
