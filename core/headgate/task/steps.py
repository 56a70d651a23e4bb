"""Inputs and effects of the task machines: what the body reports, and what it must do next.

The body performs the effects of one answer in list order and stops at the first that fails. At most
the last effect has an outcome, which is the machine's next input. Commands of the worker may come
before that input.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from headgate.task.messages import BodyReport, TaskOutcome

Partitions: TypeAlias = tuple[tuple[str, int], ...]


# -- inputs: what the body tells --


@dataclass(frozen=True, slots=True)
class Begin:
    """The body is up and has its spec."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Performing an effect raised an exception. `outcome` is the outcome for the task."""

    outcome: TaskOutcome
    reason: str
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class LifelineLost:
    """The worker has been silent for too long, or its connection is gone: nothing more may be
    committed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Started:
    """`start()` returned."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Everything that the body had opened is closed."""


@dataclass(frozen=True, slots=True)
class ProducerReady:
    pass


@dataclass(frozen=True, slots=True)
class OffsetsRead:
    pass


class Ask(StrEnum):
    """Request of a connector about its transaction (`transaction.boundary` = connector)."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Boundary:
    """Request of the connector after the first `end` records of the batch that are to be sent."""

    end: int
    ask: Ask


@dataclass(frozen=True, slots=True)
class Polled:
    """`poll()` returned, and its records went through transforms and converters. Nothing was sent
    yet.

    `boundaries` rise by `end`. Several may have the same `end` if the records between them were
    dropped. A request about the whole batch comes last.
    """

    records: int = 0
    """Records to be sent."""
    dropped: int = 0
    """Records that a transform dropped."""
    skipped: int = 0
    """Records that could not be read or converted. If that is tolerated, their source offsets are
    committed with those of the other records."""
    detail: str = ""
    """First skipped record: its input, its position, and the reason."""
    retriable: str = ""
    """Text of the `RetriableError` that `poll` or the conversion of its records raised; empty if
    none."""
    boundaries: Sequence[Boundary] = ()
    conflict: bool = False
    """Whether the connector requested both commit and abort, after the same record or for the whole
    batch."""
    awaited: bool = False
    """Whether the task has reported an input that cannot be read yet; then it is not idle."""
    offsets: int = 0
    """Source offsets without a record to send, including those of skipped records."""
    quarantined: tuple[str, ...] | None = None
    """Inputs that the task has set aside so far, each with its reason. None: unchanged."""
    letters: int = 0
    """Dead letters among `records`; each stands for a skipped record."""

    @property
    def given(self) -> int:
        """Number of records that the task returned."""
        return self.records - self.letters + self.dropped + self.skipped

    @property
    def found(self) -> bool:
        return bool(self.records or self.dropped or self.skipped or self.offsets)


@dataclass(frozen=True, slots=True)
class SendFailed:
    """Not transactional: the log finally refused `records` of the records sent."""

    records: int
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """`CommitTransaction` or `FlushOffsets` is done."""

    open_records: int = 0
    """Records that were sent but are not covered by the commit."""
    ahead: bool = False
    """Whether the task was polled meanwhile; the result waits for the next `Poll`."""


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """Not transactional: the offsets could not be written. They are kept for the next try."""

    reason: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """The transaction was aborted. The source offsets of its records were committed without the
    records."""


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class SinkRequested:
    """The task made requests to its context, in the call whose outcome follows or in `open`."""

    paused: Partitions = ()
    """Assigned partitions from which the task wants no records until it resumes them."""
    resumed: Partitions = ()
    timeout_ms: int | None = None
    """Longest wait before the next call of `put`. After a `RetriableError`, the wait before the
    same records are given again."""
    commit: bool = False


@dataclass(frozen=True, slots=True)
class Consumed:
    """The consumer was polled; `records` are ready for `put`."""

    records: int = 0
    skipped: int = 0
    detail: str = ""
    dropped: int = 0
    """Records that a transform dropped. They are not delivered, but the group's offsets must pass
    them."""
    moved: bool = False
    """Whether the task is ahead of the group's offsets, by a store of its own; the group's offsets
    must follow."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """`put()` returned."""


@dataclass(frozen=True, slots=True)
class PutRetriable:
    """`put()` raised `RetriableError`; the same records must be given again."""

    reason: str


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """The group's offsets now cover `records` more. `pending`: some delivered records are not
    covered."""

    records: int
    pending: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsNotCommitted:
    """The offsets were not committed: the generation had ended, or the log did not answer. Records
    that are not covered are delivered again."""

    reason: str
    again: bool = False
    """Whether another try may succeed soon, because the group is rebalancing."""


@dataclass(frozen=True, slots=True)
class GroupServed:
    """`ServeGroup` is done."""


@dataclass(frozen=True, slots=True)
class BatchRun:
    """`run_batch()` returned, having committed `records` records."""

    records: int
    files: int = 0
    took_ms: int = 0
    next_ms: int = 0
    """As in `BatchDone`."""


@dataclass(frozen=True, slots=True)
class BatchRetriable:
    reason: str


@dataclass(frozen=True, slots=True)
class RecordsSkipped:
    """The task of planned batches reported records that `errors.tolerance` let go."""

    records: int
    detail: str


# -- effects: what the body must do --


@dataclass(frozen=True, slots=True)
class Report:
    """Send a report to the worker."""

    report: BodyReport


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the log and take a first look at the source offsets while the worker answers. It
    fences nobody and decides nothing. No outcome."""


