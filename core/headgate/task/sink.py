"""Machine of a sink task that is a member of its consumer group.

    new -> starting -> polling -> delivering -> (committing) -> polling
      \\-> waiting (paused from birth)        polling <-> paused

The offsets of delivered records, as `pre_commit` returns them, are committed every
`offset.flush.interval.ms`, or when the task requests a commit. A paused task goes on polling its
consumer, which returns no records, to stay a member. Partitions that the task itself has paused
stay paused through redelivery, pauses of the task and rebalances, until the task resumes or loses
them.

A task that is told to stop commits what it delivered. During a rebalance that commit may be refused
although the task keeps the partition, as with a cooperative assignor. Then the task serves the
rebalance and commits again (settling), for `LAST_COMMIT_MS` at most. It does not open partitions
that it is assigned meanwhile.

Source: Connect's WorkerSinkTask, WorkerSinkTaskContext. Differs: the offsets of a topic that has
run dry are committed without waiting for the interval. `put` is called without records only when a
timeout that the task requested, or the interval, has passed; Connect calls it after every poll.
Connect tries the last commit of a task once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from headgate.ids import TargetState
from headgate.task import steps
from headgate.task.machine import (
    RETRY_DELAY_MS,
    Table,
    TaskMachine,
    retry_delay_ms,
    start_paused,
)
from headgate.task.messages import (
    PauseTask,
    ResumeTask,
    StopTask,
    TaskEnded,
    TaskOutcome,
    TaskRunning,
    TaskSpec,
)
from headgate.task.run import graceful_ms

CONSUME_TIMEOUT_MS = 100
DRY_COMMIT_INTERVAL_MS = 500
SETTLE_MS = 50
LAST_COMMIT_MS = 1_000
"""Time for which a stopping task tries to commit. It is a fifth of
``task.shutdown.graceful.timeout.ms`` if that is less: within the timeout the task must also leave
its group, and a task that is killed at the timeout does not leave."""


class SinkState(StrEnum):
    NEW = "new"
    WAITING = "waiting"
    STARTING = "starting"
    POLLING = "polling"
    DELIVERING = "delivering"
    COMMITTING = "committing"
    SETTLING = "settling"
    PAUSED = "paused"
    CLOSING = "closing"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class SinkSettings:
    flush_interval_ms: int = 60_000
    tolerate: bool = False
    target_state: TargetState = TargetState.STARTED
    last_commit_ms: int = LAST_COMMIT_MS

    @classmethod
    def from_spec(cls, spec: TaskSpec) -> "SinkSettings":
        """Return the settings of the task in `spec`.

        Raises:
            ValueError: A setting cannot be parsed; validation should have refused it.
        """
        tolerance = spec.connector_config.get("errors.tolerance", "none")
        return cls(
            flush_interval_ms=int(spec.worker_settings.get("offset.flush.interval.ms", "60000")),
            tolerate=tolerance.strip().lower() == "all",
            target_state=TargetState.PAUSED if start_paused(spec) else TargetState.STARTED,
            last_commit_ms=min(LAST_COMMIT_MS, graceful_ms(spec) // 5),
        )


class SinkMachine(TaskMachine):
    CLOSING = SinkState.CLOSING
    ENDED = SinkState.ENDED
    AT_REST: ClassVar[frozenset[StrEnum]] = frozenset({SinkState.NEW, SinkState.WAITING})

    def __init__(self, settings: SinkSettings) -> None:
        super().__init__(SinkState.NEW, settings.target_state, tolerate=settings.tolerate)
        self._settings = settings
        self._commit_ms = 0
        self._uncommitted = False
        """Whether records were delivered or skipped whose offsets are not committed yet."""
        self._told_paused = False
        """Whether the last state reported was `TaskPaused`. A batch may still come after it; see
        the table."""
        self._tries = 0
        self._refused = False
        """Whether `put` raised `RetriableError`, so that the same records must be given again."""
        self._assigned: frozenset[tuple[str, int]] = frozenset()
        self._held: frozenset[tuple[str, int]] = frozenset()
        """Partitions that the task has paused. A lost partition stays listed, as the task may get
        it back."""
        self._waiting_ms = 0
        """Time since which the task has waited for `put` to be called."""
        self._with_records = False
        """Whether the last `put` was called with records."""
        self._timeout_ms: int | None = None
        """Longest wait that the task requested; None if it requested none."""
        self._commit_requested = False
        self._last_commit_ms: int | None = None
        """When the last commit before the end was first tried."""

    def _on_begin(self, _now_ms: int, _given: steps.Begin) -> list[steps.BodyEffect]:
        return self._paused(SinkState.WAITING) if self._pause_wanted else self._start_up()

    def _start_up(self) -> list[steps.BodyEffect]:
        self.state = SinkState.STARTING
        return [steps.CallStart()]

    def _on_started(self, now_ms: int, _given: steps.Started) -> list[steps.BodyEffect]:
        self._commit_ms = self._waiting_ms = now_ms
        if self._ending is not None:
            return self._close(now_ms, self._ending)
        if self._pause_wanted:
            return [*self._paused(SinkState.PAUSED), steps.Consume(CONSUME_TIMEOUT_MS, paused=True)]
        return self._run(now_ms)

    def _run(self, now_ms: int) -> list[steps.BodyEffect]:
        self._told_paused = False
        self.state = SinkState.POLLING
        return [steps.Report(TaskRunning()), self._consume(now_ms)]

    def _paused(self, state: StrEnum) -> list[steps.BodyEffect]:
        self._told_paused = True
        return super()._paused(state)

    def _consume(self, now_ms: int) -> steps.BodyEffect:
        if self._timeout_ms is None:
            return steps.Consume(CONSUME_TIMEOUT_MS)
        left_ms = self._waiting_ms + self._timeout_ms - now_ms
        return steps.Consume(max(0, min(CONSUME_TIMEOUT_MS, left_ms)))

    def _on_resume_task(self, now_ms: int, given: ResumeTask) -> list[steps.BodyEffect]:
        super()._on_resume_task(now_ms, given)
        return self._start_up() if self.state is SinkState.WAITING else []

    # -- partitions come and go inside a poll of the consumer --

    def _on_partitions_assigned(
        self, _now_ms: int, given: steps.PartitionsAssigned
    ) -> list[steps.BodyEffect]:
        self._assigned |= set(given.partitions)
        # If a rebalance revokes all partitions and assigns most of them again, those that stay with
        # the task stay paused. Source: WorkerSinkTask.HandleRebalance.onPartitionsAssigned.
        hold = self._hold(self._held & self._assigned)
        opens = given.partitions and self.state is not SinkState.SETTLING
        return [*hold, steps.OpenPartitions(given.partitions)] if opens else hold

    def _on_partitions_revoked(
        self, _now_ms: int, given: steps.PartitionsRevoked
    ) -> list[steps.BodyEffect]:
        self._assigned -= set(given.partitions)
        close = steps.ClosePartitions(given.partitions)
        return [close] if self._must_drop else [steps.CommitPartitions(given.partitions), close]

    # -- what the task asks of its context --

    def _on_sink_requested(self, now_ms: int, given: steps.SinkRequested) -> list[steps.BodyEffect]:
        self._commit_requested = self._commit_requested or given.commit
        if given.timeout_ms is not None:
            self._waiting_ms, self._timeout_ms = now_ms, given.timeout_ms
        return self._hold((self._held | set(given.paused)) - set(given.resumed))

    def _hold(self, held: frozenset[tuple[str, int]]) -> list[steps.BodyEffect]:
        if held == self._held:
            return []
        self._held = held
        partitions: steps.Partitions = tuple(sorted(held))
        return [steps.HoldPartitions(partitions)]

    # -- a batch --

    def _on_consumed(self, now_ms: int, given: steps.Consumed) -> list[steps.BodyEffect]:
        if self._must_drop:
            return self._end(now_ms)
        if given.skipped:
            if not self._tolerate:
                return self._close(now_ms, TaskEnded(TaskOutcome.FAILED, given.detail))
            self._count_skipped(given.skipped, given.detail)
        passed = bool(given.skipped or given.dropped or given.moved)
        self._uncommitted = self._uncommitted or passed
        if given.records or self._is_put_due(now_ms):
            self._with_records = bool(given.records)
            return self._put(0)
        return self._after_batch(now_ms, dry=not passed)

    def _is_put_due(self, now_ms: int) -> bool:
        """Return whether `put` must be called although there are no records. Many sinks write, or
        close their files, when they find in `put` that enough time has passed."""
        if self._pause_wanted or self._ending is not None:
            return False
        limit_ms = self._settings.flush_interval_ms
        if self._timeout_ms is not None:
            limit_ms = min(limit_ms, self._timeout_ms)
        return now_ms - self._waiting_ms >= limit_ms

    def _put(self, delay_ms: int) -> list[steps.BodyEffect]:
        self.state = SinkState.DELIVERING
        self._timeout_ms = None
        return [steps.Put(delay_ms)]

    def _on_delivered(self, now_ms: int, _given: steps.Delivered) -> list[steps.BodyEffect]:
        self._tries = 0
        self._refused = False
        self._error_text = ""
        self._waiting_ms = now_ms
        self._uncommitted = self._uncommitted or self._with_records
        if self._must_drop:
            return self._end(now_ms)
        return self._after_batch(now_ms, dry=not self._with_records)

    def _on_put_retriable(self, now_ms: int, given: steps.PutRetriable) -> list[steps.BodyEffect]:
        self._error_text = given.reason
        if self._must_drop:
            return self._end(now_ms)
        if self._ending is not None:
            # Records that `put` refused stay uncommitted, and the next start delivers them again.
            return self._commit_or_end(now_ms)
        self._refused = True
        if self._uncommitted and (self._commit_requested or self._due_in_ms(now_ms) <= 0):
            return self._commit()  # commits the batches before the refused one
        return self._redeliver(now_ms)

    def _redeliver(self, now_ms: int) -> list[steps.BodyEffect]:
        delay_ms = retry_delay_ms(self._tries) if self._timeout_ms is None else self._timeout_ms
        if self._uncommitted:
            delay_ms = min(delay_ms, max(RETRY_DELAY_MS, self._due_in_ms(now_ms)))
        self._tries += 1
        return [*self._progress(now_ms), *self._put(delay_ms)]

    def _due_in_ms(self, now_ms: int) -> int:
        return self._commit_ms + self._settings.flush_interval_ms - now_ms

    def _after_batch(self, now_ms: int, *, dry: bool) -> list[steps.BodyEffect]:
        if self._ending is not None:
            return self._commit_or_end(now_ms)
        due = self._commit_requested or self._due_in_ms(now_ms) <= 0
        due = due or (dry and now_ms - self._commit_ms >= DRY_COMMIT_INTERVAL_MS)
        pausing = self._pause_wanted and self.state is not SinkState.PAUSED
        if self._uncommitted and (due or pausing):
            return self._commit()
        self._commit_requested = False
        return self._go_on(now_ms)

    def _commit(self) -> list[steps.BodyEffect]:
        self.state = SinkState.COMMITTING
        return [steps.CommitOffsets()]

    def _commit_or_end(self, now_ms: int) -> list[steps.BodyEffect]:
        if not self._uncommitted:
            return self._end(now_ms)
        if self._last_commit_ms is None:
            self._last_commit_ms = now_ms
        return self._commit()

    def _end(self, now_ms: int) -> list[steps.BodyEffect]:
        assert self._ending is not None
        return self._close(now_ms, self._ending)

    def _go_on(self, now_ms: int) -> list[steps.BodyEffect]:
        if self._refused:
            return self._redeliver(now_ms)
        if self._pause_wanted:
            told = [] if self._told_paused else self._paused(SinkState.PAUSED)
            self.state = SinkState.PAUSED
            return [*told, steps.Consume(CONSUME_TIMEOUT_MS, paused=True)]
        if self._told_paused:
            return self._run(now_ms)
        self.state = SinkState.POLLING
        return [*self._progress(now_ms), self._consume(now_ms)]

    def _on_offsets_committed(
        self, now_ms: int, given: steps.OffsetsCommitted
    ) -> list[steps.BodyEffect]:
        if not self._refused:
            self._error_text = ""
        self._count_commit(given.records)
        self._uncommitted = given.pending
        return self._after_commit(now_ms)

    def _on_offsets_not_committed(
        self, now_ms: int, given: steps.OffsetsNotCommitted
    ) -> list[steps.BodyEffect]:
        if given.again and self._may_settle(now_ms):
            self.state = SinkState.SETTLING
            return [steps.ServeGroup(SETTLE_MS)]
        self._error_text = f"Failed to commit consumer offsets: {given.reason}"
        return self._after_commit(now_ms)

    def _may_settle(self, now_ms: int) -> bool:
        if self._ending is None or self._must_drop:
            return False
        if self._last_commit_ms is None:  # the commit was under way when the task was told to stop
            self._last_commit_ms = now_ms
        return now_ms < self._last_commit_ms + self._settings.last_commit_ms

    def _on_group_served(self, now_ms: int, _given: steps.GroupServed) -> list[steps.BodyEffect]:
        return self._end(now_ms) if self._must_drop else self._commit_or_end(now_ms)

    def _after_commit(self, now_ms: int) -> list[steps.BodyEffect]:
        self._commit_ms = now_ms
        self._commit_requested = False
        return self._go_on(now_ms) if self._ending is None else self._end(now_ms)


def _table() -> Table:
    s = SinkState
    go_on = (s.POLLING, s.PAUSED, s.CLOSING)
    out: dict[tuple[StrEnum, type], tuple[StrEnum, ...]] = {
        (s.NEW, steps.Begin): (s.WAITING, s.STARTING),
        (s.WAITING, ResumeTask): (s.STARTING,),
        (s.STARTING, steps.Started): go_on,
        (s.POLLING, steps.Consumed): (*go_on, s.DELIVERING, s.COMMITTING),
        (s.DELIVERING, steps.Delivered): (*go_on, s.COMMITTING),
        (s.DELIVERING, steps.PutRetriable): (s.DELIVERING, s.COMMITTING, s.CLOSING),
        (s.COMMITTING, steps.OffsetsCommitted): (*go_on, s.DELIVERING),
        (s.COMMITTING, steps.OffsetsNotCommitted): (*go_on, s.DELIVERING, s.SETTLING),
        (s.SETTLING, steps.GroupServed): (s.COMMITTING, s.CLOSING),
        # A partition that was assigned during a paused poll may bring records with it.
        (s.PAUSED, steps.Consumed): (*go_on, s.DELIVERING, s.COMMITTING),
        (s.CLOSING, steps.Closed): (s.ENDED,),
    }
    for state in (s.POLLING, s.DELIVERING, s.PAUSED, s.SETTLING):
        out[state, steps.PartitionsAssigned] = (state,)
        out[state, steps.PartitionsRevoked] = (state,)
    for state in (s.STARTING, s.POLLING, s.DELIVERING, s.COMMITTING, s.PAUSED, s.SETTLING):
        out[state, steps.SinkRequested] = (state,)
    for state in s:
        at_rest = state in SinkMachine.AT_REST
        for command in (PauseTask, ResumeTask):
            out.setdefault((state, command), (state,))
        for ending in (StopTask, steps.LifelineLost):
            out[state, ending] = (s.CLOSING,) if at_rest else (state,)
        if state not in (s.NEW, s.CLOSING, s.ENDED):
            out[state, steps.Failed] = (s.CLOSING,)
    return MappingProxyType(out)


SINK_TRANSITIONS: Mapping[tuple[StrEnum, type], tuple[StrEnum, ...]] = _table()
SinkMachine.TABLE = SINK_TRANSITIONS
