"""Between a task machine and the body that serves it: what happened, and what to do next.

The body performs the effects of one answer in list order and stops at the first that fails. At most
the last of them has an outcome, which is the machine's next input; commands of the worker may be
put before it.
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
    """An effect raised. `outcome` says what that makes of the task."""

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
    """What a connector asked of its transaction (`transaction.boundary` = connector)."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Boundary:
    """`ask` at the end of the first `end` sendable records of the batch."""

    end: int
    ask: Ask


@dataclass(frozen=True, slots=True)
class Polled:
    """`poll()` returned, and its records went through transforms and converters. Nothing was sent.

    `boundaries` rise by `end`, and several may have the same one, where what lies between them was
    dropped; the one at the end of the batch comes last.
    """

    records: int = 0
    """Records that are to be sent."""
    dropped: int = 0
    """Records that a transform dropped."""
    skipped: int = 0
    """Records that could not be read or converted. Their source offsets are passed over if
    tolerated."""
    detail: str = ""
    """First skipped record: its input, its position, the reason."""
    retriable: str = ""
    """`poll`, or what converts its records, raised `RetriableError` with this text."""
    boundaries: Sequence[Boundary] = ()
    conflict: bool = False
    """The connector asked for both, after the same record or for the whole batch."""
    awaited: bool = False
    """The task has said that something is there that cannot be read yet: it is not idle."""
    offsets: int = 0
    """Source offsets that come without a record, those of what is skipped included."""
    quarantined: tuple[str, ...] | None = None
    """What the task has set aside by now, each with its reason. None: as before."""
    letters: int = 0
    """Dead letters among `records`: each stands for one of `skipped`."""

    @property
    def given(self) -> int:
        """Records that the task has given."""
        return self.records - self.letters + self.dropped + self.skipped

    @property
    def found(self) -> bool:
        return bool(self.records or self.dropped or self.skipped or self.offsets)


@dataclass(frozen=True, slots=True)
class SendFailed:
    """Not transactional: the log refused `records` of those sent for good."""

    records: int
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """`CommitTransaction` or `FlushOffsets` is done."""

    open_records: int = 0
    """Sent but not covered by it."""
    ahead: bool = False
    """The task was polled meanwhile, and what came of it waits for the next `Poll`."""


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """Not transactional: the offsets could not be written; they are kept for the next try."""

    reason: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """The transaction is aborted, and the source offsets of what was in it are committed alone."""


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class SinkRequested:
    """The task asked its context for something in the call whose outcome follows, or in `open`."""

    paused: Partitions = ()
    """Assigned ones, of which it wants no records until it resumes them."""
    resumed: Partitions = ()
    timeout_ms: int | None = None
    """Longest wait until `put` is called next; for a `put` that raises `RetriableError`, until it
    is tried again."""
    commit: bool = False


@dataclass(frozen=True, slots=True)
class Consumed:
    """The consumer was polled; `records` are ready to be put."""

    records: int = 0
    skipped: int = 0
    detail: str = ""
    dropped: int = 0
    """Records that a transform dropped: nobody takes them, but the group's offsets must pass
    them."""
    moved: bool = False
    """The task has gone on beyond the group's offsets, by a store of its own: they must follow."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """`put()` returned."""


@dataclass(frozen=True, slots=True)
class PutRetriable:
    """`put()` raised `RetriableError`: the same records are to be given again."""

    reason: str


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """`records` more are covered by the group's offsets; `pending`: some delivered ones are not."""

    records: int
    pending: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsNotCommitted:
    """The generation had ended, or the log did not answer: what was not covered comes again."""

    reason: str
    again: bool = False
    """It may succeed in a moment: the group shares its partitions out anew."""


@dataclass(frozen=True, slots=True)
class GroupServed:
    """`ServeGroup` is over."""


@dataclass(frozen=True, slots=True)
class BatchRun:
    """`run_batch()` returned: how many records it took to their commit."""

    records: int
    files: int = 0
    took_ms: int = 0
    next_ms: int = 0
    """As of `BatchDone`."""


@dataclass(frozen=True, slots=True)
class BatchRetriable:
    reason: str


@dataclass(frozen=True, slots=True)
class RecordsSkipped:
    """The task of planned batches told of records that the tolerance let go."""

    records: int
    detail: str


# -- effects: what the body must do --


@dataclass(frozen=True, slots=True)
class Report:
    """Up the lifeline."""

    report: BodyReport


@dataclass(frozen=True, slots=True)
class Connect:
    """While the worker answers: get in touch with the log, and have a first look at the source
    offsets, as far as that shuts out nobody and decides nothing. No outcome."""


@dataclass(frozen=True, slots=True)
class InitProducer:
    """Make the transactional producer and shut out its predecessors: `ProducerReady`."""


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """Read the offsets topic to its end: `OffsetsRead`."""


@dataclass(frozen=True, slots=True)
class CallStart:
    """Make the task's object and call `start()`: `Started`."""


@dataclass(frozen=True, slots=True)
class Poll:
    """Wait `delay_ms` at most, then `poll()`: `Polled`. What was polled ahead is it, if there is
    any."""

    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class SendRecords:
    """Send the records from `first` up to `end` of what was polled last. No outcome of its own, but
    it may add `SendFailed`."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """Commit what was sent with its source offsets, then call `commit_record()` for each record of
    it and `commit()`: `Committed`.

    With nothing sent there is no transaction, and they are called all the same. While the log is
    waited for, a task that has neither of them may be polled.
    """


@dataclass(frozen=True, slots=True)
class AbortTransaction:
    """Abort, commit the source offsets of what was aborted by themselves, then call
    `commit_record()` for each record of it: `Aborted`."""


@dataclass(frozen=True, slots=True)
class FlushOffsets:
    """Not transactional: write the source offsets of acknowledged records, then call `commit()`:
    `Committed` or `CommitFailed`."""


@dataclass(frozen=True, slots=True)
class Consume:
    """Poll the consumer: `Consumed`. `paused`: only to stay a member, no records."""

    timeout_ms: int
    paused: bool = False


@dataclass(frozen=True, slots=True)
class ServeGroup:
    """Poll the consumer without records, though the task is to stop: `GroupServed`. What a
    rebalance takes is committed and closed meanwhile, what it gives is not opened."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class HoldPartitions:
    """No records of these partitions, and of no others, until it is said anew. At once: a poll of
    the consumer may be under way."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class OpenPartitions:
    """Call `open()`. What it asks for is an input at once: `SinkRequested`."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class ClosePartitions:
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class CommitPartitions:
    """As `CommitOffsets`, of these partitions only, without an outcome; a failure is passed
    over."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Put:
    """Give the consumed records, which may be none, to `put()`: `Delivered` or `PutRetriable`.

    With `delay_ms` wait first, partitions paused, polling the consumer to stay a member.
    """

    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """`pre_commit()`, then commit what it returned: `OffsetsCommitted` or `OffsetsNotCommitted`."""


@dataclass(frozen=True, slots=True)
class RunBatch:
    """Wait `delay_ms` at most, then `run_batch()`: `BatchRun` or `BatchRetriable`."""

    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Close:
    """Call `stop()` if `start()` was called, close everything; what is open is aborted: `Closed`.

    What raises on the way is logged; closing goes on.
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
