"""One run of the real task body, on the log in memory, in virtual time and on the caller's thread.

The body is `headgate_runtime.tasks.body.run_body`. Around it is a worker's part: it answers the
questions of an exactly-once start-up, sends commands and receives reports.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, cast

from headgate.connector.api import (
    Converter,
    PlannedSinkTask,
    SinkRecord,
    SourceRecord,
    Transform,
    Value,
)
from headgate.connector.converters import TaskConverters, task_converters
from headgate.connector.error_handling import LETTERS_TOPIC
from headgate.connector.schema import Schema, SchemaAndValue
from headgate.connector.transforms import make_transforms
from headgate.ids import TargetState, TaskId
from headgate.task import messages as m
from headgate_runtime.tasks.body import run_body
from headgate_runtime.tasks.lifeline import BodyLifeline
from headgate_runtime.tasks.tools import TaskClass
from headgate_runtime.testing.job import NAME, NO_SETTINGS, WORKER
from headgate_runtime.testing.points import Points
from headgate_runtime.testing.task_points import with_points
from headgate_runtime.testing.world import Origin, RunTransport, World
from headgate_runtime.transports.select import TaskTransport

MEMORY: Final[Mapping[str, str]] = MappingProxyType({"kind": "memory"})
LOOKS_MAX = 50_000
TIME_MAX_MS = 3_600_000
"""Virtual time in ms after which a run is stopped. So it is after `LOOKS_MAX` looks."""
_FOREVER_MS = 1 << 60
DRY_PAUSES = 5
"""Most pauses in a row without progress, that is, nothing was read, written or committed in
between. Then there are no more. Otherwise a task that is paused after each look would never report
that it is idle."""


@dataclass(slots=True)
class Conduct:
    """What the worker of a run does, and what was reported to it."""

    done: Callable[[], bool]
    """Returns whether all is read or written. The task is then told to stop."""
    pause_at: str = ""
    """Name of the points at which the connector is paused, each time. It is resumed 1 s later."""
    stop_at: int | None = None
    """Number of the point at which the task is told to stop."""
    at_point: Callable[[int, str], None] | None = None
    """Called at each point with its number, from 1, and its name."""
    progress: m.TaskProgress = field(default_factory=lambda: m.TaskProgress(0, 0, False))
    pauses: int = 0
    was_idle: bool = False
    """Whether the task was idle when it was told to stop."""
    out_of_time: bool = False


class RunLifeline(BodyLifeline):
    """The body's end of the lifeline, and the worker behind it. Waiting makes virtual time pass."""

    def __init__(self, spec: m.TaskSpec, world: World, points: Points, conduct: Conduct) -> None:
        super().__init__(_FOREVER_MS)
        self._spec = spec
        self._world = world
        self._conduct = conduct
        self._looks = 0
        self._stop_told = False
        self._resume_ms: int | None = None
        self._points = points
        self._got_on = (0, 0)
        self._dry_pauses = 0
        self._pausing = False
        """True from a sent pause until the task reports that it runs again."""
        self._until_ms = world.now_ms() + TIME_MAX_MS
        points.on_point = self._at_point

    @property
    def spec(self) -> m.TaskSpec:
        return self._spec

    def now_ms(self) -> int:
        return self._world.now_ms()

    def wait(self, seconds: float) -> bool:
        if not self._attention.is_set():
            self._world.advance(seconds * 1000)
            self.look()
        return self._attention.is_set()

    def take(self, timeout_s: float = 0.0) -> list[m.TaskCommand]:
        self.look()
        if timeout_s > 0 and not self._commands:
            self._world.advance(timeout_s * 1000)
            self.look()
        return super().take(0.0)

    def look(self) -> None:
        """Let the worker look whether it has something to do."""
        self._looks += 1
        conduct = self._conduct
        if self._looks > LOOKS_MAX or self.now_ms() > self._until_ms:
            conduct.out_of_time = True
            self.tell_stop()
        if self._resume_ms is not None and self.now_ms() >= self._resume_ms:
            self._resume_ms = None
            self.deliver(m.ResumeTask())
        if not self._stop_told and self._resume_ms is None and conduct.done():
            self.tell_stop()

    def tell_stop(self) -> None:
        if not self._stop_told:
            self._stop_told = True
            self.deliver(m.StopTask())

    def report(self, report: m.BodyReport) -> None:
        match report:
            case m.FencingRequested():
                self.deliver(m.FencingAnswered())
            case m.ProducerInitialised():
                self.deliver(m.RecheckAnswered())
            case m.TaskProgress():
                self._conduct.progress = report
            case m.TaskRunning():
                self._pausing = False
            case m.TaskPaused():
                self._conduct.pauses += 1
                self._resume_ms = self.now_ms() + 1_000
            case _:
                pass

    def _at_point(self, number: int, name: str) -> None:
        if self._conduct.at_point is not None:
            self._conduct.at_point(number, name)
        if number == self._conduct.stop_at:
            self.tell_stop()
        if name == self._conduct.pause_at and not (self._stop_told or self._pausing):
            self._pause()

    def _pause(self) -> None:
        got_on = (len(self._world.log.from_source), self._points.got_on)
        self._dry_pauses = self._dry_pauses + 1 if got_on == self._got_on else 0
        self._got_on = got_on
        if self._dry_pauses <= DRY_PAUSES:
            self._pausing = True
            self.deliver(m.PauseTask())


