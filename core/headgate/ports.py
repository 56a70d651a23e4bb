"""Ports: what the runtime needs from the world. Each has an implementation in memory, on the
embedded log and on Kafka.

All calls block and are safe to make from several threads unless said otherwise. Adapters translate
the exceptions of their libraries into those at the top of this page, once. The contract tests in
`tests/contract/` hold every implementation to what is said here.
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
    """The log could not be reached or did not answer in time. Trying again may help."""


class GroupInUseError(TransportError):
    """A consumer group has members, and only they may change its offsets. Trying again helps once
    they have left."""


class RefusedError(TransportError):
    """This client is refused, and will be until its rights or its settings are changed: trying
    again does not help."""


class TooLargeError(RefusedError):
    """A record is larger than its topic takes."""


class FencedError(Exception):
    """This writer was shut out: a later holder has its transactional id or its leadership. Never
    try again."""


class MembershipEndedError(FencedError):
    """The group membership in whose name a producer was to be initialised has ended."""


class TransactionOverError(Exception):
    """The open transaction can only be aborted, or was, for a record was refused or it took too
    long; nobody shut its producer out. Nothing of it is or will be visible. Before the next one the
    producer is initialised again."""

    place: int | None = None
    """Place of the refused record among those of the `send` that raised this, where it is known."""


class UnknownTopicError(Exception):
    """The topic does not exist."""


class RebalancedError(Exception):
    """The consumer's generation has ended: offsets were not committed, partitions may be another's
    now."""


# -- internal topics --

Place: TypeAlias = tuple[int, int]
"""Partition, and offset in it."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    offset: int
    key: bytes | None
    value: bytes | None
    """None is a tombstone."""
    timestamp_ms: int = 0
    place: Place | None = None
    """Where it is in its topic, where `offset` is something else."""

    @property
    def found_at(self) -> Place:
        return self.place or (0, self.offset)


class ConfigLog(Protocol):
    """The config topic: one partition, total order."""

    def claim(self, generation: int) -> None:
        """Become the only writer of privileged records. Source: KIP-618, leader access to the
        config topic.

        The last of several claims of one generation counts.

        Raises:
            FencedError: a leader of a later generation has claimed it already. Only from a log that
                coordinates the group too: on Kafka the last to claim counts, whoever it is.
        """
        ...

    def append(self, records: Sequence[tuple[str, bytes | None]], *, privileged: bool) -> int:
        """Append all or none; returns the config offset after them: that of the last one, plus 1.

        Raises:
            FencedError: privileged, and this writer's claim was overtaken or never made.
        """
        ...

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        """Committed records after `position` (0: from the beginning), and the position after them.

        A position is the log's own and no config offset: there may be more in a log than records
        (on Kafka the markers of transactions), so it may rise where no record comes. Never waits:
        what the log has may come with a later call, and is there after `end`.
        """
        ...

    def end(self) -> int:
        """A position: who has read up to it was given all that was committed before the call.

        Waits until all of that can be read; then `read` gives it without a pause.

        Raises:
            TransportError: it cannot be read in time, and why.
        """
        ...


class KeyedLog(Protocol):
    """A compacted topic of latest values: the offsets topic and the status topic have this
    shape."""

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append all or none; durable when it returns."""
        ...

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        """Changes after `position` (0: from the beginning), and the position after them.

        Only the latest value of a key need be delivered; tombstones go to readers that were there
        before. Records of one key come in order of change; their `offset` rises, and positions are
        for this log, as this object shows it, only. Never waits, as with `ConfigLog`.

        Where others can write records without a key they are delivered like any, for whoever
        reports them; of a flood the last need be.
        """
        ...

    def end(self) -> int:
        """A position: who has read up to it was given all that was committed before the call, as
        with `ConfigLog`."""
        ...

    def rest(self) -> None:
        """Nobody reads for a while, and who does then begins at 0: positions given out before mean
        nothing any more. What reading holds is let go; writing goes on."""
        ...


class Fencer(Protocol):
    def fence(self, transactional_ids: Sequence[str]) -> None:
        """When it returns no producer initialised before under one of these ids can commit. Source:
        KIP-618."""
        ...


# -- the group --


class Group(Protocol):
    """Requests to the group coordinator. `send` does not wait: responses come to `receive`."""

    def send(self, request: GroupRequest) -> None: ...

    def receive(self) -> Sequence[GroupResponse]:
        """Responses that have arrived, and none twice. Cheap when there are none: call it every few
        milliseconds while waiting.

        Raises:
            RefusedError: this worker may not be a member.
            TransportError: the coordinator is out of reach.
        """
        ...


# -- data --

NO_CONFIG: Mapping[str, str] = MappingProxyType({})
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Names and values in their order; a name may come twice. None: a header without a value, which is
not the same as an empty one."""


@dataclass(slots=True)
class ProducerRecord:
    topic: str
    partition: int | None
    """None: by the key's murmur2 hash, or round robin per batch without a key."""
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
    """Why the log's client cannot read a part of this record: a data error. Empty: it can."""


