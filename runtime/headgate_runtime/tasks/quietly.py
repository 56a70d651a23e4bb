"""Calls into a connector, or a client, whose errors must keep nothing else from happening."""

import logging

from headgate_runtime.tasks import long_calls

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


def call_quietly(name: str, method: object, spec: object) -> None:
    """`quietly`, for the connector's method of this name: if it does not return, that is told."""
    with long_calls.call(name):
        quietly(method, spec, f"in {name}()")
