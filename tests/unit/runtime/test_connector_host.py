"""A connector reads the source offsets of its tasks from its worker, on a real log."""

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from headgate.connector.api import Connector, SinkConnector, SourceConnector, SourceTask
from headgate.herder.messages import (
    Command,
    ConnectorFailed,
    ConnectorStarted,
    ConnectorStopped,
    GenerateTaskConfigs,
    StartConnector,
    StopConnector,
    TaskConfigsGenerated,
)
from headgate.topics.offsets import encode_key, encode_value
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_runtime.tasks.offsets import SourceOffsets
from headgate_runtime.worker import connector_host
from headgate_runtime.worker.connector_host import ConnectorHost


class Remembering(SourceConnector):
    """A connector that divides its work by the committed offsets."""

    TASK = SourceTask
    at_start: ClassVar[object]

    def start(self, config: Mapping[str, str]) -> None:
        type(self).at_start = self.context.offset_reader.offset({"file": "a"})

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        found = self.context.offset_reader.offset({"file": "a"})
        return [{"from": str(found)}]


class Sink(SinkConnector):
    def start(self, config: Mapping[str, str]) -> None:
        self.context.offset_reader.offset({"file": "a"})

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return []


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    made = open_transport(transport_settings(tmp_path))
    yield made
    made.close()


class Bench:
    def __init__(self, transport: EmbeddedTransport) -> None:
        self.said: queue.Queue[Command] = queue.Queue()
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.host = ConnectorHost(self.said.put, self._reader)
        self._log = transport.offset_log

    def _reader(self, name: str, config: Mapping[str, str]) -> SourceOffsets:
        self.asked.append((name, config))
        return SourceOffsets(self._log, name)

    def commit(self, number: int) -> None:
        self._log.append([(encode_key("c", {"file": "a"}), encode_value({"n": number}))])

    def start(self) -> Command:
        self.host.start(StartConnector("c", 1, {"connector.class": "given", "gone": None}))
        return self.said.get(timeout=10)

    def generate(self) -> Command:
        self.host.generate(GenerateTaskConfigs(7, "c", 1, 1))
        return self.said.get(timeout=10)


@pytest.fixture
def bench(transport: EmbeddedTransport, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(connector_host, "find_connector", lambda _name: Remembering)
    return Bench(transport)


def test_a_source_connector_reads_the_offsets_of_its_tasks(bench: Bench) -> None:
    bench.commit(3)
    assert bench.start() == ConnectorStarted("c", 1)
    assert Remembering.at_start == {"n": 3}
    # Each question is answered by what is committed by then.
    bench.commit(4)
    task_class = f"{SourceTask.__module__}:{SourceTask.__qualname__}"
    for number in (4, 5):
        bench.commit(number)
        found = {"from": str({"n": number}), "task.class": task_class}
        assert bench.generate() == TaskConfigsGenerated(7, "c", (found,))
    assert bench.asked == [("c", {"connector.class": "given"})]


def test_a_sink_connector_has_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[type[Connector]] = [Sink]
    monkeypatch.setattr(connector_host, "find_connector", lambda _name: kinds[0])
    failed = bench.start()
    assert isinstance(failed, ConnectorFailed)
    assert failed.reason == "AttributeError: c is a sink connector, which has no source offsets"


@pytest.mark.parametrize("named", [None, "a:Task"])
def test_a_connector_that_names_no_task_class_has_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, named: object
) -> None:
    monkeypatch.setattr(Remembering, "TASK", named)
    bench.start()
    failed = bench.generate()
    assert isinstance(failed, TaskConfigsGenerated)
    assert f"Remembering.TASK is {named!r}; expected the class of its tasks" in failed.error


class Exiting(SourceConnector):
    """Raises what ends an interpreter, in the step that a test names."""

    TASK = SourceTask
    step: ClassVar[str]

    def start(self, config: Mapping[str, str]) -> None:
        self._exit("start")

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        self._exit("task_configs")
        return []

    def stop(self) -> None:
        self._exit("stop")

    def _exit(self, step: str) -> None:
        if step == self.step:
            raise SystemExit("no licence")


def test_a_connector_that_exits_is_heard_of(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the exit would end its thread, and nobody would be told."""
    monkeypatch.setattr(connector_host, "find_connector", lambda _name: Exiting)
    Exiting.step = "start"
    failed = bench.start()
    assert isinstance(failed, ConnectorFailed)
    assert failed.reason == "SystemExit: no licence"
    Exiting.step = "task_configs"
    assert bench.start() == ConnectorStarted("c", 1)
    none = bench.generate()
    assert isinstance(none, TaskConfigsGenerated)
    assert none.trace.endswith("SystemExit: no licence\n")
    expected = TaskConfigsGenerated(7, "c", error="SystemExit: no licence")
    assert replace(none, trace="") == expected
    Exiting.step = "stop"
    bench.host.stop(StopConnector("c", 1, 10_000))
    assert bench.said.get(timeout=5) == ConnectorStopped("c", 1, "SystemExit: no licence")


def test_a_connector_that_there_is_no_thread_for_has_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        failed = bench.start()
    assert isinstance(failed, ConnectorFailed)
    assert "can't start new thread" in failed.reason
    bench.host.stop(StopConnector("c", 1, 10_000))
    assert bench.said.get(timeout=5) == ConnectorStopped("c", 1)


class Large(SourceConnector):
    TASK = SourceTask

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{"x": "y" * 1_000}] * tasks_max


def test_task_configs_that_no_memory_holds_are_a_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a request for 100,000 tasks with 400 KB each made the worker take all memory of the
    machine."""
    monkeypatch.setattr(connector_host, "find_connector", lambda _name: Large)
    bench.start()
    bench.host.generate(GenerateTaskConfigs(7, "c", 1, 10))
    fits = bench.said.get(timeout=10)
    assert isinstance(fits, TaskConfigsGenerated) and fits.error is None
    bench.host.generate(GenerateTaskConfigs(8, "c", 1, 100_000))
    failed = bench.said.get(timeout=30)
    assert isinstance(failed, TaskConfigsGenerated) and failed.error is not None
    assert "more than 33554432 characters in its first 33521 configs" in failed.error
    assert "headgate.rest.task.configs.max.bytes" in failed.error
