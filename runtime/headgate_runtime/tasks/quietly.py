"""Calls into a connector or a client whose errors must not keep anything else from happening."""

import logging

from headgate_runtime.tasks import long_calls

_log = logging.getLogger("headgate.task")


def quietly(call: object, spec: object, where: str = "while closing") -> None:
    """Call, and log any error. While closing, one error must not keep the rest from being closed.
    And a commit stands, whatever the task's callback raises."""
    if not callable(call):
        return
    try:
        call()
    except BaseException:  # connector code may raise anything, SystemExit too
        _log.warning("%s: %s", getattr(spec, "task", spec), where, exc_info=True)


def call_quietly(name: str, method: object, spec: object) -> None:
    """Call the connector's method of this name as `quietly` does. A call that does not return is
    reported."""
    with long_calls.call(name):
        quietly(method, spec, f"in {name}()")
