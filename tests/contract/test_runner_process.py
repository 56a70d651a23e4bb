"""The runner of processes keeps the contract of runners, and kills a body that does not end."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands.processes import descendants
from support.depth import first_rows
from support.task import runner_contract
from support.task.runner_contract import RunnerBench, is_alive, process_bench

from headgate.task.messages import TaskKind, TaskOutcome

TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunnerBench]:
    with process_bench(tmp_path, monkeypatch) as made:
        yield made


@pytest.mark.parametrize(
    "check",
    [*runner_contract.COMMON, *runner_contract.OF_PROCESSES],
    ids=lambda check: check.__name__,
)
def test_contract(check: Callable[[RunnerBench], None], bench: RunnerBench) -> None:
    check(bench)


def test_no_thread_is_left(bench: RunnerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    runner_contract.check_no_thread_is_left(bench, monkeypatch)


def test_a_sink_of_planned_batches(bench: RunnerBench) -> None:
    source = bench.start("CountingSource", {"limit": "100"})
    bench.wait_for_records(source, 100)
    bench.runner.stop(source, 10_000)
    bench.wait_for_end(source)
    sink = bench.start("PlannedSink", {"topics": "numbers"}, kind=TaskKind.SINK)
    bench.wait_for_records(sink, 100)
    bench.runner.stop(sink, 10_000)
    assert bench.wait_for_end(sink).outcome is TaskOutcome.STOPPED


def test_what_a_task_prints_is_in_the_log_with_its_name(
    bench: RunnerBench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "headgate.task"):
        run = bench.start("CountingSource", {"limit": "10"})
        bench.wait_for_records(run, 10)
        commands = [p.command for p in descendants(os.getpid())]
        bench.runner.stop(run, 10_000)
        bench.wait_for_end(run)
    assert [c for c in commands if c.endswith("headgate_runtime.tasks.main c-0 ")], commands
    assert "c-0: stopped" in caplog.text
    assert "rror" not in caplog.text, "the process did not end cleanly"


def test_what_a_task_logs_is_in_the_log_at_its_level_under_its_logger(
    bench: RunnerBench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        run = bench.start("CountingSource", {"limit": "10", "logs": "fox"})
        bench.wait_for_records(run, 10)
        bench.runner.stop(run, 10_000)
        bench.wait_for_end(run)
    found = [record for record in caplog.records if "fox" in record.getMessage()]
    texts = [(r.levelname, r.name, r.getMessage()) for r in found]
    level, name, raised = texts.pop(0)
    assert (level, name) == ("ERROR", "acme.files")
    assert raised.startswith("c-0: fox\nTraceback (most recent call last):\n")
    assert raised.endswith("ValueError: no fox\nin two lines")
    assert texts == [
        ("WARNING", "acme.files", "c-0: fox of a name that is no text: \\udcff"),
        ("INFO", "headgate.task", "c-0: fox"),
        ("INFO", "headgate.task", "c-0: fox printed"),
    ]


WORKER = """
import sys, time
from pathlib import Path
from support.task.runner_contract import RunnerBench
from headgate_runtime.tasks.select import make_runner

folder = Path(sys.argv[1])
settings = {"session.timeout.ms": "3000"}
bench = RunnerBench(lambda report: make_runner("process", settings, report), folder)
bench.start(sys.argv[2], {"pause.s": "0.01", "pid.file": str(folder / "pid")})
time.sleep(600)
"""


@pytest.fixture
def worker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path), request.param], env=environment
    )
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("worker", "how"),
    first_rows(
        2,
        [
            ("HangingSource", signal.SIGSTOP),
            ("CountingSource", signal.SIGKILL),
            ("HangingSource", signal.SIGKILL),
            ("CountingSource", signal.SIGSTOP),
        ],
    ),
    indirect=["worker"],
)
def test_a_body_ends_when_its_worker_dies_or_is_frozen(
    worker: "subprocess.Popen[bytes]", how: signal.Signals, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    deadline = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pid = int(pid_file.read_text())
    time.sleep(1.0)
    worker.send_signal(how)
    began = time.monotonic()
    while is_alive(pid):
        assert time.monotonic() - began < 15, "the body lives on without its worker"
        time.sleep(0.05)