@dataclass(frozen=True, slots=True)
class InitProducer:
    """Make the transactional producer and fence its predecessors. Outcome: `ProducerReady`."""


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """Read the offsets topic to its end. Outcome: `OffsetsRead`."""


@dataclass(frozen=True, slots=True)
class CallStart:
    """Make the task object and call `start()`. Outcome: `Started`."""


@dataclass(frozen=True, slots=True)
class Poll:
    """Wait `delay_ms` at most, then call `poll()`; use the result that was polled ahead, if there
    is one. Outcome: `Polled`."""

    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class SendRecords:
    """Send the records from `first` up to `end` of the last poll. It has no outcome of its own, but
    `SendFailed` may follow."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """Commit the records sent with their source offsets, then call `commit_record()` for each of
    them and `commit()`. Outcome: `Committed`.

    If nothing was sent there is no transaction, but both methods are still called. While the
    log is waited for, a task that has neither method may be polled.
    """


@dataclass(frozen=True, slots=True)
class AbortTransaction:
    """Abort the transaction, commit the source offsets of its records on their own, then call
    `commit_record()` for each of them. Outcome: `Aborted`."""


@dataclass(frozen=True, slots=True)
class FlushOffsets:
    """Not transactional: write the source offsets of acknowledged records, then call `commit()`.
    Outcome: `Committed` or `CommitFailed`."""


@dataclass(frozen=True, slots=True)
class Consume:
    """Poll the consumer. With `paused`, only to stay a member, without records. Outcome:
    `Consumed`."""

    timeout_ms: int
    paused: bool = False


@dataclass(frozen=True, slots=True)
class ServeGroup:
    """Poll the consumer without records, although the task is stopping. Revoked partitions are
    committed and closed meanwhile; assigned ones are not opened. Outcome: `GroupServed`."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class HoldPartitions:
    """Pause exactly these partitions until the next `HoldPartitions`. It applies at once, since a
    poll of the consumer may be under way."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class OpenPartitions:
    """Call `open()`. Its requests become an input at once: `SinkRequested`."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class ClosePartitions:
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class CommitPartitions:
    """Commit as `CommitOffsets` does, but only these partitions, and without an outcome. A failure
    is ignored."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Put:
    """Call `put()` with the consumed records, which may be none. Outcome: `Delivered` or
    `PutRetriable`.

    With `delay_ms`, wait first; poll the consumer meanwhile with its partitions paused, to stay a
    member.
    """

    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Call `pre_commit()` and commit the offsets that it returned. Outcome: `OffsetsCommitted` or
    `OffsetsNotCommitted`."""


@dataclass(frozen=True, slots=True)
class RunBatch:
    """Wait `delay_ms` at most, then call `run_batch()`. Outcome: `BatchRun` or `BatchRetriable`."""

    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Close:
    """Call `stop()` if `start()` was called, abort what is open, and close everything. Outcome:
    `Closed`.

    Exceptions while closing are logged; closing goes on.
    """


BodyInput: TypeAlias = (
    Begin
    | Failed
    | LifelineLost
    | Started
    | Closed
    | ProducerReady
    | OffsetsRead
    | Polled
    | SendFailed
    | Committed
    | CommitFailed
    | Aborted
    | PartitionsAssigned
    | PartitionsRevoked
    | SinkRequested
    | Consumed
    | Delivered
    | PutRetriable
    | OffsetsCommitted
    | OffsetsNotCommitted
    | GroupServed
    | BatchRun
    | BatchRetriable
    | RecordsSkipped
)

BodyEffect: TypeAlias = (
    Report
    | Connect
    | InitProducer
    | ReadOffsets
    | CallStart
    | Poll
    | SendRecords
    | CommitTransaction
    | AbortTransaction
    | FlushOffsets
    | Consume
    | HoldPartitions
    | OpenPartitions
    | ClosePartitions
    | CommitPartitions
    | Put
    | ServeGroup
    | CommitOffsets
    | RunBatch
    | Close
)
