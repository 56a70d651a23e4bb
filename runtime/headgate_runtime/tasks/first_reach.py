"""Brokers that a connector's config names, before its task is anything.

Kafka's clients try for ever, so a task whose ``bootstrap.servers`` are wrong would be RUNNING for
good. Brokers that a run of the task has reached once may go and come: its later runs are not asked.
"""

import time
from collections.abc import Callable
from typing import Final

from headgate.ports import RefusedError
from headgate_runtime.tasks.lifeline import BodyLifeline
from headgate_runtime.transports.select import unreached

PATIENCE_S: Final = 40
"""Brokers may be starting; but a task that never reached any is FAILED within a minute."""
_AGAIN_S: Final = 1.0
_SETTINGS: Final = {"source": "producer", "sink": "consumer"}


def await_brokers(
    lifeline: BodyLifeline,
    *,
    sleep: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Returns once a broker takes a connection, or the task is to stop.

    Raises:
        LifelineGone: the worker is.
        RefusedError: nobody has in time.
    """
    spec = lifeline.spec
    if spec.reached:
        return
    kind = spec.kind.value
    until = now() + PATIENCE_S
    while reason := unreached(spec.transport, spec.connector_config, kind):
        lifeline.check()
        if lifeline.stopping:
            return
        if now() >= until:
            role = _SETTINGS[kind]
            raise RefusedError(
                f"no broker was reached within {PATIENCE_S} s: {reason}. Check "
                f"{role}.override.bootstrap.servers of the connector, or "
                f"{role}.bootstrap.servers of the worker; restart the task once they answer"
            )
        sleep(_AGAIN_S)
