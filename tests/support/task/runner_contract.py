"""What every `Runner` must keep, as cases to be run on each of them.

A test module makes a `RunnerBench` and calls `check_*`. The tasks run on a real log in a folder, so
that bodies in other processes reach it.
"""

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.ids import TargetState, TaskId
from headgate.membership.messages import JoinedGroup, JoinGroup, SyncGroup
from headgate.ports import Reporter, Runner
from headgate.task import messages as m
from headgate_embedded import open_transport, transport_settings
from headgate_runtime.tasks.select import make_runner

SESSION_TIMEOUT_MS = 3_000
PATIENCE_S = 60.0


@dataclass
class RunnerBench:
    """A runner, a log, and a worker that answers the requests of a task's start."""

    make: Callable[[Reporter], Runner]
    folder: Path
    answers: bool = True
    reports: "queue.Queue[tuple[str, m.TaskReport]]" = field(default_factory=queue.Queue)
    seen: list[tuple[str, m.TaskReport]] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.transport = open_transport(transport_settings(self.folder))
        self.member_id, self.generation = self._join()
        self.runner = self.make(self._report)

    def _join(self) -> tuple[str, int]:
        """Return member id and generation of a worker, in whose name tasks initialise their
        producers."""
        member_id = ""
        deadline = time.monotonic() + PATIENCE_S
        group = self.transport.group
        while time.monotonic() < deadline:
            group.send(
                JoinGroup("g", member_id, "worker", "connect", (("p", b""),), 600_000, 10_000)
            )
            while not (answers := group.receive()):
                time.sleep(0.005)
            for answer in answers:
                assert isinstance(answer, JoinedGroup)
                member_id = answer.member_id
                if answer.error is None:
                    group.send(SyncGroup("g", member_id, answer.generation, {member_id: b""}))
                    return member_id, answer.generation
        raise AssertionError("no membership")

    def _report(self, run: str, report: m.TaskReport) -> None:
        self.reports.put((run, report))
        if isinstance(report, m.FencingRequested) and self.answers:
            self.runner.send(run, m.FencingAnswered())
        if isinstance(report, m.ProducerInitialised) and self.answers:
            self.runner.send(run, m.RecheckAnswered())

    def close(self) -> None:
        self.runner.close()
        self.transport.close()

    def start(self, plugin: str, config: Mapping[str, str] = {}, **other: Any) -> str:
        self.count += 1
        run = f"worker/{self.count}"
        texts = dict(config)
        kind = other.pop("kind", m.TaskKind.SOURCE)
        exactly_once = kind is m.TaskKind.SOURCE and other.pop("exactly_once", True)
        connector_config = {"connector.class": f"support.task.connectors:{plugin}", **texts}
        values: dict[str, Any] = {
            "run": run,
            "task": TaskId("c", 0),
            "kind": kind,
            "connector_config": connector_config,
            "task_config": texts,
            "target_state": TargetState.STARTED,
            "commit_offset": 3,
            "exactly_once": exactly_once,
            "transactional_id": "g-c-0" if exactly_once else None,
            "group": "g",
            "member_id": self.member_id,
            "generation": self.generation,
            "worker_id": "worker",
            "worker_settings": {"offset.flush.interval.ms": "200"},
            "transport": transport_settings(self.folder),
        }
        self.runner.start(m.TaskSpec(**{**values, **other}))
        return run

    def wait_for(self, run: str, kind: type, seconds: float = PATIENCE_S) -> Any:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                item = self.reports.get(timeout=left)
                self.seen.append(item)
                if item[0] == run and isinstance(item[1], kind):
                    return item[1]
                if item[0] == run and isinstance(item[1], m.TaskReleased):
                    break
        raise AssertionError(f"no {kind.__name__} of {run}: {self.seen}")

    def wait_for_records(self, run: str, least: int) -> m.TaskProgress:
        """Return the first progress of at least so many records, also one that came during an
        earlier wait."""
        told = [word for of, word in self.seen if of == run and isinstance(word, m.TaskProgress)]
        progress = told[-1] if told else m.TaskProgress(0, 0, False)
        while progress.records < least:
            progress = self.wait_for(run, m.TaskProgress)
        return progress

    def wait_for_end(self, run: str) -> m.TaskEnded:
        """Return the end of a run, and check the order and the number of its last reports."""
        ended: m.TaskEnded = self.wait_for(run, m.TaskEnded)
        self.wait_for(run, m.TaskReleased)
        time.sleep(0.1)
        while not self.reports.empty():
            self.seen.append(self.reports.get())
        kinds = [type(report) for found, report in self.seen if found == run]
        assert kinds.count(m.TaskEnded) == kinds.count(m.TaskReleased) == 1
        assert kinds[-2:] == [m.TaskEnded, m.TaskReleased]
        return ended

    def values(self, topic: str = "numbers") -> list[str]:
        ends = self.transport.record_log.end_offsets([topic])
        return [
            (record.value or b"").decode()
            for (name, partition), end in sorted(ends.items())
            for record in self._read(name, partition, end)
        ]

    def _read(self, topic: str, partition: int, end: int) -> list[Any]:
        found: list[Any] = []
        while True:
            start = found[-1].offset + 1 if found else 0
            more = self.transport.record_log.read(topic, partition, start, end, 10_000)
            if not more:
                return found
            found += more