@dataclass(frozen=True, slots=True)
class RowNumbers:
    """A whole number for each row of a batch, in a header: its decimal text in a record."""

    values: Sequence[int]
    """A `range` costs nothing per row."""


@dataclass(slots=True)
class LogBatch:
    """Records that the log keeps as one: rows of an Arrow batch, with offsets in a row."""

    topic: str
    partition: int | None
    """None: as of a `ProducerRecord`."""
    count: int
    key: bytes | None
    headers: tuple[tuple[str, bytes | RowNumbers | None], ...]
    timestamp_ms: int | None
    schema: bytes
    """Schema of the values, a STRUCT, as JSON."""
    data: bytes | memoryview
    """The values, an Arrow IPC stream."""
    offset: int = -1
    """Offset of the first row; -1: the log has given none."""
    skip: int = 0
    """Rows at its beginning that its reader does not want."""


@dataclass(slots=True)
class ValueColumn:
    """Records that differ by their values alone, and by headers that number them."""

    topic: str
    partition: int | None
    key: bytes | None
    values: Sequence[bytes]
    headers: tuple[tuple[str, bytes | RowNumbers | None], ...] = ()
    timestamp_ms: int | None = None

    @property
    def count(self) -> int:
        """How many records they are."""
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
    """Where a record went."""

    topic: str
    partition: int
    offset: int


