"""Messages on the lifeline, between a worker and the body of one of its tasks.

The *body* runs the connector's task: on a Spark executor, in a process or in a thread. The *worker*
makes the decisions: it sends `TaskCommand`s and receives `TaskReport`s. Every message belongs to
one *run*, which is one start of one task.

An exactly-once source task asks its worker twice while it starts (KIP-618):

    body                                worker
    FencingRequested  ----------------> asks the leader for a fencing round, if the log has no task
                                        count record after the task's commit record
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
"""Key of `TaskSpec.worker_settings`; "true" if the worker ends once everything is read."""


class TaskKind(StrEnum):
    SOURCE = "source"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """Everything that a body needs to run its task. It travels as JSON."""

    run: str
    """Name of this start of the task, unique in the cluster: ``<worker id>/<count>``."""
    task: TaskId
    kind: TaskKind
    connector_config: Mapping[str, str]
    task_config: Mapping[str, str]
    target_state: TargetState
    """Target state at the start, STARTED or PAUSED; later changes are commands."""
    commit_offset: int
    """Config offset of the commit record that the task was started for; it names the task
    generation."""
    exactly_once: bool
    """Whether records and source offsets are committed in one transaction. Always False for
    sinks."""
    transactional_id: str | None
    """``<group>-<connector>-<task>`` if exactly-once, else None. Source: KIP-618."""
    group: str
    """Group id of the workers."""
    member_id: str
    generation: int
    """Generation of the membership that the task was started under. A transport that can do so
    refuses producers of a membership that has ended."""
    worker_id: str
    worker_settings: Mapping[str, str]
    """Settings of the worker: default converters, flush interval, time limits."""
    transport: Mapping[str, str]
    """Address of the log for the body, e.g. ``{"kind": "embedded", "path": ...}``."""
    hidden: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Resolved references of the configs: reference -> value. In everything that the body reports,
    it replaces the value by the reference."""
    reached: bool = False
    """Whether an earlier run with these configs reached its brokers. If they are away now, that is
    temporary."""


# -- worker to body --


@dataclass(frozen=True, slots=True)
class FencingAnswered:
    """Answer of the leader, or of the log. `error` is None if older producers are fenced."""

    error: str | None = None


@dataclass(frozen=True, slots=True)
class RecheckAnswered:
    """Answer of the recheck. `abandon` is None if the start may continue, else the reason to
    abandon it without a failure (newer task configs, or revoked)."""

    abandon: str | None = None


@dataclass(frozen=True, slots=True)
class PauseTask:
    pass


@dataclass(frozen=True, slots=True)
class ResumeTask:
    pass


@dataclass(frozen=True, slots=True)
class StopTask:
    """Commit what is open, then end. The runner kills the body when the deadline passes."""


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
    """The task runs: `start()` returned, or it resumed."""


@dataclass(frozen=True, slots=True)
class TaskPaused:
    pass


@dataclass(frozen=True, slots=True)
class TopicsUsed:
    """Topics that this run has sent to (acknowledged) or read from for the first time. Each is
    reported once per run. Source: KIP-558."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchDone:
    """The last batch that a task of planned batches has committed."""

    number: int
    """Number of the batch, from 1 in this run."""
    records: int
    files: int
    took_ms: int
    next_ms: int
    """Longest time from the begin of this batch until the next batch takes new records."""

    def __str__(self) -> str:
        files = f" in {self.files:,} file{'' if self.files == 1 else 's'}" if self.files else ""
        return (
            f"batch {self.number:,}: {self.records:,} records{files} took "
            f"{self.took_ms / 1000:.1f} s, next commit after {self._after_s:.1f} s"
        )

    @property
    def _after_s(self) -> float:
        """Time from this batch's commit to the next possible one."""
        return max(self.next_ms, self.took_ms) / 1000


@dataclass(frozen=True, slots=True)
class CallFigures:
    """Counts and times of the calls of one connector method. Calls that moved no records, and calls
    that raised, are left out."""

    method: str
    """Name of the method: ``poll``, ``put`` or ``run_batch``."""
    calls: int
    records: int
    records_max: int
    """Most records of one call in the last one to two minutes."""
    took_us: int
    """Total time of all calls."""
    took_us_max: int
    """Longest call of the last one to two minutes."""