@contextlib.contextmanager
def process_bench(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: str
) -> Iterator[RunnerBench]:
    """Yield a bench of the runner `process`. Its processes find the connectors of the tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    given = {"session.timeout.ms": str(SESSION_TIMEOUT_MS), **settings}
    made = RunnerBench(lambda report: make_runner("process", given, report), folder)
    yield made
    made.close()


def check_start_running_stop(bench: RunnerBench) -> None:
    run = bench.start("CountingSource", {"limit": "100"})
    bench.wait_for(run, m.TaskRunning)
    while not bench.wait_for(run, m.TaskProgress).idle:
        pass
    bench.runner.stop(run, 10_000)
    assert bench.wait_for_end(run).outcome is m.TaskOutcome.STOPPED
    assert bench.values() == [str(n) for n in range(100)]
    # What comes after the end is for nobody.
    bench.runner.stop(run, 0)
    bench.runner.send(run, m.PauseTask())


def check_restart_continues(bench: RunnerBench) -> None:
    first = bench.start("CountingSource", {"limit": "50"})
    bench.wait_for_records(first, 50)
    bench.runner.stop(first, 10_000)
    bench.wait_for_end(first)
    second = bench.start("CountingSource", {"limit": "80"})
    bench.wait_for_records(second, 30)
    bench.runner.stop(second, 10_000)
    bench.wait_for_end(second)
    assert bench.values() == [str(n) for n in range(80)]


def check_pause_and_resume(bench: RunnerBench) -> None:
    run = bench.start("CountingSource", {"pause.s": "0.01"})
    bench.wait_for_records(run, 1)
    bench.runner.send(run, m.PauseTask())
    bench.wait_for(run, m.TaskPaused)
    before = len(bench.values())
    time.sleep(0.2)
    assert len(bench.values()) == before
    bench.runner.send(run, m.ResumeTask())
    bench.wait_for(run, m.TaskRunning)
    bench.wait_for_records(run, before + 1)
    bench.runner.stop(run, 10_000)
    assert bench.wait_for_end(run).outcome is m.TaskOutcome.STOPPED
    values = bench.values()
    assert values == [str(n) for n in range(len(values))]


def check_paused_from_birth(bench: RunnerBench) -> None:
    run = bench.start("CountingSource", target_state=TargetState.PAUSED)
    bench.wait_for(run, m.TaskPaused)
    bench.runner.send(run, m.ResumeTask())
    bench.wait_for(run, m.TaskRunning)
    bench.runner.stop(run, 10_000)
    assert bench.wait_for_end(run).outcome is m.TaskOutcome.STOPPED


def check_failing_start(bench: RunnerBench) -> None:
    run = bench.start("CountingSource", {"start.fails": "true"})
    ended = bench.wait_for_end(run)
    assert ended.outcome is m.TaskOutcome.FAILED
    assert "this task does not start" in ended.reason
    assert ended.trace is not None
    assert "in start" in ended.trace


def check_unknown_class(bench: RunnerBench) -> None:
    run = bench.start("NoSuchSource")
    ended = bench.wait_for_end(run)
    assert ended.outcome is m.TaskOutcome.FAILED
    assert "NoSuchSource" in ended.reason


def check_failing_poll(bench: RunnerBench) -> None:
    run = bench.start("CountingSource", {"fails.at": "30"})
    ended = bench.wait_for_end(run)
    assert ended.outcome is m.TaskOutcome.FAILED
    assert "this poll fails" in ended.reason
    assert bench.values() == [str(n) for n in range(30)]


def check_fenced(bench: RunnerBench) -> None:
    run = bench.start("CountingSource", {"pause.s": "0.01"})
    bench.wait_for_records(run, 10)
    bench.transport.fencer.fence(["g-c-0"])
    assert bench.wait_for_end(run).outcome is m.TaskOutcome.FENCED


def check_stop_while_fencing_is_awaited(bench: RunnerBench) -> None:
    """A stopped task must not initialise a producer any more: that could fence a newer instance."""
    bench.answers = False
    run = bench.start("CountingSource")
    bench.wait_for(run, m.FencingRequested)
    bench.runner.stop(run, 10_000)
    bench.runner.send(run, m.FencingAnswered())
    assert bench.wait_for_end(run).outcome is m.TaskOutcome.STOPPED
    assert not any(isinstance(report, m.ProducerInitialised) for _, report in bench.seen)


def check_abandoned_after_recheck(bench: RunnerBench) -> None:
    bench.answers = False
    run = bench.start("CountingSource")
    bench.wait_for(run, m.FencingRequested)
    bench.runner.send(run, m.FencingAnswered())
    bench.wait_for(run, m.ProducerInitialised)
    bench.runner.send(run, m.RecheckAnswered("newer task configs"))
    ended = bench.wait_for_end(run)
    assert (ended.outcome, ended.reason) == (m.TaskOutcome.ABANDONED, "newer task configs")


def check_sink(bench: RunnerBench) -> None:
    source = bench.start("CountingSource", {"limit": "100"})
    bench.wait_for_records(source, 100)
    bench.runner.stop(source, 10_000)
    bench.wait_for_end(source)
    out = bench.folder / "out.txt"
    config = {"topics": "numbers", "path": str(out)}
    sink = bench.start("CollectingSink", config, kind=m.TaskKind.SINK)
    bench.wait_for_records(sink, 100)
    bench.runner.stop(sink, 10_000)
    assert bench.wait_for_end(sink).outcome is m.TaskOutcome.STOPPED
    assert out.read_text().split() == [f"numbers-0:{n}" for n in range(100)]
    assert bench.transport.record_log.committed("connect-c") == {("numbers", 0): 100}


def check_what_a_sink_asks(bench: RunnerBench) -> None:
    """A sink's paused partitions stay paused through a pause and a resume of the connector. A
    commit comes when the sink asks for it."""
    first = bench.start("CountingSource", {"limit": "10"})
    bench.wait_for_records(first, 10)
    out = bench.folder / "out.txt"
    config = {"topics": "numbers", "path": str(out)}
    settings = {"offset.flush.interval.ms": "3600000"}
    sink = bench.start("AskingSink", config, kind=m.TaskKind.SINK, worker_settings=settings)
    bench.wait_for_records(sink, 10)
    bench.runner.stop(first, 10_000)
    bench.wait_for_end(first)
    second = bench.start("CountingSource", {"limit": "20"})
    bench.wait_for_records(second, 10)
    bench.runner.send(sink, m.PauseTask())
    bench.wait_for(sink, m.TaskPaused)
    bench.runner.send(sink, m.ResumeTask())
    bench.wait_for_records(sink, 20)
    bench.runner.stop(sink, 10_000)
    assert bench.wait_for_end(sink).outcome is m.TaskOutcome.STOPPED
    bench.runner.stop(second, 10_000)
    bench.wait_for_end(second)
    lines = out.read_text().split()
    assert [line for line in lines if line != "resume"] == [f"numbers-0:{n}" for n in range(20)]
    assert lines.index("resume") == 10


def check_committed_records(bench: RunnerBench) -> None:
    acks = bench.folder / "acks.txt"
    for limit, exactly_once in ((20, True), (40, False)):
        config = {"limit": str(limit), "acks": str(acks)}
        run = bench.start("AckedSource", config, exactly_once=exactly_once)
        bench.wait_for_records(run, 20)
        bench.runner.stop(run, 10_000)
        assert bench.wait_for_end(run).outcome is m.TaskOutcome.STOPPED
    lines = acks.read_text().splitlines()
    assert [line for line in lines if line != "commit"] == [f"{n} numbers-0:{n}" for n in range(40)]
    # Exactly-once: all of a transaction before its `commit()`.
    assert lines[10] == lines[21] == "commit"


def check_tasks_start_side_by_side(bench: RunnerBench) -> None:
    """Tasks start at the same time: no `start` returns before the others are called."""
    met = bench.folder / "met"
    met.mkdir()
    config = {"folder": str(met), "of": "3", "limit": "10"}
    runs = [
        bench.start(
            *("MeetingSource", {**config, "task": str(n)}), exactly_once=False, task=TaskId("c", n)
        )
        for n in range(3)
    ]
    for run in runs:
        bench.wait_for_records(run, 10)
    for run in runs:
        bench.runner.stop(run, 10_000)
        assert bench.wait_for_end(run).outcome is m.TaskOutcome.STOPPED


def check_hanging_stop_after_a_failure(bench: RunnerBench) -> None:
    """After a failure nobody has asked for the stop, so the runner itself must end a `stop` that
    hangs."""
    pid = bench.folder / "pid"
    config = {"fails.at": "30", "pid.file": str(pid)}
    settings = {"task.shutdown.graceful.timeout.ms": "300"}
    run = bench.start("StuckSource", config, worker_settings=settings)
    ended = bench.wait_for(run, m.TaskEnded)
    assert ended.outcome is m.TaskOutcome.FAILED
    assert "this poll fails; then it did not stop within 300 ms" in ended.reason
    assert "in poll" in (ended.trace or "")
    released = bench.wait_for(run, m.TaskReleased)
    # What can be killed is not given up before it is dead; a thread cannot.
    assert released.abandoned == (int(pid.read_text()) == os.getpid())
    assert released.abandoned == is_alive(int(pid.read_text()))


# -- of runners whose bodies are processes --


def check_killed_body(bench: RunnerBench) -> None:
    pid = _started(bench)
    os.kill(pid, signal.SIGKILL)
    ended = bench.wait_for_end("worker/1")
    assert ended.outcome is m.TaskOutcome.LOST
    values = bench.values()
    assert values == [str(n) for n in range(len(values))]


def check_hanging_stop_is_killed(bench: RunnerBench) -> None:
    run = bench.start("HangingSource", {"pid.file": str(bench.folder / "pid")})
    bench.wait_for_records(run, 10)
    time.sleep(0.3)
    pid = int((bench.folder / "pid").read_text())
    bench.runner.stop(run, 300)
    ended = bench.wait_for_end(run)
    assert ended.outcome is m.TaskOutcome.LOST
    assert "did not stop within 300 ms" in ended.reason
    assert not is_alive(pid)


def check_frozen_body(bench: RunnerBench) -> None:
    pid = _started(bench)
    os.kill(pid, signal.SIGSTOP)
    frozen = time.monotonic()
    ended = bench.wait_for_end("worker/1")
    assert ended.outcome is m.TaskOutcome.LOST
    assert "nothing heard" in ended.reason
    assert not is_alive(pid)
    assert time.monotonic() - frozen < 3 * SESSION_TIMEOUT_MS / 1000


def _started(bench: RunnerBench) -> int:
    config = {"pause.s": "0.01", "pid.file": str(bench.folder / "pid")}
    bench.wait_for_records(bench.start("CountingSource", config), 10)
    return int((bench.folder / "pid").read_text())


def is_alive(pid: int) -> bool:
    """Return whether a process lives. A zombie that its parent has not collected yet is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def check_no_thread_is_left(
    bench: RunnerBench, monkeypatch: pytest.MonkeyPatch, config: Mapping[str, str] = {}
) -> None:
    """Without a free thread only the task fails. The worker goes on, and starts it again some
    time."""

    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        run = bench.start("CountingSource", config)
    ended = bench.wait_for_end(run)
    assert ended.outcome in (m.TaskOutcome.FAILED, m.TaskOutcome.LOST)
    assert ended.reason == "it could not be launched: can't start new thread"
    bench.wait_for_records(bench.start("CountingSource", config), 1)


COMMON: tuple[Callable[[RunnerBench], None], ...] = (
    check_start_running_stop,
    check_restart_continues,
    check_pause_and_resume,
    check_paused_from_birth,
    check_failing_start,
    check_unknown_class,
    check_failing_poll,
    check_fenced,
    check_stop_while_fencing_is_awaited,
    check_abandoned_after_recheck,
    check_sink,
    check_what_a_sink_asks,
    check_committed_records,
    check_tasks_start_side_by_side,
    check_hanging_stop_after_a_failure,
)
OF_PROCESSES: tuple[Callable[[RunnerBench], None], ...] = (
    check_killed_body,
    check_hanging_stop_is_killed,
    check_frozen_body,
)
