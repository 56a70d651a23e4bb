"""Work on other threads always gets its answer, since nobody asks a second time."""

import threading
from pathlib import Path

import pytest

from headgate.herder import messages as m
from headgate.task.messages import TaskKind
from headgate_embedded import transport_settings
from headgate_runtime.plugins.threads import AT_ONCE_OF_ONE, HANG_OF_ONE, HangError, PluginThreads
from headgate_runtime.worker import perform
from headgate_runtime.worker.connector_offsets import ConnectorOffsets
from headgate_runtime.worker.loop import Worker, WorkerConfig
from headgate_runtime.worker.perform import Performer

BUG = "KeyError: 'a bug'"


def made(folder: Path) -> Worker:
    settings = {"headgate.task.runner": "thread"}
    return Worker(WorkerConfig("w", "w", transport_settings(folder), settings))


@pytest.mark.parametrize(
    ("effect", "answer"),
    [
        (m.ValidateConfig(7, "c", {}), m.ConfigValidated(7, (BUG,))),
        (m.FenceProducers(7, "c", ("g-c-0",)), m.ProducersFenced(7, BUG)),
        (
            m.CallPeer(7, "b", m.DeleteConnector("c"), 1, 100),
            m.PeerAnswered(7, m.Failure(m.ErrorKind.INTERNAL, BUG)),
        ),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_bug_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: m.Effect, answer: m.Command
) -> None:
    worker = made(tmp_path)

    def bug(*_args: object) -> None:
        raise KeyError("a bug")

    for port in ("validate", "fence", "call_peer"):
        monkeypatch.setattr(Performer, port, bug)
    worker.host.perform([effect])
    assert worker._inbox.get(timeout=5) == answer
    worker._performer.close()
    worker.transport.close()


def test_a_plugin_that_exits_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = made(tmp_path)

    def exits(*_args: object) -> str:
        raise SystemExit("no licence")

    monkeypatch.setattr(perform, "config_error", exits)
    worker.host.perform([m.ValidateConfig(7, "c", {})])
    assert worker._inbox.get(timeout=5) == m.ConfigValidated(7, ("SystemExit: no licence",))
    worker._performer.close()
    worker.transport.close()


def test_a_change_of_offsets_that_hangs_is_answered_when_it_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: what the thread says when it comes back after all is a stale answer to the herder."""
    worker = made(tmp_path)
    gate, begun = threading.Event(), threading.Event()

    def hangs(
        offsets: ConnectorOffsets, effect: m.AlterConnectorOffsets
    ) -> m.ConnectorOffsetsAltered:
        begun.set()
        gate.wait(60)
        return m.ConnectorOffsetsAltered(effect.token)

    monkeypatch.setattr(ConnectorOffsets, "_alter", hangs)
    alter = m.AlterConnectorOffsets(7, "c", {}, TaskKind.SOURCE, None, None, "m", 1)
    try:
        worker.host.perform([alter])
        assert begun.wait(5)
        assert [t.daemon for t in threading.enumerate() if t.name == "offsets"] == [True]
        (known,) = worker.host.perform([m.GiveUpAlteration(7)])
        assert isinstance(known, m.ConnectorOffsetsAltered)
        assert known.token == 7 and known.failure is not None
        assert worker.host.perform([m.GiveUpAlteration(7)]) == []
    finally:
        gate.set()
    assert worker._inbox.get(timeout=5) == m.ConnectorOffsetsAltered(7)
    worker._performer.close()
    worker.transport.close()


def test_validations_that_hang_keep_no_fencing_and_no_other_worker_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = made(tmp_path)
    gate, begun = threading.Event(), threading.Semaphore(0)

    def hangs(*_args: object) -> None:
        begun.release()
        gate.wait(60)

    monkeypatch.setattr(perform, "config_error", hangs)
    monkeypatch.setattr(worker.transport.fencer, "fence", lambda _ids: None)
    monkeypatch.setattr(worker.transport.peers, "call", lambda *_: m.Success(1))
    validations = [m.ValidateConfig(n, "c", {}) for n in range(AT_ONCE_OF_ONE)]
    try:
        worker.host.perform(validations)
        for _ in validations:
            assert begun.acquire(timeout=5)
        hanging = [thread for thread in threading.enumerate() if thread.name == "validation"]
        assert len(hanging) == AT_ONCE_OF_ONE
        assert all(thread.daemon for thread in hanging), "the interpreter waits for them"
        worker.host.perform([m.FenceProducers(100, "c", ("g-c-0",))])
        assert worker._inbox.get(timeout=5) == m.ProducersFenced(100)
        worker.host.perform([m.CallPeer(101, "b", m.DeleteConnector("c"), 1, 100)])
        assert worker._inbox.get(timeout=5) == m.PeerAnswered(101, m.Success(1))
    finally:
        gate.set()
    answers = [worker._inbox.get(timeout=5) for _ in validations]
    assert all(isinstance(answer, m.ConfigValidated) for answer in answers)
    worker._performer.close()
    worker.transport.close()


def test_a_validation_that_cannot_be_made_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = made(tmp_path)

    def refuses(*_args: object) -> None:
        raise HangError("200 calls of x have not ended")

    monkeypatch.setattr(PluginThreads, "submit", refuses)
    (known,) = worker.host.perform([m.ValidateConfig(7, "c", {})])
    assert known == m.ConfigValidated(7, (f"{HANG_OF_ONE} calls of x have not ended",))
    worker._performer.close()
    worker.transport.close()
