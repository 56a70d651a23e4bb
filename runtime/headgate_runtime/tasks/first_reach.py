"""A check of the brokers that a connector's config names, before the task begins.

Kafka's clients try for ever, so a task with wrong ``bootstrap.servers`` would be RUNNING for good.
Once a run of the task has reached its brokers, they may go and come. Later runs do not check.
"""

import time
from collections.abc import Callable
from typing import Final

from headgate.ports import RefusedError
from headgate_runtime.tasks.lifeline import BodyLifeline
from headgate_runtime.transports.select import unreached

PATIENCE_S: Final = 40
"""Time for starting brokers, in seconds. A task that never reached any is FAILED within a
minute."""
_AGAIN_S: Final = 1.0
_SETTINGS: Final = {"source": "producer", "sink": "consumer"}


def await_brokers(
    lifeline: BodyLifeline,
    *,
    sleep: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Return once a broker takes a connection, or the task is to stop.

    Raises:
        LifelineGone: the worker is gone.
        RefusedError: no broker has taken one in time.
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