class Producer(Protocol):
    """One task's way into the log; used by one thread at a time."""

    def connect(self) -> None:
        """Get in touch with the log, so that `init` takes less time. Shuts out nobody, and says
        nothing of a log that is out of reach: `init` does."""
        ...

    def init(self) -> None:
        """Transactional: shut out every earlier holder of the id and abort what it left open.

        Raises:
            MembershipEndedError: the membership the producer was made for has ended; nobody was
                shut out. Only from a log that coordinates the group too; Kafka does not look.
        """
        ...

    def send(self, records: Sequence[ProducerRecord]) -> None:
        """Buffer records; transactional ones are part of the open transaction.

        Raises:
            UnknownTopicError: nothing of `records` was buffered.
            ValueError: a record names a partition that its topic does not have; as above.
        """
        ...

    def send_values(self, column: ValueColumn) -> None:
        """`send` for its records; each is numbered as a record is."""
        ...

    def acks(self) -> Sequence[Ack]:
        """Not transactional: make what was sent durable as far as possible and say how far.

        After a `TransportError` what was sent is still buffered: call again.
        """
        ...

    def commit(self, offsets: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Transactional: records and source offsets (keys and values of the offsets topic) become
        visible together.

        Returns when nothing can undo it; readers may see it a moment later. After a
        `TransportError` the transaction is still open: call again with the same offsets, or abort.

        Raises:
            FencedError: nothing of them is or will be visible.
            TransactionOverError: as above; where the log itself refuses records, or limits the
                time a transaction may take.
        """
        ...

    def begin_commit(
        self, offsets: Sequence[tuple[bytes, bytes | None]]
    ) -> Callable[[], None] | None:
        """`commit` for a caller that has other things to do while the log is waited for.

        What is returned is to be called once, by any thread, waits, and raises what `commit` would
        have raised; until then nothing else of the producer may be called. None: it is committed.

        Raises:
            FencedError, TransactionOverError, TransportError: as `commit`, if it is known at once.
        """
        ...

    def abort(self) -> None: ...

    def keep_places(self) -> None:
        """From now on remember where each record goes, for `places`. Before the first `send`; most
        tasks do without, and it costs something for each record."""
        ...

    def places(self) -> Sequence[tuple[int, RecordMetadata]]:
        """Where records went that have become durable since the last call, by their numbers (see
        `Ack`); those of a transaction after `commit`. Empty without `keep_places`."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class BatchProducer(Protocol):
    """What a `Producer` has too whose log keeps batches."""

    def send_batch(self, batch: LogBatch) -> None:
        """`send` for its rows; each is numbered as a record is."""
        ...


@runtime_checkable
class BatchConsumer(Protocol):
    """What a `Consumer` has too whose log keeps batches."""

    def poll_batch(self, limit: int, timeout_ms: int) -> "LogBatch | Sequence[ConsumerRecord]":
        """`poll`, but where a batch comes next, the rest of that batch, whatever the limit is."""
        ...


class Consumer(Protocol):
    """One sink task's membership in its consumer group; used by one thread."""

    def poll(self, limit: int, timeout_ms: int) -> Sequence[ConsumerRecord]:
        """Next records of the partitions it holds, in order per partition; also keeps the
        membership alive."""
        ...

    def assignment(self) -> frozenset[TopicPartition]: ...

    def on_rebalance(
        self,
        assigned: Callable[[Sequence[TopicPartition]], None],
        revoked: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        """Called from within `poll` and `close`; offsets may be committed inside `revoked`.

        Where partitions go one by one (cooperative rebalancing) `assigned` is called with none
        after `revoked`: what went is another's. Else all is revoked, and what stays given anew.

        `commit` raises `RebalancedError` there when the partitions are not given back but lost: the
        session had ended.
        """
        ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises `RebalancedError` when the generation it holds its partitions under has ended."""
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
        """Does nothing when it is there, whatever its partitions. None: as many as a topic gets of
        which nothing is said, on Kafka ``num.partitions`` of the brokers, elsewhere 1.

        Args:
            replicas, config: replication factor and settings of the topic, for a log that has
                brokers; another takes no notice. None: as the brokers choose.

        Raises:
            RefusedError: not with this name, these settings or these rights.
        """
        ...

    def partitions(self, topic: str) -> int:
        """Raises `UnknownTopicError`."""
        ...

    def topic_names(self) -> Sequence[str]:
        """Names of all topics, the brokers' own included, now or a while ago: asking
        brokers costs them something, so on Kafka it is done every ``metadata.max.age.ms`` of the
        consumers (5 minutes), as Java's consumers do for ``topics.regex``."""
        ...

    def end_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        """Offset of the next record of each partition; topics that do not exist are left out."""
        ...

    def start_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        """Offset from which on each partition still has its records (retention takes the older
        ones); topics that do not exist are left out."""
        ...

    def read(
        self, topic: str, partition: int, start: int, end: int, limit: int
    ) -> Sequence[ConsumerRecord]:
        """Committed records with start <= offset < end, at most about `limit`, whole batches where
        cheaper.

        Raises:
            TransportError: also when the log does not go back to `start` any more.
        """
        ...

    def committed(self, group: str) -> Mapping[TopicPartition, int]: ...

    def commit_unguarded(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set offsets without being a member, as for planned batches; None deletes one.

        Raises:
            GroupInUseError: the group has members, where brokers look at that.
            TransportError: some were not set, such as that of a partition that is not there.
        """
        ...

    def producer(
        self,
        client_id: str,
        transactional_id: str | None,
        membership: tuple[str, str, int] | None,
    ) -> Producer:
        """`membership` is (group, member id, generation) of the worker on whose behalf it
        produces."""
        ...

    def consumer(self, group: str, topics: SinkTopics, client_id: str) -> Consumer:
        """`topics`, if it is a pattern, are those that match at a time: one that comes later is
        found after a while (see `topic_names`) and shared in a rebalance. While none matches there
        is nothing to hold, and nothing wrong."""
        ...


# -- calls between workers --


@dataclass(frozen=True, slots=True)
class IncomingCall:
    call_id: str
    call: Call
    hops: int
    deadline_ms_left: int
    origin: str = ""
    """Who asked, and how: such as "over REST by 127.0.0.1:4321"; empty: it is not known."""


class Peers(Protocol):
    """Calls from worker to worker. Whatever they leave the process by turns them into bytes.

    Calls and results are shared with the other side where that is in this process: nobody changes
    them, nor what is in them.
    """

    def call(self, url: str, call: Call, hops: int, timeout_ms: int, origin: str = "") -> Result:
        """Ask and wait. Where it is known that nothing was asked, since nobody could be reached,
        the answer is `Failure` UNREACHABLE: asking again does no harm.

        Args:
            origin: as in `IncomingCall`; a transport may leave it out.

        Raises:
            TransportError: no answer came in time. The worker may still have acted.
        """
        ...

    def incoming(self) -> Sequence[IncomingCall]:
        """Calls to this worker that nobody has taken yet; each is given out once."""
        ...

    def answer(self, call_id: str, result: Result) -> None:
        """The one answer; nothing if the caller has given up."""
        ...


# -- tasks --


class Runner(Protocol):
    """Runs task bodies. `report` was given at construction: `report(run, TaskReport)`, from any
    thread."""

    def start(self, spec: TaskSpec) -> None:
        """Returns at once; what happens is reported. Ends in `TaskEnded` then `TaskReleased`,
        always."""
        ...

    def send(self, run: str, command: TaskCommand) -> None: ...

    def stop(self, run: str, grace_ms: int) -> None: ...

    def close(self) -> None:
        """Kill whatever still runs."""
        ...


class LaunchRefusal(str):
    """Why what was launched has ended, where another try would end the same."""

    __slots__ = ()


class Launcher(Protocol):
    """Brings a task body to life somewhere and can end it: a process here, a Python worker on an
    executor.

    The runner around it (`headgate_runtime.tasks`) owns the lifeline, the deadlines and the
    reports, the same for all.
    """

    def launch(self, run: str, argument: str, ended: Callable[[str | None], None]) -> None:
        """Start the body with `argument` (JSON: where its lifeline is). Returns at once.

        `ended` is called once, from any thread, when what was launched is over: with None, or with
        what went wrong. The
        body itself may outlive it; the runner then waits for the lifeline or kills by pid.
        """
        ...

    def kill(self, run: str) -> None:
        """End it without its consent. Nothing if it is over."""
        ...

    def close(self) -> None: ...


Reporter: TypeAlias = Callable[[str, TaskReport], None]


class Clock(Protocol):
    def now_ms(self) -> int:
        """Monotonic milliseconds of this machine since its boot; never wall time."""
        ...
