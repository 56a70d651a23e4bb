"""Producers are fenced on the brokers that they use, by a client that the connector's config
describes."""

from pathlib import Path
from typing import Any

import pytest

from headgate.herder.messages import FenceProducers, ProducersFenced
from headgate.ports import TransportError
from headgate.topics.config_events import Config
from headgate_embedded import transport_settings
from headgate_runtime.worker import perform
from headgate_runtime.worker.loop import Worker, WorkerConfig

IDS = ("g-c-0", "g-c-1")


class Elsewhere:
    """A stand-in for `open_task_transport` and for the transport that it opens."""

    def __init__(self, away: bool = False) -> None:
        self.fenced: list[Any] = []
        self.closed = 0
        self.away = away

    def __call__(self, transport: Any, config: Config, **names: Any) -> "Elsewhere":
        self.opened = (dict(config), names)
        return self

    @property
    def fencer(self) -> "Elsewhere":
        return self

    def fence(self, ids: Any) -> None:
        if self.away:
            raise TransportError("other brokers are away")
        self.fenced.append(tuple(ids))

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("worker_has", "connector_has", "elsewhere"),
    [
        ({}, {"producer.override.linger.ms": "1"}, False),
        ({}, {"producer.override.bootstrap.servers": "other:9092"}, True),
        ({}, {"admin.override.request.timeout.ms": "1"}, True),
        ({"admin.request.timeout.ms": "1"}, {}, True),
        ({"producer.bootstrap.servers": "other:9092"}, {}, True),
    ],
)
@pytest.mark.parametrize("away", [False, True])
def test_where_a_connectors_producers_are(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    worker_has: dict[str, str],
    connector_has: dict[str, str],
    elsewhere: bool,
    away: bool,
) -> None:
    other = Elsewhere(away)
    monkeypatch.setattr(perform, "open_task_transport", other)
    config = WorkerConfig(
        "w",
        "w",
        {**transport_settings(tmp_path), **worker_has},
        {"headgate.task.runner": "thread"},
    )
    worker = Worker(config)
    here: list[Any] = []
    monkeypatch.setattr(worker.transport.fencer, "fence", lambda ids: here.append(tuple(ids)))
    monkeypatch.setattr(worker._performer, "_config_of", lambda _name: {**connector_has, "n": None})
    worker.host.perform([FenceProducers(7, "c", IDS)])
    failed = elsewhere and away
    answer = worker._inbox.get(timeout=10)
    assert answer == ProducersFenced(7, "other brokers are away" if failed else None)
    assert here == ([] if elsewhere else [IDS])
    assert other.fenced == ([IDS] if elsewhere and not away else [])
    assert other.closed == int(elsewhere)
    if elsewhere:
        names = {"connector": "c", "kind": "source", "exactly_once": True}
        assert other.opened == (connector_has, names)
    worker._performer.close()
    worker.transport.close()
