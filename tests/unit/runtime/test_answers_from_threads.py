"""What runs on other threads is answered, whatever becomes of it: nobody asks a second time."""

from pathlib import Path

import pytest

from headgate.herder.messages import (
    CallPeer,
    Command,
    ConfigValidated,
    DeleteConnector,
    Effect,
    ErrorKind,
    Failure,
    FenceProducers,
    PeerAnswered,
    ProducersFenced,
    ValidateConfig,
)
from headgate_embedded import transport_settings
from headgate_runtime.perform import Performer
from headgate_runtime.worker import Worker, WorkerConfig

BUG = "KeyError: 'a bug'"


@pytest.mark.parametrize(
    ("effect", "answer"),
    [
        (ValidateConfig(7, "c", {}), ConfigValidated(7, (BUG,))),
        (FenceProducers(7, "c", ("g-c-0",)), ProducersFenced(7, BUG)),
        (
            CallPeer(7, "b", DeleteConnector("c"), 1, 100),
            PeerAnswered(7, Failure(ErrorKind.INTERNAL, BUG)),
        ),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_bug_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: Effect, answer: Command
) -> None:
    worker = Worker(
        WorkerConfig("w", "w", transport_settings(tmp_path), {"headgate.task.runner": "thread"})
    )

    def bug(*_args: object) -> Command:
        raise KeyError("a bug")

    monkeypatch.setattr(Performer, "_answer_of", bug)
    worker._performer.perform([effect])
    assert worker._inbox.get(timeout=5) == answer
    worker._performer.close()
    worker.transport.close()
