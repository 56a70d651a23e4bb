"""What a worker and the body of one of its tasks say to each other over the lifeline.

The *body* runs the connector's task: on a Spark executor, in a process or in a thread. The *worker*
decides:
it sends `TaskCommand`s down and gets `TaskReport`s up. Every message belongs to one *run*, one
start of one task.

A source task that is exactly-once asks its worker twice while it starts (KIP-618):

    body                                worker
    FencingRequested  ----------------> asks the leader for a round of fencing, where the log has
    none behind the task's commit
                      <---------------- FencingAnswered
    initialises its producer
    ProducerInitialised --------------> reads the config topic to its end, compares the task
    reads its source offsets            generation
                      <---------------- RecheckAnswered
    calls start(), reports TaskRunning
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from headgate.ids import TargetState, TaskId

UNTIL_IDLE = "headgate.until.idle"
"""Key of `TaskSpec.worker_settings`: "true" where the worker ends once everything is read."""


class TaskKind(StrEnum):
    SOURCE = "source"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """All that a body needs to know to run its task. Travels as JSON."""

    run: str
    """Names this start of the task in the whole cluster: ``<worker id>/<count>``."""
    task: TaskId
    kind: TaskKind
    connector_config: Mapping[str, str]
    task_config: Mapping[str, str]
    target_state: TargetState
    """STARTED or PAUSED at the start; later changes are commands."""
    commit_offset: int
    """Names the task generation: config offset of the commit record the task was started for."""
    exactly_once: bool
    """Records and source offsets in one transaction. Always False for sinks."""
    transactional_id: str | None
    """``<group>-<connector>-<task>`` when exactly-once. Source: KIP-618."""
    group: str
    """Group of the workers."""
    member_id: str
    generation: int
    """Membership the task was started under. A transport that can refuses producers of one that has
    ended."""
    worker_id: str
    worker_settings: Mapping[str, str]
    """The worker's own settings: default converters, flush interval, time limits."""
    transport: Mapping[str, str]
    """How the body reaches the log, e.g. ``{"kind": "embedded", "path": ...}``."""
    hidden: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """What its configs referred to before they were resolved: reference -> value. Where the body
    says something of itself it says the reference."""
    reached: bool = False
    """An earlier run with these configs has reached its brokers: that they are away will pass."""


# -- worker to body --


@dataclass(frozen=True, slots=True)
class FencingAnswered:
    """The leader's answer, or the log's; `error` is None when older producers are shut out."""

    error: str | None = None


@dataclass(frozen=True, slots=True)
class RecheckAnswered:
    """None: go on. Else why the task must be abandoned quietly (newer task configs, or revoked)."""

    abandon: str | None = None


@dataclass(frozen=True, slots=True)
class PauseTask:
    pass


@dataclass(frozen=True, slots=True)
class ResumeTask:
    pass


@dataclass(frozen=True, slots=True)
class StopTask:
    """Finish what is open, then end. The runner kills the body when the deadline passes."""


TaskCommand: TypeAlias = FencingAnswered | RecheckAnswered | PauseTask | ResumeTask | StopTask


# -- body to worker --


@dataclass(frozen=True, slots=True)
class FencingRequested:
    pass


@dataclass(frozen=True, slots=True)
class ProducerInitialised:
    pass


@dataclass(frozen=True, slots=True)
class TaskRunning:
    """`start()` returned, or the task resumed."""


@dataclass(frozen=True, slots=True)
class TaskPaused:
    pass


@dataclass(frozen=True, slots=True)
class TopicsUsed:
    """Topics that this run has sent to (acknowledged) or read from for the first time; each is
    said once in a run. Source: KIP-558."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchDone:
    """The last batch that a task of planned batches has committed."""

    number: int
    """Counted from 1 in this run."""
    records: int
    files: int
    took_ms: int
    next_ms: int
    """How long records may wait after its begin until the next one takes them."""

    def __str__(self) -> str:
        files = f" in {self.files:,} file{'' if self.files == 1 else 's'}" if self.files else ""
        return (
            f"batch {self.number:,}: {self.records:,} records{files} took "
            f"{self.took_ms / 1000:.1f} s, next commit after {self._after_s:.1f} s"
        )

    @property
    def _after_s(self) -> float:
        """When the next may be committed, counted from this one's commit."""
        return max(self.next_ms, self.took_ms) / 1000


