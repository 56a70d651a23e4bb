"""The log in memory and its clock, shared by the runs of one test.

The ports are those of the simulation (`headgate.simulation`), with three additions. Time passes
only when something waits. Every call of a producer and of a consumer is a point at which the run
may be killed. For each record of a source, its source offset is known.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from headgate.connector.api import Partition
from headgate.connector.sink_names import SinkTopics
from headgate.log.partitions import check_partitions
from headgate.membership.consumer import ConsumerSettings
from headgate.ports import (
    Ack,
    Clock,
    ConsumerRecord,
    Fencer,
    KeyedLog,
    LogRecord,
    ProducerRecord,
    RecordLog,
    RecordMetadata,
    TopicPartition,
)
from headgate.simulation.memory import MemoryCluster
from headgate.simulation.memory_clients import Membership, MemoryConsumer, MemoryProducer
from headgate.simulation.memory_transport import (
    MemoryClock,
    MemoryFencer,
    MemoryGroup,
    MemoryKeyedLog,
    MemoryRecordLog,
)
from headgate.topics.offsets import OffsetView
from headgate_runtime.testing.elsewhere import LogElsewhere
from headgate_runtime.testing.points import Points

STEP_MS = 50
"""How far the clock moves when a consumer waits for records."""
SESSION_MS = 10_000
BATCH_MS = 400
"""Virtual time in ms of a batch whose size the test has set. So offsets are committed in
between."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Source partition and offset of a record."""

    partition: Partition
    offset: Partition


class World:
    """A log, its clock, and the tasks that were killed on it."""

    def __init__(self) -> None:
        self._now_ms = 1_000
        self.while_waiting: Callable[[], None] = lambda: None
        """Called when a consumer waits."""
        self.log = _Log(self)
        self.killed: list[Callable[[], None]] = []
        """The `stop` of each task that was killed. It is held back, so that nothing is closed or
        written before the test has looked."""
        self._elsewhere: LogElsewhere | None = None

    def elsewhere(self) -> Mapping[str, str]:
        """Return how other processes open a log with all the records that are in this one now."""
        if self._elsewhere is None or not self._elsewhere.can_take(self.log.topics):
            self._elsewhere = LogElsewhere()
        self._elsewhere.copy(self.log.topics)
        return self._elsewhere.transport

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, milliseconds: float) -> None:
        self._now_ms += max(0, round(milliseconds))

    def bury(self) -> None:
        """Close what killed tasks had open. Called when the test has looked at everything."""
        for stop in self.killed:
            with suppress(Exception):
                stop()
        self.killed.clear()

    def wait(self) -> None:
        """Advance the clock for a waiting consumer."""
        self.advance(STEP_MS)
        self.while_waiting()


class _Log(MemoryCluster):
    def __init__(self, world: World) -> None:
        settings = ConsumerSettings(session_timeout_ms=SESSION_MS)
        super().__init__(world.now_ms, while_waiting=world.wait, consumer=settings)
        self.origins: dict[int, Origin] = {}
        """Origins of records that are sent and not in the log yet, by the record's `id`."""
        self.from_source: list[tuple[ConsumerRecord, Origin]] = []
        """Records that source tasks wrote, in the order of the log."""

    def append(
        self, records: Sequence[tuple[TopicPartition, ProducerRecord]]
    ) -> list[RecordMetadata]:
        places = super().append(records)
        for (_, record), place in zip(records, places, strict=True):
            origin = self.origins.pop(id(record), None)
            if origin is not None:
                written = self.topics[place.topic][place.partition][place.offset]
                self.from_source.append((written, origin))
        return places


class RunTransport:
    """The ports as the task of one run uses them."""

    def __init__(
        self,
        world: World,
        points: Points,
        origins: list[Origin],
        batch: int | None = None,
        *,
        letters: str = "",
        planned: bool = False,
    ) -> None:
        """
        Args:
            origins: origins of the records that were converted and not sent yet, in order.
            batch: most records that a consumer is given at once.
            letters: topic of the task's dead letters, which no converter has made.
            planned: for a task that reads the log itself, so that its questions are points.
        """
        log = world.log
        records = _PlannedLog if planned else _RecordLog
        self.offset_log: KeyedLog = _OffsetLog(world, points)
        self.record_log: RecordLog = records(world, points, origins, batch, letters)
        self.fencer: Fencer = MemoryFencer(log)
        self.clock: Clock = MemoryClock(log)

    def offset_view(self) -> OffsetView:
        # Only workers ask for it. The port has it, but a task in a test never calls it.
        raise NotImplementedError("tasks do not ask for it")

    def close(self) -> None:
        """Do nothing: nothing is open."""


