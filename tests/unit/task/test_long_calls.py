"""The log reports connector code that does not return."""

import logging
import os
import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.task.body_bench import BodyBench
from support.task.sink_records import fill

from headgate.connector.api import PlannedSinkTask, SinkRecord, SinkTask, SourceRecord, SourceTask
from headgate.ids import TaskId
from headgate.task.messages import LongCall, TaskKind
from headgate_runtime.tasks import long_calls

LONG_S = 0.2


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(long_calls, "LONG_S", LONG_S)
    monkeypatch.setattr(long_calls, "LOOK_S", 0.02)
    caplog.set_level(logging.INFO, "headgate.task")


def unheard(_call: LongCall) -> None: ...


def calls_of(bench: BodyBench) -> list[LongCall]:
    return [report for report in bench.reports if isinstance(report, LongCall)]


def told(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == level]


class Hanging(SourceTask):
    """Hangs in its first `poll` until it is let go."""

    let_go: threading.Event

    def start(self, config: object) -> None:
        self.first = True

    def poll(self) -> Sequence[SourceRecord]:
        if self.first:
            self.first = False
            self.let_go.wait(30)
        self.context.wait(0.01)
        return ()


def test_a_poll_that_hangs_is_told_with_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Hanging.let_go = threading.Event()
    bench = BodyBench(tmp_path, Hanging).start()
    bench.until(lambda: len(told(caplog)) > 1)  # again, when it has taken twice as long
    Hanging.let_go.set()
    bench.stop()
    first = next(r for r in caplog.records if r.levelno == logging.WARNING)
    line, _, stack = first.getMessage().partition("\n")
    assert re.match(r"c-0: in poll for \d+ s; it is at ", line)
    assert f"{__file__}:" in line and "(poll)" in line
    assert line.endswith("; a poll that has nothing waits with self.context.wait()")
    assert "self.let_go.wait(30)" in stack
    assert getattr(first, "connector", "") == "c"
    assert "c-0: poll went on after" in "\n".join(told(caplog, logging.INFO))


def test_the_worker_is_told_of_a_long_call_and_of_its_end(tmp_path: Path) -> None:
    Hanging.let_go = threading.Event()
    bench = BodyBench(tmp_path, Hanging).start()
    bench.until(lambda: bool(calls_of(bench)))
    time.sleep(2 * LONG_S)
    (call,) = calls_of(bench)
    assert call.method == "poll"
    assert LONG_S * 1000 <= call.took_ms < 30_000
    Hanging.let_go.set()
    bench.until(lambda: len(calls_of(bench)) > 1)
    bench.stop()
    assert calls_of(bench) == [call, LongCall()]


def test_a_call_that_ends_while_it_is_looked_at_is_not_reported_after_its_end() -> None:
    """The report is made under the lock that the end of the call takes."""
    said: list[LongCall] = []
    reporting, ended = threading.Event(), threading.Event()

    def slow(call: LongCall) -> None:
        if call.method:
            reporting.set()
            assert not ended.wait(0.3), "the call has ended while it was reported"
        said.append(call)

    with long_calls.watched(TaskId("c", 0), slow):
        with long_calls.call("poll"):
            assert reporting.wait(5)
        ended.set()
    assert [call.method for call in said] == ["poll", ""]


class Patient(SourceTask):
    """Waits through its context, for longer than a call may take."""

    polls = 0

    def poll(self) -> Sequence[SourceRecord]:
        self.context.wait(4 * LONG_S)
        type(self).polls += 1
        return ()


def test_a_poll_that_waits_as_it_should_is_not_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Patient.polls = 0
    bench = BodyBench(tmp_path, Patient).start()
    bench.until(lambda: Patient.polls)
    bench.stop()
    assert told(caplog) == []


class SlowSink(SinkTask):
    """Slow in one of its methods, until it is let go."""

    slow: str
    let_go: threading.Event

    def start(self, config: object) -> None:
        self.be_slow("start")

    def put(self, records: Sequence[SinkRecord]) -> None:
        if records:
            self.be_slow("put")

    def flush(self) -> None:
        self.be_slow("flush")

    def be_slow(self, method: str) -> None:
        if method == self.slow:
            self.let_go.wait(30)


class SlowBatches(PlannedSinkTask):
    """Slow in its batches, until it is let go."""

    let_go: threading.Event

    def run_batch(self) -> int:
        self.let_go.wait(30)
        return 0


class SlowSource(SourceTask):
    """Slow in `start`, until it is let go."""

    let_go: threading.Event

    def start(self, config: object) -> None:
        self.let_go.wait(30)

    def poll(self) -> None:
        self.context.wait(0.01)


@pytest.mark.parametrize("method", ["start", "put", "flush"])
def test_a_slow_method_of_a_sink_is_told_by_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    SlowSink.slow, SlowSink.let_go = method, threading.Event()
    fill(tmp_path, [b"a"])
    bench = BodyBench(tmp_path, SlowSink, {"topics": "t"}, kind=TaskKind.SINK).start()
    bench.until(lambda: told(caplog))
    SlowSink.let_go.set()
    bench.stop()
    assert re.match(rf"c-0: in {method} for \d+ s; it is at {__file__}:", told(caplog)[0])


@pytest.mark.parametrize("task", [SlowBatches, SlowSource])
def test_a_slow_batch_and_a_slow_start_are_told(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    task: type[SlowBatches | SlowSource],
) -> None:
    monkeypatch.setattr(long_calls, "BATCH_S", LONG_S)
    fill(tmp_path, [b"a"])
    task.let_go = threading.Event()
    planned = task is SlowBatches
    kind = TaskKind.SINK if planned else TaskKind.SOURCE
    bench = BodyBench(tmp_path, task, {"topics": "t"} if planned else {}, kind=kind).start()
    bench.until(lambda: told(caplog))
    task.let_go.set()
    bench.stop()
    method = "run_batch" if planned else "start"
    assert re.match(rf"c-0: in {method} for \d+ s; it is at {__file__}:", told(caplog)[0])


def test_calls_that_are_always_slow_are_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(long_calls, "LOOK_S", 1_000.0)  # this test looks itself
    with long_calls.watched(TaskId("c", 0), unheard):
        body = long_calls._here.body
        for _ in range(4):
            with long_calls.call("put"):
                assert body.call is not None
                body.call.since_s -= 45
                long_calls._look(body, time.monotonic())
    assert told(caplog) == [told(caplog)[0]]
    assert told(caplog)[0].startswith("c-0: in put for 45 s")


def test_a_forked_process_looks_at_its_own_bodies() -> None:
    with long_calls.watched(TaskId("c", 0), unheard):
        child = os.fork()
        if not child:
            with long_calls.watched(TaskId("d", 0), unheard):
                names = {thread.name for thread in threading.enumerate()}
                tasks = [body.of for body in long_calls._watch._bodies]
            os._exit(int(tasks != [TaskId("d", 0)] or "headgate-long-calls" not in names))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_thread_that_looks_ends_with_the_last_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = long_calls._Watch()  # bodies of other tests may hang in this process
    monkeypatch.setattr(long_calls, "_watch", watch)
    bench = BodyBench(tmp_path, Patient).start()
    bench.until(lambda: watch._looks)
    bench.stop()
    deadline = time.monotonic() + 20
    while watch._looks:
        assert time.monotonic() < deadline
        time.sleep(0.005)
