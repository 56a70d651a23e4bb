"""A sink task's body in virtual time, on a log and a group to which a seeded history gives trouble.

Machine, performer, retries and dead letter queue are the real ones. Consumer, producer and clock
are stand-ins. At each commit of offsets, every record before them must have been taken by the task,
or must be a dead letter in the log.
"""

import random
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from headgate.connector.api import DataError, RetriableError, SinkRecord, SinkTask
from headgate.connector.converters import TaskConverters, task_converters
from headgate.ids import TargetState, TaskId
from headgate.ports import Ack, ConsumerRecord, ProducerRecord, RebalancedError, TransportError
from headgate.task.messages import PauseTask, ResumeTask, StopTask, TaskKind, TaskOutcome, TaskSpec
from headgate.task.steps import Begin, Close, Closed, Failed, Report
from headgate_runtime.tasks.sink_body import SinkPerformer

PARTITIONS = (("t", 0), ("t", 1))


class Killed(BaseException):
    """Raised to kill the process: nothing of the body runs after it."""


class World:
    """What survives a kill of the body, and the random choices that make trouble."""

    def __init__(self, seed: int, count: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.trouble = True
        kinds = ["good"] * 5 + ["bad", "later", "never", "report"]
        self.log = {
            place: [f"{self.random.choice(kinds)} {place[1]} {n}" for n in range(count)]
            for place in PARTITIONS
        }
        self.committed: dict[tuple[str, int], int] = {}
        self.taken: set[str] = set()
        self.letters: list[str] = []
        self.tries: dict[str, int] = {}
        self.story: list[str] = []

    def happens(self, chance: float) -> bool:
        return self.trouble and self.random.random() < chance

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        for place, end in offsets.items():
            for value in self.log[place][:end]:
                assert self.is_kept(value), (value, offsets, self.story[-30:])
        self.committed.update(offsets)
        self.story.append(f"committed {dict(offsets)}")

    def is_kept(self, value: str) -> bool:
        """Return whether a record is where it belongs.

        A record that fails only for a while may be a dead letter, too: its time for retries may be
        over after a pause.
        """
        kind = value.partition(" ")[0]
        if kind == "later":
            return value in self.taken or value in self.letters
        return value in (self.letters if kind in ("bad", "never", "report") else self.taken)

    @property
    def done(self) -> bool:
        return all(self.committed.get(place) == len(log) for place, log in self.log.items())


class _Consumer:
    def __init__(self, world: World) -> None:
        self._world = world
        self._held: dict[tuple[str, int], int] = {}
        self._paused: set[tuple[str, int]] = set()
        self._told: tuple[Callable[[Any], None], Callable[[Any], None]] | None = None

    def on_rebalance(self, assigned: Callable[[Any], None], revoked: Callable[[Any], None]) -> None:
        self._told = assigned, revoked

    def assignment(self) -> frozenset[tuple[str, int]]:
        return frozenset(self._held)

    def poll(self, limit: int, timeout_ms: int) -> Sequence[ConsumerRecord]:
        world = self._world
        world.now_ms += max(1, timeout_ms)
        assert self._told is not None
        for place in PARTITIONS:
            if place not in self._held:
                self._held[place] = world.committed.get(place, 0)
                self._told[0]([place])
            elif world.happens(0.05):
                world.story.append(f"revoked {place[1]}")
                self._told[1]([place])
                del self._held[place]
                self._paused.discard(place)
        found: list[ConsumerRecord] = []
        for place in self._held.keys() - self._paused if limit else ():
            start = self._held[place]
            values = self._world.log[place][start : start + world.random.randint(1, 6)]
            self._held[place] += len(values)
            found += [
                ConsumerRecord(*place, start + n, None, value.encode(), (), 1)
                for n, value in enumerate(values)
            ]
        return found

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        world = self._world
        if world.happens(0.1):
            raise Killed("before the commit")
        if world.happens(0.1):
            raise world.random.choice((RebalancedError, TransportError))("no")
        world.commit(offsets)
        if world.happens(0.1):
            raise Killed("after the commit")

    def pause(self, places: Collection[tuple[str, int]]) -> None:
        self._paused |= set(places)

    def resume(self, places: Collection[tuple[str, int]]) -> None:
        self._paused -= set(places)

    def close(self) -> None:
        pass


class _Producer:
    """A producer whose letters are in the log once they are acknowledged. Before that, they are
    lost with the process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: list[ProducerRecord] = []
        self._acked = 0

    def send(self, records: Sequence[ProducerRecord]) -> None:
        self._open += records

    def acks(self) -> Sequence[Ack]:
        if self._world.happens(0.3):
            raise TransportError("brokers are away")
        self._world.letters += [(record.value or b"").decode() for record in self._open]
        first, self._acked = self._acked, self._acked + len(self._open)
        self._open.clear()
        return [Ack(first, self._acked - 1)] if self._acked > first else []

    def close(self) -> None:
        pass


class _Choosy:
    """A transform in which a record may fail for a while, or for good."""

    def __init__(self, world: World) -> None:
        self._world = world

    def apply_sink(self, record: SinkRecord) -> SinkRecord:
        kind = str(record.value).partition(" ")[0]
        tries = self._world.tries[record.value] = self._world.tries.get(record.value, 0) + 1
        if kind == "bad":
            raise DataError("bad")
        if kind == "never" or (kind == "later" and tries % 4):
            raise RetriableError("not now")
        return record


def _task_class(world: World) -> type[SinkTask]:
    class Taking(SinkTask):
        def put(self, records: Sequence[SinkRecord]) -> None:
            reporter = self.context.errant_record_reporter()
            assert reporter is not None
            if world.happens(0.1):
                raise RetriableError("full")
            for record in records:
                if str(record.value).startswith("report"):
                    reported = reporter.report(record, ValueError("refused"))
                    if world.happens(0.2):
                        reported.result()  # may say that brokers are away: the task ends as lost
                else:
                    world.taken.add(record.value)

    return Taking


class _Lifeline:
    def __init__(self, spec: TaskSpec, world: World) -> None:
        self.spec = spec
        self.stopping = False
        self._world = world

    def now_ms(self) -> int:
        return self._world.now_ms

    def check(self) -> None:
        pass

    def report(self, _report: object) -> None:
        pass

    def wait(self, _seconds: float) -> bool:
        return False


class _Tools:
    def __init__(self, world: World) -> None:
        self._world = world

    def open_transport(self, _spec: TaskSpec) -> Any:
        log = SimpleNamespace(
            create_topic=lambda *_a, **_k: None,
            producer=lambda *_a: _Producer(self._world),
            consumer=lambda *_a: _Consumer(self._world),
        )
        return SimpleNamespace(record_log=log, close=lambda: None)

    def converters(self, spec: TaskSpec) -> TaskConverters:
        return task_converters(spec.connector_config, spec.worker_settings)

    def transforms(self, _spec: TaskSpec) -> Any:
        return [_Choosy(self._world)]


def _spec() -> TaskSpec:
    config = {
        "topics": "t",
        "errors.tolerance": "all",
        "errors.retry.timeout": "3000",
        "errors.retry.delay.max.ms": "1000",
        "errors.deadletterqueue.topic.name": "letters",
    }
    return TaskSpec(
        *("w/1", TaskId("c", 0), TaskKind.SINK, config, config, TargetState.STARTED, 1, False),
        *(None, "g", "m", 1, "w", {"offset.flush.interval.ms": "400"}, {"kind": "embedded"}),
    )


def run_once(world: World, steps: int) -> TaskOutcome | None:
    """Run one start of the task, and return its outcome. None: it was killed, or did `steps`
    steps."""
    lifeline: Any = _Lifeline(_spec(), world)
    tools: Any = _Tools(world)
    performer = SinkPerformer(lifeline, tools, _task_class(world))
    machine, inputs = performer.machine, deque[Any]()
    ended: list[TaskOutcome] = []

    def handle(given: Any) -> None:
        for effect in machine.handle(world.now_ms, given):
            if isinstance(effect, Report):
                if outcome := getattr(effect.report, "outcome", None):
                    ended.append(outcome)
            elif isinstance(effect, Close):
                performer.close()
                inputs.append(Closed())
            else:
                try:
                    inputs.extend(performer.perform(effect))
                except Exception as error:
                    lost = isinstance(error, TransportError)
                    outcome = TaskOutcome.LOST if lost else TaskOutcome.FAILED
                    world.story.append(f"failed {error!r}")
                    inputs.append(Failed(outcome, repr(error)))
                    return

    def interrupt(given: Any) -> None:
        for effect in machine.handle(world.now_ms, given):
            for outcome in performer.perform(effect):
                interrupt(outcome)

    performer.bind(interrupt)
    try:
        handle(Begin())
        for _ in range(steps):
            if machine.ended or (world.done and not world.trouble):
                return ended[-1] if ended else None
            if world.happens(0.05):
                command = world.random.choice((PauseTask(), ResumeTask(), ResumeTask()))
                world.story.append(type(command).__name__)
                handle(command)
            elif world.happens(0.02):
                world.story.append("stop")
                lifeline.stopping = True
                handle(StopTask())
            elif world.happens(0.02):
                raise Killed("between two steps")
            if inputs:
                handle(inputs.popleft())
    except Killed as killed:
        world.story.append(f"killed {killed}")
        return None
    return None