class RunTools:
    """Tools that give the body its transport, task class, converters and transforms."""

    def __init__(
        self, world: World, points: Points, task: TaskClass, batch: int | None = None
    ) -> None:
        self._world = world
        self._points = points
        self._task = task
        self._batch = batch
        self._origins: list[Origin] = []
        self._current = _Remember()

    def open_transport(self, spec: m.TaskSpec) -> TaskTransport:
        planned = issubclass(self._task, PlannedSinkTask)
        letters = spec.connector_config.get(LETTERS_TOPIC, "").strip()
        given = (self._world, self._points, self._origins, self._batch)
        return RunTransport(*given, letters=letters, planned=planned)

    def task_class(self, spec: m.TaskSpec) -> TaskClass:
        return with_points(self._task, self._points, self._world)

    def converters(self, spec: m.TaskSpec) -> TaskConverters:
        made = task_converters(spec.connector_config, spec.worker_settings)
        if spec.kind is m.TaskKind.SINK:
            return made
        value = _Noting(made.value, self._current, self._origins)
        return TaskConverters(made.key, value, made.header)

    def transforms(self, spec: m.TaskSpec) -> Sequence[Transform]:
        chain = list(make_transforms(spec.connector_config))
        if spec.kind is m.TaskKind.SOURCE:
            chain.append(cast(Transform, self._current))
        return chain


class _Remember:
    """The last of the transforms. It changes nothing, and remembers where the record came from."""

    origin: Origin

    def apply_source(self, record: SourceRecord) -> SourceRecord:
        self.origin = Origin(record.source_partition, record.source_offset)
        return record

    def apply_sink(self, record: SinkRecord) -> SinkRecord:
        return record


class _Noting:
    """A value converter that notes the source offset of each record it could convert. The body
    converts the value last."""

    def __init__(self, converter: Converter, current: _Remember, origins: list[Origin]) -> None:
        self._converter = converter
        self._current = current
        self._origins = origins

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        """Do nothing: the converter is configured already."""

    def from_connect(self, topic: str, value: Value, schema: Schema | None = None) -> bytes | None:
        data = self._converter.from_connect(topic, value, schema)
        self._origins.append(self._current.origin)
        return data

    def to_connect(self, topic: str, data: bytes | None) -> Value:
        return self._converter.to_connect(topic, data)

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        return self._converter.to_connect_data(topic, data)


def task_spec(
    kind: m.TaskKind,
    config: Mapping[str, str],
    task_config: Mapping[str, str],
    number: int,
    exactly_once: bool = False,
    until_idle: bool = True,
    worker_settings: Mapping[str, str] = NO_SETTINGS,
    transport: Mapping[str, str] = MEMORY,
) -> m.TaskSpec:
    """Return the spec that a worker would give the body of task `number`.

    Args:
        worker_settings: added to those of `WORKER`, or in their place.
        transport: how processes elsewhere open the log.
    """
    until = {m.UNTIL_IDLE: "true" if until_idle else "false"}
    return m.TaskSpec(
        run=f"test-worker/{number}",
        task=TaskId(NAME, number),
        kind=kind,
        connector_config=config,
        task_config=task_config,
        target_state=TargetState.STARTED,
        commit_offset=1,
        exactly_once=exactly_once,
        transactional_id=f"test-workers-{NAME}-{number}" if exactly_once else None,
        group="test-workers",
        member_id="test-worker",
        generation=1,
        worker_id="test-worker",
        worker_settings={**WORKER, **worker_settings, **until},
        transport=transport,
    )


def run_task(
    spec: m.TaskSpec, tools: RunTools, world: World, points: Points, conduct: Conduct
) -> m.TaskEnded:
    """Run one task to its end."""
    lifeline = RunLifeline(spec, world, points, conduct)
    before = world.while_waiting
    world.while_waiting = lifeline.look
    try:
        ended = run_body(lifeline, tools)
    finally:
        world.while_waiting = before
    if points.dead:
        number = len(points.passed)
        return m.TaskEnded(m.TaskOutcome.LOST, f"killed at point {number}, {points.passed[-1]}")
    return ended
