"""Which records of the config topic a look gives the worker, and when it reports the topic's
end."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from headgate.herder.messages import (
    Command,
    ConfigEndRead,
    ConfigRead,
    StatusesWritten,
    StatusRead,
    WriteStatus,
)
from headgate.ports import LogRecord, TransportError
from headgate.topics.config_reducer import REPLAY_BATCH
from headgate_runtime.worker.logs import InlineLogs


class Records:
    """A log of as many connectors as a test says."""

    def __init__(self, count: int) -> None:
        value = json.dumps({"properties": {}}).encode()
        self._records = [LogRecord(n, f"connector-{n}".encode(), value) for n in range(count)]

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        found = self._records[position : position + limit]
        return found, position + len(found)

    def end(self) -> int:
        return len(self._records)


def offsets(commands: Sequence[Command]) -> list[int]:
    return [e.offset for c in commands if isinstance(c, ConfigRead) for e in c.events]


def test_the_end_is_reached_only_once_all_before_it_was_given() -> None:
    """A command among those of one look makes the herder ask for all up to the end."""
    ports: Any = SimpleNamespace(config_log=Records(3 * REPLAY_BATCH), status_log=Records(0))
    logs = InlineLogs(ports, {})
    given: list[Command] = []
    for number, command in enumerate(logs.look()):
        given.append(command)
        if number == 0:
            given += logs.read_to_end(7)
    assert offsets(given) == list(range(3 * REPLAY_BATCH))
    assert given[-1] == ConfigEndRead(7)


def test_a_look_gives_no_more_than_a_few_batches() -> None:
    ports: Any = SimpleNamespace(config_log=Records(7 * REPLAY_BATCH), status_log=Records(0))
    logs = InlineLogs(ports, {})
    first = offsets(list(logs.look()))
    assert len(first) == 5 * REPLAY_BATCH
    assert offsets(list(logs.look())) == list(range(5 * REPLAY_BATCH, 7 * REPLAY_BATCH))


class Statuses(Records):
    """A status log that can be out of reach."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.away = False

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        if self.away:
            raise TransportError("out of reach")

    def end(self) -> int:
        if self.away:
            raise TransportError("out of reach")
        return super().end()


def test_statuses_are_read_to_their_end_where_that_is_asked_for() -> None:
    ports: Any = SimpleNamespace(config_log=Records(1), status_log=Statuses(3))
    logs = InlineLogs(ports, {})
    kinds = [type(command) for command in logs.read_to_end(7, statuses=True)]
    assert kinds == [ConfigRead, StatusRead, ConfigEndRead]
    assert logs.read_to_end(8) == [ConfigEndRead(8)]
    ports.status_log.away = True
    assert logs.read_to_end(9, statuses=True) == [ConfigEndRead(9, "out of reach")]


def test_who_awaits_statuses_is_told_when_they_are_written() -> None:
    ports: Any = SimpleNamespace(config_log=Records(0), status_log=Statuses(0))
    logs = InlineLogs(ports, {})
    assert logs.await_statuses(1) == [StatusesWritten(1)]
    ports.status_log.away = True
    logs.write_statuses([WriteStatus("a", b"1")])
    assert logs.await_statuses(2) == []
    assert list(logs.look()) == []
    ports.status_log.away = False
    logs.write_waiting()
    assert list(logs.look()) == [StatusesWritten(2)]
