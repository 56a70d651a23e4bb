"""A task body in this process on a real log, with a lifeline that the test holds."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.connector.api import Transform
from headgate.connector.converters import TaskConverters, task_converters
from headgate.ids import TargetState, TaskId
from headgate.task.messages import (
    BodyReport,
    FencingAnswered,
    FencingRequested,
    ProducerInitialised,
    RecheckAnswered,
    StopTask,
    TaskEnded,
    TaskKind,
    TaskProgress,
    TaskSpec,
)
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_runtime.tasks.body import run_body
from headgate_runtime.tasks.lifeline import MemoryLifeline
from headgate_runtime.tasks.tools import TaskClass


def _embedded(spec: TaskSpec) -> EmbeddedTransport:
    return open_transport(spec.transport)


@dataclass
class Tools:
    task: TaskClass
    folder: Path
    chain: Sequence[Transform] = ()
    open_transport: Callable[[TaskSpec], Any] = _embedded

    def task_class(self, spec: TaskSpec) -> TaskClass:
        return self.task

    def converters(self, spec: TaskSpec) -> TaskConverters:
        return task_converters(spec.connector_config, spec.worker_settings)

    def transforms(self, spec: TaskSpec) -> Sequence[Transform]:
        return self.chain


@dataclass
class BodyBench:
    folder: Path
    task: TaskClass
    config: Mapping[str, str] = field(default_factory=dict)
    kind: TaskKind = TaskKind.SOURCE
    exactly_once: bool = True
    limit_ms: int = 60_000
    chain: Sequence[Transform] = ()
    open_transport: Callable[[TaskSpec], Any] = _embedded
    number: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    reports: list[BodyReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        once = self.exactly_once and self.kind is TaskKind.SOURCE
        spec = TaskSpec(
            run="w/1",
            task=TaskId("c", self.number),
            kind=self.kind,
            connector_config=self.config,
            task_config=self.config,
            target_state=TargetState.STARTED,
            commit_offset=3,
            exactly_once=once,
            transactional_id="g-c-0" if once else None,
            group="g",
            member_id="m",
            generation=1,
            worker_id="w",
            worker_settings={"offset.flush.interval.ms": "100", **self.settings},
            transport=transport_settings(self.folder),
        )
        self.lifeline = MemoryLifeline(spec, self.limit_ms, self._report)
        self.ended: TaskEnded | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _report(self, report: BodyReport) -> None:
        self.reports.append(report)
        if isinstance(report, FencingRequested):
            self.lifeline.deliver(FencingAnswered())
        if isinstance(report, ProducerInitialised):
            self.lifeline.deliver(RecheckAnswered())

    def _run(self) -> None:
        tools: Any = Tools(self.task, self.folder, self.chain, self.open_transport)
        self.ended = run_body(self.lifeline, tools)

    def start(self) -> "BodyBench":
        self._thread.start()
        return self

    def until(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.reports
            assert self.ended is None or condition(), self.reports
            time.sleep(0.005)

    @property
    def progress(self) -> TaskProgress:
        found = [report for report in self.reports if isinstance(report, TaskProgress)]
        return found[-1] if found else TaskProgress(0, 0, False)

    def stop(self) -> TaskEnded:
        self.lifeline.deliver(StopTask())
        return self.wait()

    def wait(self) -> TaskEnded:
        self._thread.join(20)
        assert self.ended is not None, self.reports
        assert self.reports[-1] == self.ended
        return self.ended


def visible(folder: Path, topic: str) -> list[str]:
    """Return the values of the committed records of `topic`, partition by partition."""
    transport = open_transport(transport_settings(folder))
    try:
        out: list[str] = []
        for (name, part), end in sorted(transport.record_log.end_offsets([topic]).items()):
            at = 0
            while records := transport.record_log.read(name, part, at, end, 1_000):
                out += [(record.value or b"").decode() for record in records]
                at = records[-1].offset + 1
        return out
    finally:
        transport.close()


def source_offsets(folder: Path) -> dict[bytes, bytes | None]:
    transport = open_transport(transport_settings(folder))
    try:
        records, _ = transport.offset_log.read(0)
        return {record.key or b"": record.value for record in records}
    finally:
        transport.close()
