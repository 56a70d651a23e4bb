"""At its start, a worker cannot read the internal topics."""

from types import SimpleNamespace
from typing import Any

import pytest

from headgate.ports import RefusedError, TransportError
from headgate_runtime.command.worker import read_ends


class Log:
    """A log that gives its end after some failures."""

    def __init__(self, *failures: TransportError) -> None:
        self._left = list(failures)

    def end(self) -> int:
        if self._left:
            raise self._left.pop(0)
        return 7


class Stop:
    slept = 0

    def sleep(self, _seconds: float) -> None:
        self.slept += 1


def read(*failures: TransportError) -> tuple[tuple[int, int], int]:
    worker: Any = SimpleNamespace(
        transport=SimpleNamespace(config_log=Log(*failures), status_log=Log())
    )
    stop: Any = Stop()
    return read_ends(worker, stop), stop.slept


def test_brokers_that_are_away_are_asked_again() -> None:
    assert read(TransportError("away"), TransportError("away")) == ((7, 7), 2)


def test_brokers_that_refuse_are_not() -> None:
    with pytest.raises(RefusedError, match="not you"):
        read(RefusedError("not you"))
