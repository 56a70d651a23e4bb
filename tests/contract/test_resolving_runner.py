"""Every runner gives tasks the values to which their configs refer, and keeps these values out of
what it reports."""

import logging
import os
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.task import runner_contract
from support.task.runner_contract import SESSION_TIMEOUT_MS, RunnerBench

from headgate.connector.config_providers import ConfigProvider, ConfigProviderError
from headgate.ports import Reporter, Runner
from headgate.task.messages import (
    PauseTask,
    TaskCommand,
    TaskEnded,
    TaskOutcome,
    TaskReleased,
    TaskReport,
    TaskSpec,
)
from headgate_runtime.config.transformer import WorkerConfigTransformer
from headgate_runtime.tasks.resolving_runner import ResolvingRunner
from headgate_runtime.tasks.select import make_runner

SETTINGS = {"session.timeout.ms": str(SESSION_TIMEOUT_MS)}
SECRET = "s3cr3t-word"
TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


class Vault(ConfigProvider):
    def __init__(self, **values: str) -> None:
        self.values = values
        self.asked = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        self.asked.set()
        assert self.gate.wait(60), "the test has forgotten the gate"
        if path:
            raise ConfigProviderError("it is sealed")
        return {key: self.values[key] for key in keys if key in self.values}


def resolving(vault: Vault, make: Callable[[Reporter], Runner], report: Reporter) -> Runner:
    transformer = WorkerConfigTransformer({"vault": vault})
    return ResolvingRunner(make(report), report, transformer)


# -- around the real ones --