@dataclass(frozen=True, slots=True)
class ErrorFigures:
    """Errors of records in this run, and how they were handled."""

    failures: int = 0
    """Failed attempts to process a record."""
    errors: int = 0
    """Records that were given up: `errors.tolerance` let them go, or the task failed because of
    them."""
    retries: int = 0
    """Failed attempts that were retried."""
    logged: int = 0
    """Errors that were logged because of `errors.log.enable`."""
    letters: int = 0
    """Dead letters that were passed to the log's client."""
    refused_letters: int = 0
    """Dead letters that the log has refused."""
    last_ms: int | None = None
    """When the last attempt failed, in milliseconds since 1970; None if none failed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of a body in this run."""

    commits: int
    """Commits that the log has confirmed, including those of offsets alone."""
    commit_ms: int
    """Time that the task has waited for commits, failed tries included. For sinks it includes
    `pre_commit`."""
    data_bytes: int
    """Bytes of keys and values: of committed records (exactly-once source), of sent records (other
    source) or of records read (sink)."""
    lag: int | None = None
    """Sink: records of its partitions that no commit covers; None if not known."""
    batches: CallFigures | None = None
    """Figures of the connector's calls. None: an older body does not report them; the same holds
    for the fields below."""
    errors: ErrorFigures | None = None
    failed_commits: int = 0
    """Commits that were given up; what they held is committed later."""
    read: int | None = None
    """Sink: records that were read from topics, including those that no `put` received."""
    partitions: int | None = None
    """Sink: number of partitions that the task holds."""
    elsewhere: bool = False
    """Whether records are read and committed elsewhere, as by Spark's executors. Commits and bytes
    are then unknown."""


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Progress of a run. It is sent when `idle` changes, and at most every 500 ms while records
    flow. All counts are of this run."""

    records: int
    """Committed records: visible to a read_committed reader (source), or covered by a consumer
    offset commit (sink)."""
    skipped: int
    """Records that `errors.tolerance` let go."""
    idle: bool
    """Source: whether a poll begun after the last commit found nothing, and nothing is open. Always
    False for sinks."""
    detail: str = ""
    """Last notable event: a skipped record with its file and position, or what the task waits
    for."""
    quarantined: tuple[str, ...] = ()
    """Source: inputs that the task has set aside and does not read, each with its reason."""
    batch: BatchDone | None = None
    """Last batch of a sink of planned batches; None if it has committed none."""
    commits: int = 0
    """Commits that had records."""
    measured: Measured | None = None
    """Measurements; None if nothing was measured yet."""


@dataclass(frozen=True, slots=True)
class LongCall:
    """A call of connector code has not returned for a long time. With an empty `method`, it has
    returned."""

    method: str = ""
    """Method that is being called, such as ``poll``."""
    took_ms: int = 0
    """Time that the call has taken so far."""


class TaskOutcome(StrEnum):
    STOPPED = "stopped"
    """The task was stopped as asked."""
    ABANDONED = "abandoned"
    """Start-up was abandoned: there is a newer task generation, or the task is no longer assigned
    to this worker."""
    FENCED = "fenced"
    """Another producer took over the transactional id, or the membership has ended."""
    FAILED = "failed"
    """An exception was raised; see the trace."""
    LOST = "lost"
    """The body ended without a report: it was killed, crashed, or silent beyond the lifeline's
    limit; the runner then reports it. Or it gave up because its worker was silent or the log did
    not answer. The fate of an open commit is unknown; the next start finds out."""


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """The run has ended. The body reports it last, or the runner in its place."""

    outcome: TaskOutcome
    reason: str = ""
    """Reason in one line."""
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class TaskClosing:
    """The task ends although nobody asked it to, and closes what it opened.

    Only its runner gets this report. The graceful deadline holds as after a stop: connector code
    that hangs while closing is killed after it.
    """

    ending: TaskEnded
    """The `TaskEnded` that will follow."""


@dataclass(frozen=True, slots=True)
class TaskReleased:
    """Nothing of the run is alive or can act any more. The runner reports it, always after
    `TaskEnded`.

    Only now may the worker give the task up to other workers. `abandoned` is True if the runner
    could not make sure, because a thread does not return.
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
"""Reports of a body. `TaskReleased` comes from its runner."""