class _OffsetLog:
    """The offsets topic. Writes to it are points."""

    def __init__(self, world: World, points: Points) -> None:
        self._log = MemoryKeyedLog(world.log, world.log.offsets)
        self._points = points

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._points.pass_by("before source offsets are written")
        self._log.append(records)
        self._points.pass_by("after source offsets are written")

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        return self._log.read(position, limit)

    def end(self) -> int:
        return self._log.end()

    def rest(self) -> None:
        self._log.rest()


class _RecordLog(MemoryRecordLog):
    def __init__(
        self,
        world: World,
        points: Points,
        origins: list[Origin],
        batch: int | None,
        letters: str,
    ) -> None:
        super().__init__(world.log)
        self._world = world
        self._batch = batch
        self._points = points
        self._origins = origins
        self._letters = letters

    def producer(
        self, client_id: str, transactional_id: str | None, membership: Membership | None
    ) -> MemoryProducer:
        # There is no group of workers in which the producer could be a member.
        log, origins = self._world.log, self._origins
        return _Producer(log, client_id, transactional_id, self._points, origins, self._letters)

    def consumer(self, group: str, topics: SinkTopics, client_id: str) -> MemoryConsumer:
        return _Consumer(self._world, group, topics, client_id, self._points, self._batch)


class _PlannedLog(_RecordLog):
    """The log of a task of planned batches. Its reads, and its changes of the group's offsets, are
    points."""

    def end_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        self._points.pass_by("before the ends of the log are read")
        return super().end_offsets(topics)

    def start_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        return MemoryRecordLog(self._world.log).start_offsets(topics)

    def read(
        self, topic: str, partition: int, start: int, end: int, limit: int
    ) -> Sequence[ConsumerRecord]:
        records = super().read(topic, partition, start, end, limit)
        if records:
            self._points.pass_by("after records are read")
        return records

    def commit_unguarded(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        self._points.pass_by("before offsets are committed")
        check_partitions(offsets, MemoryRecordLog(self._world.log).end_offsets)
        self._world.log.set_committed(group, offsets)
        self._points.pass_by("after offsets are committed")


class _Producer(MemoryProducer):
    def __init__(
        self,
        log: _Log,
        client_id: str,
        transactional_id: str | None,
        points: Points,
        origins: list[Origin],
        letters: str,
    ) -> None:
        super().__init__(log, client_id, transactional_id, None)
        self._log = log
        self._points = points
        self._origins = origins
        self._letters = letters

    def send(self, records: Sequence[ProducerRecord]) -> None:
        self._points.pass_by("before records are sent")
        for record in records:
            if record.topic == self._letters:  # its headers say where it was read
                self._log.origins.pop(id(record), None)  # from a record that is gone by now
            elif self._origins:  # a sink sends nothing else
                self._log.origins[id(record)] = self._origins.pop(0)
        super().send(records)
        self._points.pass_by("after records are sent")

    def acks(self) -> Sequence[Ack]:
        self._points.pass_by("before records are acknowledged")
        acks = super().acks()
        self._points.pass_by("after records are acknowledged")
        return acks

    def commit(self, offsets: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._points.pass_by("before a transaction is committed")
        super().commit(offsets)
        self._points.pass_by("after a transaction is committed")

    def abort(self) -> None:
        if not self._points.dead:
            super().abort()

    def close(self) -> None:
        if not self._points.dead:
            super().close()


class _Consumer(MemoryConsumer):
    def __init__(
        self,
        world: World,
        group: str,
        topics: SinkTopics,
        client_id: str,
        points: Points,
        batch: int | None,
    ) -> None:
        super().__init__(world.log, MemoryGroup(world.log), group, topics, client_id)
        self._world = world
        self._points = points
        self._batch = batch

    def poll(self, limit: int, timeout_ms: int) -> Sequence[ConsumerRecord]:
        if self._points.dead:
            self._points.pass_by("before records are read")
        most = limit if self._batch is None else min(limit, self._batch)
        records = super().poll(most, timeout_ms)
        if records:
            if self._batch is not None:
                self._world.advance(BATCH_MS)
            self._points.pass_by("after records are read")
        return records

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._points.pass_by("before offsets are committed")
        super().commit(offsets)
        self._points.pass_by("after offsets are committed")

    def close(self) -> None:
        """Close, unless the process was killed: it then does not leave its group, and its session
        has to end."""
        if not self._points.dead:
            super().close()