@pytest.fixture(params=["thread", "process"])
def bench(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunnerBench]:
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)

    def make(report: Reporter) -> Runner:
        return make_runner(request.param, SETTINGS, report)

    vault = Vault(password=SECRET, limit="30")
    made = RunnerBench(lambda report: resolving(vault, make, report), tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("bench", ["thread"], indirect=True)
@pytest.mark.parametrize("check", runner_contract.COMMON, ids=lambda check: check.__name__)
def test_contract(check: Callable[[RunnerBench], None], bench: RunnerBench) -> None:
    check(bench)


def test_a_task_runs_with_what_its_config_refers_to(bench: RunnerBench) -> None:
    run = bench.start("CountingSource", {"limit": "${vault:limit}"})
    assert bench.wait_for_records(run, 30).records == 30


def test_a_trace_has_the_reference(
    bench: RunnerBench, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        run = bench.start("CountingSource", {"login.fails": "as ${vault:password}!"})
        ended = bench.wait_for(run, TaskEnded)
        bench.wait_for(run, TaskReleased)
    assert ended.outcome is TaskOutcome.FAILED
    assert ended.reason == "ValueError: no login as ${vault:password}!"
    assert "no login as ${vault:password}!" in (ended.trace or "")
    out, err = capfd.readouterr()
    for text in (repr(ended), caplog.text, out, err):
        assert SECRET not in text


def test_no_thread_is_left_to_resolve_on(
    bench: RunnerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner_contract.check_no_thread_is_left(bench, monkeypatch, {"a": "${vault:password}"})


# -- around one that only notes --


class Noting:
    def __init__(self, report: Reporter) -> None:
        self.report = report
        self.specs: queue.Queue[TaskSpec] = queue.Queue()
        self.done: list[object] = []

    def start(self, spec: TaskSpec) -> None:
        self.done.append("start")
        self.specs.put(spec)

    def send(self, run: str, command: TaskCommand) -> None:
        self.done.append(command)

    def stop(self, run: str, grace_ms: int) -> None:
        self.done.append("stop")

    def close(self) -> None:
        self.done.append("close")


class Notes:
    """A runner that only notes, behind one that resolves, with nothing around."""

    def __init__(self, tmp_path: Path, vault: Vault) -> None:
        self.vault = vault
        made: list[Noting] = []

        def make(report: Reporter) -> Runner:
            made.append(Noting(report))
            return made[0]

        self.bench = RunnerBench(lambda report: resolving(vault, make, report), tmp_path)
        self.inner = made[0]

    def reports(self) -> list[TaskReport]:
        return [report for _, report in list(self.bench.reports.queue)]


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notes]:
    made = Notes(tmp_path, Vault(password=SECRET))
    yield made
    made.vault.gate.set()
    made.bench.close()


def test_both_configs_are_resolved_and_what_was_found_is_to_be_hidden(notes: Notes) -> None:
    notes.bench.start("X", {"a": "${vault:password}", "b": "${vault:none}", "c": "${other:x:y}"})
    spec = notes.inner.specs.get(timeout=10)
    expected = {"a": SECRET, "b": "${vault:none}", "c": "${other:x:y}"}
    assert spec.task_config == expected
    assert spec.connector_config == {"connector.class": "support.task.connectors:X", **expected}
    assert spec.hidden == {"${vault:password}": SECRET}
    assert "hidden" not in repr(spec)


def test_a_task_that_refers_to_nothing_is_handed_on_at_once(notes: Notes) -> None:
    notes.vault.gate.clear()
    notes.bench.start("X", {"a": "plain", "b": "${other:x:y}"})
    assert notes.inner.specs.get_nowait().hidden == {}
    assert not notes.vault.asked.is_set()


def test_commands_that_come_early_follow_the_start(notes: Notes) -> None:
    notes.vault.gate.clear()
    run = notes.bench.start("X", {"a": "${vault:password}"})
    notes.bench.runner.send(run, PauseTask())
    assert notes.inner.done == []
    notes.vault.gate.set()
    notes.inner.specs.get(timeout=10)
    notes.bench.runner.send(run, PauseTask())
    assert notes.inner.done == ["start", PauseTask(), PauseTask()]


def test_a_stop_does_not_wait_for_the_provider(notes: Notes) -> None:
    notes.vault.gate.clear()
    run = notes.bench.start("X", {"a": "${vault:password}"})
    assert notes.vault.asked.wait(10)
    notes.bench.runner.stop(run, 1_000)
    assert notes.reports() == [TaskEnded(TaskOutcome.STOPPED), TaskReleased()]
    notes.vault.gate.set()
    for thread in threading.enumerate():
        if thread.name.startswith("resolve-"):
            thread.join(10)
    assert notes.inner.done == []


def test_a_provider_that_fails_fails_the_task_alone(notes: Notes) -> None:
    run = notes.bench.start("X", {"a": "${vault:sealed:password}", "b": "${vault:password}"})
    ended = notes.bench.wait_for(run, TaskEnded)
    said = "config provider vault, path 'sealed', key 'password': it is sealed"
    assert ended == TaskEnded(TaskOutcome.FAILED, said)
    notes.bench.wait_for(run, TaskReleased)
    assert notes.inner.done == []
    notes.bench.start("X", {"b": "${vault:password}"})
    assert notes.inner.specs.get(timeout=10).task_config == {"b": SECRET}


@pytest.mark.parametrize("gives", [None, {"password": 7}, {"password": SECRET.encode()}])
def test_a_provider_that_gives_no_texts_fails_the_task(notes: Notes, gives: Any) -> None:
    vault: Any = notes.vault
    vault.get = lambda _path, _keys: gives
    run = notes.bench.start("X", {"a": "${vault:password}", "b": "${other:x:y}"})
    ended = notes.bench.wait_for(run, TaskEnded)
    assert ended.outcome is TaskOutcome.FAILED
    assert ended.reason.startswith("what config provider vault gave cannot be used (TypeError)")
    notes.bench.wait_for(run, TaskReleased)
    assert notes.inner.done == []


def test_a_runner_that_cannot_start_it_fails_the_task(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_spec: TaskSpec) -> None:
        raise RuntimeError(f"can't start new thread for {SECRET}")

    monkeypatch.setattr(notes.inner, "start", none_left)
    notes.vault.gate.clear()
    run = notes.bench.start("X", {"a": "${vault:password}"})
    notes.bench.runner.send(run, PauseTask())
    notes.vault.gate.set()
    said = "it could not be launched: can't start new thread for ${vault:password}"
    assert notes.bench.wait_for_end(run) == TaskEnded(TaskOutcome.FAILED, said)
    assert notes.inner.done == []


def test_what_is_resolved_when_all_ends_is_let_go(notes: Notes) -> None:
    notes.vault.gate.clear()
    notes.bench.start("X", {"a": "${vault:password}"})
    notes.bench.runner.close()
    assert notes.reports() == [
        TaskEnded(TaskOutcome.LOST, "the runner was closed"),
        TaskReleased(),
    ]
    assert notes.inner.done == ["close"]
