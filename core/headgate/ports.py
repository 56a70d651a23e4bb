"""Ports: the interfaces to the world. Each has an implementation in memory, on the embedded log and
on Kafka.

All calls block and are safe to make from several threads unless said otherwise. Each adapter
translates the exceptions of its library into those below. The contract tests in `tests/contract/`
hold every implementation to what is said here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeAlias, runtime_checkable

from headgate.connector.sink_names import SinkTopics
from headgate.herder.calls import Call, Result
from headgate.membership.messages import GroupRequest, GroupResponse
from headgate.task.messages import TaskCommand, TaskReport, TaskSpec


class TransportError(Exception):
    """The log could not be reached, or did not answer in time. Trying again may help."""


class GroupInUseError(TransportError):
    """A consumer group has members, so only they may change its offsets. Trying again helps once
    they have left."""


class RefusedError(TransportError):
    """This client is refused until its rights or its settings are changed. Trying again does not
    help."""


class TooLargeError(RefusedError):
    """A record is larger than its topic takes."""


class FencedError(Exception):
    """This writer was fenced: a later one has its transactional id or the leadership. Never try
    again."""


class MembershipEndedError(FencedError):
    """The group membership under which a producer was to be initialised has ended."""


class TransactionOverError(Exception):
    """The open transaction was or must be aborted: a record was refused, or it took too long.
    Nobody fenced the producer; initialise it again before the next. Nothing of the transaction is
    or will be visible."""

    place: int | None = None
    """Index of the refused record in the `send` that raised this; None if not known."""


class UnknownTopicError(Exception):
    """The topic does not exist."""


class RebalancedError(Exception):
    """The consumer's generation has ended: the offsets were not committed, and other members may
    have the partitions now."""


# -- internal topics --

Place: TypeAlias = tuple[int, int]
"""Partition, and offset in the partition."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    offset: int
    key: bytes | None
    value: bytes | None
    """Value of the record; None is a tombstone."""
    timestamp_ms: int = 0
    place: Place | None = None
    """Where the record is in its topic; None if that is (0, `offset`)."""

    @property
    def found_at(self) -> Place:
        return self.place or (0, self.offset)


class ConfigLog(Protocol):
    """The config topic: one partition, total order."""

    def claim(self, generation: int) -> None:
        """Become the only writer of privileged records. Of several claims of one generation the
        last counts. Source: KIP-618, leader access to the config topic.

        Raises:
            FencedError: A leader of a later generation has claimed the log. Only a log that also
                coordinates the group raises it; on Kafka the last claim counts, whatever its
                generation.
        """
        ...

    def append(self, records: Sequence[tuple[str, bytes | None]], *, privileged: bool) -> int:
        """Append all records or none; return the config offset after them: that of the last one,
        plus 1.

        Raises:
            FencedError: `privileged`, and this writer's claim was overtaken or never made.
        """
        ...

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        """Return committed records after `position` (0: from the beginning), and the position after
        them.

        A position belongs to this log and is no config offset. It may rise without a record, since
        a log may hold more than records (on Kafka, transaction markers). The call never waits; a
        record that it leaves out comes with a later call, at the latest after `end`.
        """
        ...

    def end(self) -> int:
        """Return a position; a reader that has read up to it has every record committed before this
        call. Wait until all of these can be read, so that `read` returns them without a pause.

        Raises:
            TransportError: They cannot be read in time; the message says why.
        """
        ...


