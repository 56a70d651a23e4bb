"""Each method of a task and of a connector that may hang is reported by its name."""

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.rest.asking import ask
from support.rest.worker import whole_worker
from support.task.body_bench import BodyBench
from support.task.sink_records import fill

from headgate.connector.api import (
    PlannedSinkTask,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceConnector,
    SourceRecord,
    SourceTask,
)
from headgate.herder import messages as m
from headgate.task.messages import LongCall, TaskKind
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.plugins.rest import RestPlugins
from headgate_runtime.tasks import long_calls
from headgate_runtime.worker.connector_calls import ConnectorCalls
from headgate_runtime.worker.connector_host import ConnectorHost

LONG_S = 0.2


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_calls, "LONG_S", LONG_S)
    monkeypatch.setattr(long_calls, "LOOK_S", 0.02)


class Slow:
    """Hangs in one of its methods until it is let go."""

    slow: str
    let_go: threading.Event

    @classmethod
    def be_slow(cls, method: str) -> None:
        if method == cls.slow:
            cls.let_go.wait(30)


class SlowSource(Slow, SourceTask):
    def start(self, config: Mapping[str, str]) -> None:
        self.first = True

    def poll(self) -> Sequence[SourceRecord]:
        if not self.first:
            self.context.wait(0.01)
            return ()
        self.first = False
        return [SourceRecord({"p": 1}, {"n": 1}, "t", "value")]

    def commit(self) -> None:
        self.be_slow("commit")

    def commit_record(self, record: SourceRecord, metadata: Any) -> None:
        self.be_slow("commit_record")

    def stop(self) -> None:
        self.be_slow("stop")


class SlowSink(Slow, SinkTask):
    def open(self, partitions: Any) -> None:
        self.be_slow("open")

    def put(self, records: Sequence[SinkRecord]) -> None: ...

    def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        self.be_slow("pre_commit")
        return offsets

    def close(self, partitions: Any) -> None:
        self.be_slow("close")

    def stop(self) -> None:
        self.be_slow("stop")


class SlowPlanned(Slow, PlannedSinkTask):
    def run_batch(self) -> int:
        return 0

    def stop(self) -> None:
        self.be_slow("stop")


class Fails(SlowSource):
    """Fails, and hangs on its way out."""

    def poll(self) -> Sequence[SourceRecord]:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("task", "method"),
    [
        (SlowSource, "commit"),
        (SlowSource, "commit_record"),
        (SlowSource, "stop"),
        (Fails, "stop"),
        (SlowSink, "open"),
        (SlowSink, "pre_commit"),
        (SlowSink, "close"),
        (SlowSink, "stop"),
        (SlowPlanned, "stop"),
    ],
)
def test_a_method_of_a_task(tmp_path: Path, task: Any, method: str) -> None:
    task.slow, task.let_go = method, threading.Event()
    fill(tmp_path, [b"a"])
    kind = TaskKind.SOURCE if issubclass(task, SourceTask) else TaskKind.SINK
    config = {"topics": "t"} if kind is TaskKind.SINK else {}
    bench = BodyBench(tmp_path, task, config, kind=kind).start()

    def told() -> list[str]:
        return [each.method for each in bench.reports if isinstance(each, LongCall)]

    if method in ("stop", "close") and task is not Fails:
        bench.until(lambda: bench.progress.measured is not None or task is SlowPlanned)
        if task is SlowSink:
            bench.until(lambda: bench.progress.records)
        stopping = threading.Thread(target=bench.stop)
        stopping.start()
    bench.until(told)
    task.let_go.set()
    bench.stop()
    assert told()[0] == method
    assert told()[-1] == "", "and that it has returned"


class SlowConnector(Slow, SourceConnector):
    TASK = SlowSource

    def start(self, config: Mapping[str, str]) -> None:
        self.be_slow("start")

    def task_configs(self, tasks_max: int) -> list[dict[str, str]]:
        self.be_slow("task_configs")
        return []

    def stop(self) -> None:
        self.be_slow("stop")

    @classmethod
    def alter_offsets(cls, config: Any, offsets: Any) -> bool:
        cls.be_slow("alter_offsets")
        return True

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        cls.be_slow("validate")
        return super().validate(config)