@dataclass(frozen=True, slots=True)
class CallFigures:
    """What the calls of one of a connector's methods have moved, and how long they took. Calls that
    moved nothing, and calls that raised, are left out."""

    method: str
    """``poll``, ``put`` or ``run_batch``."""
    calls: int
    records: int
    records_max: int
    """Most records of one call in the last one or two minutes."""
    took_us: int
    """Time of all calls."""
    took_us_max: int
    """Longest call of the last one or two minutes."""


@dataclass(frozen=True, slots=True)
class ErrorFigures:
    """Records that could not be processed in this run, and what was done about them."""

    failures: int = 0
    """Attempts at a record that failed."""
    errors: int = 0
    """Records that were given up: the tolerance let them go, or the task failed for them."""
    retries: int = 0
    """Attempts that were followed by another one."""
    logged: int = 0
    """Errors that `errors.log.enable` has written to the log."""
    letters: int = 0
    """Dead letters that were given to the log's client."""
    refused_letters: int = 0
    """Dead letters that the log has refused."""
    last_ms: int | None = None
    """When the last attempt failed, in milliseconds since 1970; None: none did."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a body has measured in this run."""

    commits: int
    """Commits that the log has confirmed, of offsets alone too."""
    commit_ms: int
    """How long the task has waited for them, tries that failed included. Sinks: `pre_commit`
    included."""
    data_bytes: int
    """Keys and values of records: of those that are committed (exactly-once), that were sent (any
    other source) or that were read (sink)."""
    lag: int | None = None
    """Sink: records of its partitions that no commit covers; None: not known."""
    batches: CallFigures | None = None
    """None: an older body does not tell, as in the fields that follow."""
    errors: ErrorFigures | None = None
    failed_commits: int = 0
    """Commits that were given up, and are tried again with what comes later."""
    read: int | None = None
    """Sink: records that were read from topics, also those that no `put` got."""
    partitions: int | None = None
    """Sink: partitions that it holds."""
    elsewhere: bool = False
    """Records are read and committed elsewhere, as by executors of Spark: of commits and bytes
    nothing is known here."""


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Sent when `idle` changes and at most every 500 ms while records flow. Counts are of this
    run."""

    records: int
    """Committed: visible to a committed reader (source), or covered by a consumer offset commit
    (sink)."""
    skipped: int
    """Records that `errors.tolerance` let go."""
    idle: bool
    """Source: a poll begun after the last commit found nothing and nothing is open. Sinks: always
    False."""
    detail: str = ""
    """The last thing worth telling: a skipped record with its file and position, what it waits
    for."""
    quarantined: tuple[str, ...] = ()
    """Source: inputs that the task has set aside and does not read, each with its reason."""
    batch: BatchDone | None = None
    """Sink of planned batches; None: it has committed none."""
    commits: int = 0
    """Commits that had records."""
    measured: Measured | None = None
    """None: nothing was measured yet."""


@dataclass(frozen=True, slots=True)
class LongCall:
    """Connector code has not returned for long; without a `method` it has now."""

    method: str = ""
    """Which one, such as ``poll``."""
    took_ms: int = 0
    """How long it has taken by now."""


class TaskOutcome(StrEnum):
    STOPPED = "stopped"
    """As asked."""
    ABANDONED = "abandoned"
    """Start-up given up: a newer task generation, or no longer ours."""
    FENCED = "fenced"
    """Another producer took over the transactional id, or the membership has ended."""
    FAILED = "failed"
    """An exception: see the trace."""
    LOST = "lost"
    """The body went without a word: killed, crashed, or silent past the lifeline's limit; then the
    runner says it. Or it gave up because its worker was silent or the log did not answer. What
    became of an open commit is unknown; the next start finds out."""


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """The last word of a run. Said by the body, or by the runner for it."""

    outcome: TaskOutcome
    reason: str = ""
    """One line."""
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class TaskClosing:
    """The task ends without having been asked to, and what it opened is being closed.

    To its runner only: connector code that hangs on its way out has the graceful deadline, as after
    a stop, and is then killed.
    """

    ending: TaskEnded
    """The last word to be."""


@dataclass(frozen=True, slots=True)
class TaskReleased:
    """Nothing of the run is alive or can act any more (the runner's word, always after
    `TaskEnded`).

    Only now may the worker give the task up to others. `abandoned` is True where the runner could
    not make
    sure: a thread that does not return.
    """

    abandoned: bool = False


TaskReport: TypeAlias = (
    FencingRequested
    | ProducerInitialised
    | TaskRunning
    | TaskPaused
    | TaskProgress
    | LongCall
    | TopicsUsed
    | TaskEnded
    | TaskReleased
)
BodyReport: TypeAlias = TaskReport | TaskClosing
"""What a body says. `TaskReleased` is its runner's word."""