class KeyedLog(Protocol):
    """A compacted topic that keeps the last value of each key: the offsets topic or the status
    topic."""

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append all records or none; they are durable when the call returns."""
        ...

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        """Return changes after `position` (0: from the beginning), and the position after them.
        Never waits.

        Only the last value of a key need be returned; tombstones go only to readers that were there
        before. Records of one key come in order. Their `offset` rises; positions are valid for this
        object only.

        Records without a key are returned too, to be reported; of many, only the last need be.
        """
        ...

    def end(self) -> int:
        """Return a position, as `ConfigLog.end` does."""
        ...

    def rest(self) -> None:
        """Release what reading holds, since nobody will read for a while. Positions become invalid,
        and the next reader begins at 0. Writing goes on."""
        ...


class Fencer(Protocol):
    def fence(self, transactional_ids: Sequence[str]) -> None:
        """Fence producers: none initialised before under these ids can commit any more. KIP-618."""
        ...


# -- the group --


class Group(Protocol):
    """Requests to the group coordinator. `send` does not wait; `receive` returns the responses."""

    def send(self, request: GroupRequest) -> None: ...

    def receive(self) -> Sequence[GroupResponse]:
        """Return the responses that have arrived, each once. Cheap when there are none: call it
        every few milliseconds while waiting.

        Raises:
            RefusedError: This worker is not allowed to be a member.
            TransportError: The coordinator cannot be reached.
        """
        ...


# -- data --

NO_CONFIG: Mapping[str, str] = MappingProxyType({})
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Names and values in order; a name may occur twice. None is no value, and differs from an empty
one."""


@dataclass(slots=True)
class ProducerRecord:
    topic: str
    partition: int | None
    """None: chosen by the key's murmur2 hash; without a key, round robin per batch."""
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(slots=True)
class ConsumerRecord:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    unreadable: str = ""
    """Why the client cannot read a part of this record (a data error); empty if it can."""


@dataclass(frozen=True, slots=True)
class RowNumbers:
    """A header with one integer for each row of a batch. In a record it is decimal text."""

    values: Sequence[int]
    """The numbers; a `range` costs nothing per row."""


@dataclass(slots=True)
class LogBatch:
    """Records that the log keeps as one item: rows of an Arrow batch, with consecutive offsets."""

    topic: str
    partition: int | None
    """None: chosen as for a `ProducerRecord`."""
    count: int
    key: bytes | None
    headers: tuple[tuple[str, bytes | RowNumbers | None], ...]
    timestamp_ms: int | None
    schema: bytes
    """Schema of the values, a STRUCT, as JSON."""
    data: bytes | memoryview
    """The values as an Arrow IPC stream."""
    offset: int = -1
    """Offset of the first row; -1 if the log has not assigned one yet."""
    skip: int = 0
    """Number of rows at the beginning that the reader must skip."""


@dataclass(slots=True)
class ValueColumn:
    """Records that differ only in their values and in headers that number them."""

    topic: str
    partition: int | None
    key: bytes | None
    values: Sequence[bytes]
    headers: tuple[tuple[str, bytes | RowNumbers | None], ...] = ()
    timestamp_ms: int | None = None

    @property
    def count(self) -> int:
        """Number of records in the column."""
        return len(self.values)


TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ack:
    """Records `first` to `last` (counted from 0 per producer, in order of `send`) are durable, or
    failed for good."""

    first: int
    last: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record was written."""

    topic: str
    partition: int
    offset: int


class Producer(Protocol):
    """A task's producer; used by one thread at a time."""

    def connect(self) -> None:
        """Connect to the log in advance, so that `init` takes less time. Fences nobody; does not
        report a log that cannot be reached, since `init` does."""
        ...

    def init(self) -> None:
        """Transactional: fence every earlier holder of the id and abort what it left open.

        Raises:
            MembershipEndedError: The membership that the producer was made for has ended; nobody
                was fenced. Only a log that also coordinates the group raises it; Kafka does not
                check.
        """
        ...

    def send(self, records: Sequence[ProducerRecord]) -> None:
        """Buffer records; with a transactional id they are part of the open transaction.

        Raises:
            UnknownTopicError: The topic does not exist. None of `records` was buffered.
            ValueError: A record names a partition that its topic does not have. None was buffered.
        """
        ...

    def send_values(self, column: ValueColumn) -> None:
        """Buffer the records of `column` as `send` does; each has its number."""
        ...

    def acks(self) -> Sequence[Ack]:
        """Not transactional: make what was sent durable as far as possible, and return how far.

        After a `TransportError` the unacknowledged records are still buffered: call again.
        """
        ...

    def commit(self, offsets: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Transactional: make records and source offsets (keys and values of the offsets topic)
        visible together.

        When it returns, nothing can undo the commit; readers may see it a moment later. After a
        `TransportError` the transaction is still open: commit the same offsets again, or abort.

        Raises:
            FencedError: Nothing of the transaction is or will be visible.
            TransactionOverError: As above; from a log that refuses records itself, or limits the
                duration of transactions.
        """
        ...

    def begin_commit(
        self, offsets: Sequence[tuple[bytes, bytes | None]]
    ) -> Callable[[], None] | None:
        """Begin a commit, for a caller that has other things to do while the log is waited for.

        Return None if it is committed already. Else return a function to be called once, by any
        thread: it waits and raises what `commit` would. Until then use the producer for nothing
        else.

        Raises:
            FencedError, TransactionOverError, TransportError: As `commit`, if known at once.
        """
        ...

    def abort(self) -> None: ...

    def keep_places(self) -> None:
        """Remember from now on where each record is written, for `places`. Call it before the first
        `send`. It costs something per record, and most tasks do not need it."""
        ...

    def places(self) -> Sequence[tuple[int, RecordMetadata]]:
        """Return the numbers (see `Ack`) and places of records that became durable since the last
        call; of a transaction's records after `commit`. Empty without `keep_places`."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class BatchProducer(Protocol):
    """What a `Producer` offers in addition if its log keeps batches."""

    def send_batch(self, batch: LogBatch) -> None:
        """Buffer the rows of `batch` as `send` does; each has its number."""
        ...


@runtime_checkable
class BatchConsumer(Protocol):
    """What a `Consumer` offers in addition if its log keeps batches."""

    def poll_batch(self, limit: int, timeout_ms: int) -> "LogBatch | Sequence[ConsumerRecord]":
        """Do as `poll`; if a batch comes next, return the rest of that batch, whatever `limit`
        is."""
        ...


class Consumer(Protocol):
    """A sink task's membership in its consumer group; used by one thread."""

    def poll(self, limit: int, timeout_ms: int) -> Sequence[ConsumerRecord]:
        """Return the next records of the partitions held, in order per partition; stay a member."""
        ...

    def assignment(self) -> frozenset[TopicPartition]: ...

    def on_rebalance(
        self,
        assigned: Callable[[Sequence[TopicPartition]], None],
        revoked: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        """Set callbacks, which `poll` and `close` call. Offsets may be committed inside `revoked`.

        In a cooperative rebalance, `assigned` is called with no partitions after `revoked`. Else
        all partitions are revoked, and those that stay are assigned anew.

        Inside `revoked`, `commit` raises `RebalancedError` if the partitions were lost: the session
        had ended.
        """
        ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises `RebalancedError` if the generation that assigned the partitions has ended."""
        ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def pause(self, partitions: Sequence[TopicPartition]) -> None: ...

    def resume(self, partitions: Sequence[TopicPartition]) -> None: ...

    def close(self) -> None: ...


class RecordLog(Protocol):
    """Data topics and consumer groups."""

    def create_topic(
        self,
        topic: str,
        partitions: int | None,
        *,
        replicas: int | None = None,
        config: Mapping[str, str] = NO_CONFIG,
    ) -> None:
        """Create a topic; do nothing if it exists, whatever its partitions. `partitions` None is
        the default: ``num.partitions`` of the brokers on Kafka, else 1.

        Args:
            replicas, config: Replication factor and settings, for a log with brokers; others ignore
                them. None: as the brokers choose.

        Raises:
            RefusedError: The name, the settings or the rights do not allow it.
        """
        ...

    def partitions(self, topic: str) -> int:
        """Return the number of partitions. Raises `UnknownTopicError`."""
        ...

    def topic_names(self) -> Sequence[str]:
        """Return the names of all topics, internal ones included; they may be out of date. On Kafka
        they are requested every ``metadata.max.age.ms`` of the consumers (5 minutes), since it
        costs the brokers something; Java's consumers do the same for ``topics.regex``."""
        ...

    def end_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        """Return the offset of each partition's next record, without topics that do not exist."""
        ...

    def start_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        """Return the first offset that each partition still has (retention removes older records),
        without topics that do not exist."""
        ...

    def read(
        self, topic: str, partition: int, start: int, end: int, limit: int
    ) -> Sequence[ConsumerRecord]:
        """Return committed records with start <= offset < end: about `limit` at most, or whole
        batches where that is cheaper.

        Raises:
            TransportError: Also if the log no longer goes back to `start`.
        """
        ...

    def committed(self, group: str) -> Mapping[TopicPartition, int]: ...

    def commit_unguarded(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set offsets without being a member, as for planned batches; None deletes an offset.

        Raises:
            GroupInUseError: The group has members, on a log whose brokers check that.
            TransportError: Some offsets were not set, as for a partition that does not exist.
        """
        ...

    def producer(
        self,
        client_id: str,
        transactional_id: str | None,
        membership: tuple[str, str, int] | None,
    ) -> Producer:
        """Return a producer. `membership`: (group, member id, generation) of the worker it
        serves."""
        ...

    def consumer(self, group: str, topics: SinkTopics, client_id: str) -> Consumer:
        """Return a consumer. If `topics` is a pattern, a topic that appears later is found after a
        while (see `topic_names`) and assigned in a rebalance. While no topic matches, the consumer
        holds no partitions, and that is no error."""
        ...


# -- calls between workers --


@dataclass(frozen=True, slots=True)
class IncomingCall:
    call_id: str
    call: Call
    hops: int
    deadline_ms_left: int
    origin: str = ""
    """Who asked, and how, such as "over REST by 127.0.0.1:4321"; empty if not known."""


class Peers(Protocol):
    """Calls between workers. The transport turns them into bytes where they leave the process.

    Within one process both sides share the objects of calls and results: nobody may change them or
    what they hold.
    """

    def call(self, url: str, call: Call, hops: int, timeout_ms: int, origin: str = "") -> Result:
        """Call another worker and wait for the result. `Failure` UNREACHABLE means that the call
        reached nobody, so that calling again does no harm.

        Args:
            origin: As in `IncomingCall`; a transport may leave it out.

        Raises:
            TransportError: No answer came in time. The worker may still have acted.
        """
        ...

    def incoming(self) -> Sequence[IncomingCall]:
        """Return the calls to this worker that have arrived, each once."""
        ...

    def answer(self, call_id: str, result: Result) -> None:
        """Answer a call, once. Does nothing if the caller has given up."""
        ...


# -- tasks --


class Runner(Protocol):
    """Runs task bodies. It is made with `report(run, TaskReport)`, which it calls from any
    thread."""

    def start(self, spec: TaskSpec) -> None:
        """Start a body and return at once; what happens is reported. `TaskEnded` and `TaskReleased`
        always come last."""
        ...

    def send(self, run: str, command: TaskCommand) -> None: ...

    def stop(self, run: str, grace_ms: int) -> None: ...

    def close(self) -> None:
        """Kill all bodies that still run."""
        ...


class LaunchRefusal(str):
    """Why a launched body has ended, where another try would end the same way."""

    __slots__ = ()


class Launcher(Protocol):
    """Launches task bodies and kills them: in a process here, or a Python worker on an executor.

    The runner around it (`headgate_runtime.tasks`) owns the lifeline, the deadlines and the
    reports, which are the same for all launchers.
    """

    def launch(self, run: str, argument: str, ended: Callable[[str | None], None]) -> None:
        """Start the body with `argument` (JSON: the address of its lifeline). Returns at once.

        `ended` is called once, from any thread, when what was launched is over: with None, or with
        the error. The body itself may live longer; the runner then waits for the lifeline or kills
        by pid.
        """
        ...

    def kill(self, run: str) -> None:
        """Kill what was launched for `run`. Does nothing if it is over."""
        ...

    def close(self) -> None: ...


Reporter: TypeAlias = Callable[[str, TaskReport], None]


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return monotonic milliseconds since this machine's boot; never wall-clock time."""
        ...