class SlowSinkConnector(Slow, SinkConnector):
    TASK = SlowSink

    @classmethod
    def alter_offsets(cls, config: Any, offsets: Any) -> bool:
        cls.be_slow("alter_offsets")
        return True

    @classmethod
    def reached_offsets(cls, config: Any, committed: Any) -> Any:
        cls.be_slow("reached_offsets")
        return committed


def until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("method", ["start", "task_configs", "stop"])
def test_a_method_of_a_connector(method: str) -> None:
    SlowConnector.slow, SlowConnector.let_go = method, threading.Event()
    calls, said = ConnectorCalls(), list[m.Command]()
    host = ConnectorHost(said.append, lambda *_: None, calls=calls)  # type: ignore[arg-type, return-value]
    config = {"connector.class": f"{__name__}:SlowConnector"}
    host.start(m.StartConnector("c", 1, config))
    host.generate(m.GenerateTaskConfigs(1, "c", 1, 1))
    if method == "stop":
        host.stop(m.StopConnector("c", 1, 100))
        until(lambda: any(isinstance(each, m.ConnectorStopped) for each in said))
    until(calls.read)
    (found,) = calls.read()
    assert (found.connector, found.method) == ("c", method)
    assert LONG_S * 1000 <= found.took_ms < 30_000
    SlowConnector.let_go.set()
    until(lambda: not calls.read())
    host.stop(m.StopConnector("c", 1, 100))


@pytest.mark.parametrize(
    ("connector", "method", "line"),
    [
        (SlowConnector, "alter_offsets", "PATCH"),
        (SlowSinkConnector, "alter_offsets", "PATCH"),
        (SlowSinkConnector, "reached_offsets", "GET"),
    ],
)
def test_a_method_that_is_asked_about_offsets(
    tmp_path: Path, connector: Any, method: str, line: str
) -> None:
    connector.slow, connector.let_go = method, threading.Event()
    config = {"connector.class": f"{__name__}:{connector.__name__}"}
    partition: dict[str, Any] = {"p": 1}
    if connector is SlowSinkConnector:
        config["topics"] = "t"
        partition = {"kafka_topic": "t", "kafka_partition": 0}
    body = None
    if line == "PATCH":
        body = {"offsets": [{"partition": partition, "offset": {"kafka_offset": 1}}]}
    with whole_worker(tmp_path) as (rest, worker):
        made = {"name": "c", "config": config, "initial_state": "STOPPED"}
        assert ask(rest, "POST /connectors", made)[0] == 201
        worker.transport.record_log.create_topic("t", 1)
        calls = worker._performer.connector_calls
        answers: list[int] = []
        asking = threading.Thread(
            target=lambda: answers.append(ask(rest, f"{line} /connectors/c/offsets", body)[0])
        )
        asking.start()
        try:
            until(calls.read)
            (found,) = calls.read()
            assert (found.connector, found.method) == ("c", method)
        finally:
            connector.let_go.set()
        until(lambda: not calls.read())
        asking.join(20)
    assert len(answers) == 1


def test_a_validation_that_is_asked_for_is_told_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    SlowConnector.slow, SlowConnector.let_go = "validate", threading.Event()
    config = {"connector.class": f"{__name__}:SlowConnector", "name": "c"}
    plugins = RestPlugins(WorkerSettings.parse({}))
    asking = threading.Thread(target=lambda: plugins.validate("SlowConnector", config))
    asking.start()
    try:
        until(lambda: "c: in validate for" in caplog.text)
        (found,) = plugins.calls.read()
        assert (found.connector, found.method) == ("c", "validate")
    finally:
        SlowConnector.let_go.set()
    asking.join(20)
    assert not plugins.calls.read()
