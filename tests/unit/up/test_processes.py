"""`headgate up` watches its worker processes. The worker here has no herder."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.herder.messages import DescribeWorker, PutConnectorConfig
from headgate_embedded import open_transport
from headgate_embedded.transport import EmbeddedTransport, transport_settings
from headgate_runtime.up.apply import Applier, Change
from headgate_runtime.up.observe import Observer
from headgate_runtime.up.processes import WorkerProcesses
from headgate_runtime.up.snapshot import Phase

FAKE = Path(__file__).parents[2] / "support" / "commands" / "fake_worker.py"


class Stage:
    """A data folder, its log, and the processes of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.marks: list[tuple[str, str]] = []
        self.transport: EmbeddedTransport = open_transport(transport_settings(folder))
        self.observer = Observer(self.transport, {})
        self.processes: WorkerProcesses | None = None

    def start(self, *arguments: str, workers: int = 1) -> WorkerProcesses:
        names = [f"worker-{n}" for n in range(1, workers + 1)]
        configs = [
            {"name": n, "url": f"u:{n}", "transport": transport_settings(self.folder)}
            for n in names
        ]
        self.processes = WorkerProcesses(
            configs,
            self.folder,
            self.said.append,
            lambda worker, text: self.marks.append((worker, text)),
            command=(sys.executable, str(FAKE), *arguments),
        )
        self.processes.start()
        return self.processes

    def until(self, true: Callable[[], bool], seconds: float = 15.0) -> None:
        assert self.processes is not None
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, self.said
            self.processes.tick()
            living = [worker for worker in self.processes.workers if worker.process is not None]
            views = self.observer.describe([worker.url for worker in living])
            for worker, view in zip(living, views, strict=True):
                if view is not None:
                    self.processes.answered(worker.name)
            time.sleep(0.05)

    def up(self) -> bool:
        assert self.processes is not None
        return all(worker.phase is Phase.UP for worker in self.processes.workers)

    def close(self) -> None:
        if self.processes is not None:
            self.processes.kill()
        self.observer.close()
        self.transport.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def test_workers_come_up_and_stop_cleanly(stage: Stage) -> None:
    processes = stage.start(workers=2)
    stage.until(stage.up)
    stage.until(lambda: "worker-1: a warning for the user" in stage.said)
    # What the second warns of in the same words is not said again.
    assert sum("a warning for the user" in text for text in stage.said) == 1
    assert processes.stop(10.0)
    assert all(worker.process is None for worker in processes.workers)


def test_a_killed_worker_is_started_again(stage: Stage) -> None:
    processes = stage.start()
    stage.until(stage.up)
    (worker,) = processes.workers
    first = worker.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    stage.until(lambda: worker.starts == 2 and stage.up())
    assert worker.pid != first
    assert "worker-1 was killed by SIGKILL; it starts again in 0.5 s" in stage.said
    assert stage.marks[0] == ("worker-1", "was killed by SIGKILL")


def test_a_worker_that_cannot_start_is_given_up_with_its_last_words(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate_runtime.tasks.process_restarts.FIRST_PAUSE_S", 0.01)
    processes = stage.start("--mode", "dies")
    (worker,) = processes.workers
    stage.until(lambda: worker.phase is Phase.GIVEN_UP, 30)
    assert worker.starts == 5
    assert "it ended 5 times without having answered once" in worker.note
    assert "worker-1 cannot start: no reason at all" in worker.note
    assert str(stage.folder / "worker-1.log") in stage.said[-1]


def test_one_that_is_deaf_to_sigterm_is_killed_at_the_deadline(stage: Stage) -> None:
    processes = stage.start("--mode", "deaf")
    stage.until(stage.up)
    begun = time.monotonic()
    assert not processes.stop(0.5)
    assert time.monotonic() - begun < 5
    assert "worker-1 did not stop within 0.5 s and is killed" in stage.said


def test_a_stopped_one_is_continued_to_hear_that_it_is_to_stop(stage: Stage) -> None:
    processes = stage.start()
    stage.until(stage.up)
    pid = processes.workers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert processes.stop(10.0)


class TestApplying:
    def _apply(self, stage: Stage, *changes: Change) -> Applier:
        processes = stage.processes
        assert processes is not None
        applier = Applier(
            stage.transport.peers,
            changes,
            lambda: [worker.url for worker in processes.workers if worker.phase is Phase.UP],
            stage.said.append,
        )
        assert applier.applying == tuple(change.words for change in changes)
        applier.start()
        return applier

    def test_it_asks_again_until_the_cluster_is_ready(self, stage: Stage) -> None:
        stage.start("--ready-after", "1")
        change = Change(PutConnectorConfig("a", {"topics": "t"}), "making connector a", "a")
        applier = self._apply(stage, change)
        stage.until(lambda: "(the worker is starting)" in "".join(applier.applying))
        stage.until(lambda: not applier.applying)
        assert applier.refused == ()
        assert "making connector a: done" in stage.said
        (connector,) = stage.observer.read().connectors
        assert (connector.name, connector.kind, len(connector.tasks)) == ("a", "sink", 1)

    def test_a_refusal_is_final_and_the_next_change_is_made(self, stage: Stage) -> None:
        stage.start()
        applier = self._apply(
            stage,
            Change(PutConnectorConfig("bad", {"refuse.me": "1"}), "making connector bad", "bad"),
            Change(PutConnectorConfig("a", {"topics": "t"}), "making connector a", "a"),
        )
        stage.until(lambda: not applier.applying)
        assert applier.refused == (
            "making connector bad was refused: refuse.me is not what we like",
        )
        assert [one.name for one in stage.observer.read().connectors] == ["a"]

    def test_it_waits_while_nobody_can_be_asked(self, stage: Stage) -> None:
        stage.start()
        assert stage.processes is not None
        applier = Applier(
            stage.transport.peers,
            [Change(DescribeWorker(), "asking", "x")],
            lambda: (),
            stage.said.append,
        )
        applier.start()
        time.sleep(0.7)
        assert applier.applying == ("asking",)
        applier.stop()
