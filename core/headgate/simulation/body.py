"""The body of a source task in virtual time: the real machine, a made-up source, the log's ports.

The source has `PARTITIONS` source partitions; task i of N reads those whose number modulo N is i.
Records of a partition are numbered from 0, so a reader of the output can tell what is lost, doubled
or out of order.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.offsets import decode_key, decode_value, encode_key, encode_value
from headgate.ports import FencedError, Producer, ProducerRecord
from headgate.simulation.schedule import Schedule
from headgate.task.messages import TaskCommand, TaskOutcome, TaskReport, TaskSpec
from headgate.task.source import SourceMachine, SourceSettings
from headgate.task.steps import (
    Aborted,
    AbortTransaction,
    Begin,
    BodyEffect,
    BodyInput,
    CallStart,
    Close,
    Closed,
    Committed,
    CommitTransaction,
    Failed,
    InitProducer,
    LifelineLost,
    OffsetsRead,
    Poll,
    Polled,
    ProducerReady,
    ReadOffsets,
    Report,
    SendRecords,
    Started,
)

if TYPE_CHECKING:
    from headgate.simulation.cluster import Cluster

PARTITIONS = 4
RECORDS = 320
"""Of each source partition; a source that has given them all is idle."""
RECORD_INTERVAL_MS = 60
"""Record n is there to be polled from n times this on: so records flow while there are faults."""
BATCH = 5
STEP_MS = 60
"""The longest that one effect of a body takes to begin."""


class Body:
    """One run of one task. `report` goes up the lifeline; the runner calls the rest."""

    def __init__(
        self, cluster: "Cluster", spec: TaskSpec, report: Callable[[TaskReport], None]
    ) -> None:
        self.spec = spec
        self.dead = False
        self.frozen = False
        self._orphaned = False
        self._begun = False
        self._cluster = cluster
        self._schedule: Schedule = cluster.schedule
        self._report = report
        self._machine = SourceMachine(SourceSettings.from_spec(spec))
        self._waiting: deque[Callable[[], None]] = deque()
        """What was due while the body was frozen."""
        self._producer: Producer | None = None
        self._next: dict[int, int] = {}
        self._batch: list[tuple[int, int]] = []
        self._open: list[tuple[int, int]] = []

    # -- what happens to it --

    def begin(self) -> None:
        self._give(Begin())

    def command(self, command: TaskCommand) -> None:
        self._give(command)

    def silence(self, reason: str) -> None:
        """Its end of the lifeline has been quiet for too long, or is closed."""
        self._give(LifelineLost(reason))

    def die(self) -> None:
        """SIGKILL: nothing it was about to do happens."""
        self.dead = True

    def freeze(self) -> None:
        self.frozen = True

    def orphan(self) -> None:
        """Its worker died while it was frozen: it ends when it wakes up."""
        self._orphaned = True

    def thaw(self, frozen_ms: int, silence_ms: int) -> None:
        """It goes on where it stood, which may be just before a commit. That its clock has jumped
        or that its worker is gone it notices before that, or a moment later."""
        if self.dead:
            return
        self.frozen = False
        waiting, self._waiting = self._waiting, deque()
        notices = self._notice(frozen_ms, silence_ms)
        if self._schedule.likely(0.5):
            waiting.extendleft(notices)
        else:
            waiting.extend(notices)
        for action in waiting:
            self._when_awake(action)

    def _notice(self, frozen_ms: int, silence_ms: int) -> list[Callable[[], None]]:
        if self._orphaned:
            return [self.die]
        if frozen_ms >= silence_ms:
            return [lambda: self._give(LifelineLost("silence while it was frozen"))]
        return []

    # -- the machine and its effects --

    def _when_awake(self, action: Callable[[], None]) -> None:
        if self.dead:
            return
        if self.frozen:
            self._waiting.append(action)
        else:
            action()

    def _give(self, given: BodyInput | TaskCommand) -> None:
        self._when_awake(lambda: self._step(given))

    def _step(self, given: BodyInput | TaskCommand) -> None:
        if isinstance(given, LifelineLost) and not self._begun:
            self.die()  # a body without a lifeline never begins
        if self._machine.ended or self.dead:
            return
        self._begun = True
        effects = self._machine.handle(self._schedule.now_ms, given)
        self._perform(deque(effects))

    def _perform(self, effects: "deque[BodyEffect]") -> None:
        """Each at an instant of its own; the last one's outcome is the machine's next input."""
        if not effects or self.dead:
            return
        effect = effects.popleft()

        def act() -> None:
            outcome = self._do(effect)
            if outcome is not None:
                self._schedule.soon(lambda: self._give(outcome), 10)
            if not isinstance(outcome, Failed):
                self._perform(effects)

        if isinstance(effect, Report):
            self._when_awake(act)
            return
        delay = effect.delay_ms if isinstance(effect, Poll) else 0
        self._schedule.after(
            delay + self._schedule.chance.randint(1, STEP_MS), lambda: self._when_awake(act)
        )

    def _do(self, effect: BodyEffect) -> BodyInput | None:
        try:
            return self._act(effect)
        except FencedError as error:
            return Failed(TaskOutcome.FENCED, str(error))

    def _act(self, effect: BodyEffect) -> BodyInput | None:
        match effect:
            case Report(report):
                self._report(report)
                return None
            case InitProducer():
                return self._init()
            case ReadOffsets():
                return self._read_offsets()
            case CallStart():
                return Started()
            case Poll():
                return self._poll()
            case SendRecords(first, end):
                self._send(self._batch[first:end])
                return None
            case CommitTransaction():
                return self._commit()
            case AbortTransaction():
                return Aborted()
            case Close():
                return Closed()
            case _:
                raise AssertionError(f"a source does not {effect!r}")

    def _init(self) -> BodyInput:
        spec = self.spec
        membership = (spec.group, spec.member_id, spec.generation)
        log = self._cluster.transport.record_log
        self._producer = log.producer(spec.run, spec.transactional_id, membership)
        self._producer.init()
        self._cluster.checks.producer_initialised(spec)
        return ProducerReady()

    def _read_offsets(self) -> BodyInput:
        count = int(self.spec.task_config["count"])
        index = int(self.spec.task_config["index"])
        self._next = {p: 0 for p in range(PARTITIONS) if p % count == index}
        records, _ = self._cluster.transport.offset_log.read(0, 1_000_000)
        for record in records:
            known = decode_key(record.key or b"")
            offset = decode_value(record.value)
            if known is None or offset is None or known.connector != self.spec.task.connector:
                continue
            partition = int((known.partition or {})["p"])
            if partition in self._next:
                self._next[partition] = int(offset["n"]) + 1
        return OffsetsRead()

    def _poll(self) -> BodyInput:
        self._batch = []
        for partition in sorted(self._next):
            first = self._next[partition]
            there = min(RECORDS, self._schedule.now_ms // RECORD_INTERVAL_MS)
            count = max(0, min(self._schedule.chance.randint(0, BATCH), there - first))
            self._batch += [(partition, first + i) for i in range(count)]
            self._next[partition] = first + count
        return Polled(records=len(self._batch))

    def _send(self, records: list[tuple[int, int]]) -> None:
        assert self._producer is not None
        connector = self.spec.task.connector
        self._producer.send(
            [
                ProducerRecord(connector, None, str(p).encode(), f"{connector}/{p}/{n}".encode())
                for p, n in records
            ]
        )
        self._open += records

    def _commit(self) -> BodyInput:
        if self._open:
            assert self._producer is not None
            reached = dict(self._open)
            connector = self.spec.task.connector
            self._producer.commit(
                [
                    (encode_key(connector, {"p": p}), encode_value({"n": n}))
                    for p, n in sorted(reached.items())
                ]
            )
            self._cluster.checks.data_committed(self.spec, self._open)
            self._open = []
        return Committed()
