"""Life of a sink task that is a member of its consumer group.

    new -> starting -> polling -> delivering -> (committing) -> polling
      \\-> waiting (paused from birth)        polling <-> paused

Offsets of what `put` took are committed every `offset.flush.interval.ms`, of what `pre_commit`
returns. A paused task goes on polling its consumer, which returns nothing, to stay a member.
Source: Connect's WorkerSinkTask. Differs: a topic that has run dry is committed without waiting for
the interval.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from headgate.ids import TargetState
from headgate.task.machine import Table, TaskMachine, retry_delay_ms, start_paused
from headgate.task.messages import (
    PauseTask,
    ResumeTask,
    StopTask,
    TaskEnded,
    TaskOutcome,
    TaskRunning,
    TaskSpec,
)
from headgate.task.steps import (
    Begin,
    BodyEffect,
    CallStart,
    Closed,
    ClosePartitions,
    CommitOffsets,
    CommitPartitions,
    Consume,
    Consumed,
    Delivered,
    Failed,
    LifelineLost,
    OffsetsCommitted,
    OffsetsNotCommitted,
    OpenPartitions,
    PartitionsAssigned,
    PartitionsRevoked,
    Put,
    PutRetriable,
    Report,
    Started,
)

CONSUME_TIMEOUT_MS = 100
DRY_COMMIT_INTERVAL_MS = 500


class SinkState(StrEnum):
    NEW = "new"
    WAITING = "waiting"
    STARTING = "starting"
    POLLING = "polling"
    DELIVERING = "delivering"
    COMMITTING = "committing"
    PAUSED = "paused"
    CLOSING = "closing"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class SinkSettings:
    flush_interval_ms: int = 60_000
    tolerate: bool = False
    target_state: TargetState = TargetState.STARTED

    @classmethod
    def from_spec(cls, spec: TaskSpec) -> "SinkSettings":
        """
        Raises:
            ValueError: a setting is not of its kind; validation should have refused it.
        """
        tolerance = spec.connector_config.get("errors.tolerance", "none")
        return cls(
            flush_interval_ms=int(spec.worker_settings.get("offset.flush.interval.ms", "60000")),
            tolerate=tolerance.strip().lower() == "all",
            target_state=TargetState.PAUSED if start_paused(spec) else TargetState.STARTED,
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
        """Records were delivered, or passed over, whose offsets are not committed."""
        self._tries = 0

    def _on_begin(self, _now_ms: int, _given: Begin) -> list[BodyEffect]:
        return self._paused(SinkState.WAITING) if self._pause_wanted else self._start_up()

    def _start_up(self) -> list[BodyEffect]:
        self.state = SinkState.STARTING
        return [CallStart()]

    def _on_started(self, now_ms: int, _given: Started) -> list[BodyEffect]:
        self._commit_ms = now_ms
        if self._ending is not None:
            return self._close(now_ms, self._ending)
        if self._pause_wanted:
            return [*self._paused(SinkState.PAUSED), Consume(CONSUME_TIMEOUT_MS, paused=True)]
        return self._run()

    def _run(self) -> list[BodyEffect]:
        self.state = SinkState.POLLING
        return [Report(TaskRunning()), Consume(CONSUME_TIMEOUT_MS)]

    def _on_resume_task(self, now_ms: int, given: ResumeTask) -> list[BodyEffect]:
        super()._on_resume_task(now_ms, given)
        return self._start_up() if self.state is SinkState.WAITING else []

    # -- partitions come and go inside a poll of the consumer --

    def _on_partitions_assigned(self, _now_ms: int, given: PartitionsAssigned) -> list[BodyEffect]:
        return [OpenPartitions(given.partitions)]

    def _on_partitions_revoked(self, _now_ms: int, given: PartitionsRevoked) -> list[BodyEffect]:
        close = ClosePartitions(given.partitions)
        return [close] if self._must_drop else [CommitPartitions(given.partitions), close]

    # -- a batch --

    def _on_consumed(self, now_ms: int, given: Consumed) -> list[BodyEffect]:
        if self._must_drop:
            return self._end(now_ms)
        if given.skipped:
            if not self._tolerate:
                return self._close(now_ms, TaskEnded(TaskOutcome.FAILED, given.detail))
            self._count_skipped(given.skipped, given.detail)
        passed = bool(given.skipped or given.dropped)
        self._uncommitted = self._uncommitted or passed
        if given.records:
            self.state = SinkState.DELIVERING
            return [Put()]
        return self._after_batch(now_ms, dry=not passed)

    def _on_delivered(self, now_ms: int, _given: Delivered) -> list[BodyEffect]:
        self._tries = 0
        self._trouble = ""
        self._uncommitted = True
        if self._must_drop:
            return self._end(now_ms)
        return self._after_batch(now_ms, dry=False)

    def _on_put_retriable(self, now_ms: int, given: PutRetriable) -> list[BodyEffect]:
        self._trouble = given.reason
        if self._must_drop:
            return self._end(now_ms)
        if self._ending is not None:
            # What put refused stays uncommitted and is delivered again by the next start.
            return self._commit_or_end(now_ms)
        delay_ms = retry_delay_ms(self._tries)
        self._tries += 1
        return [*self._progress(now_ms), Put(delay_ms)]

    def _after_batch(self, now_ms: int, *, dry: bool) -> list[BodyEffect]:
        if self._ending is not None:
            return self._commit_or_end(now_ms)
        since_ms = now_ms - self._commit_ms
        due = since_ms >= self._settings.flush_interval_ms
        due = due or (dry and since_ms >= DRY_COMMIT_INTERVAL_MS)
        pausing = self._pause_wanted and self.state is not SinkState.PAUSED
        if self._uncommitted and (due or pausing):
            return self._commit()
        return self._go_on(now_ms)

    def _commit(self) -> list[BodyEffect]:
        self.state = SinkState.COMMITTING
        return [CommitOffsets()]

    def _commit_or_end(self, now_ms: int) -> list[BodyEffect]:
        return self._commit() if self._uncommitted else self._end(now_ms)

    def _end(self, now_ms: int) -> list[BodyEffect]:
        assert self._ending is not None
        return self._close(now_ms, self._ending)

    def _go_on(self, now_ms: int) -> list[BodyEffect]:
        if self._pause_wanted:
            told = [] if self.state is SinkState.PAUSED else self._paused(SinkState.PAUSED)
            return [*told, Consume(CONSUME_TIMEOUT_MS, paused=True)]
        if self.state is SinkState.PAUSED:
            return self._run()
        self.state = SinkState.POLLING
        return [*self._progress(now_ms), Consume(CONSUME_TIMEOUT_MS)]

    def _on_offsets_committed(self, now_ms: int, given: OffsetsCommitted) -> list[BodyEffect]:
        self._trouble = ""
        self._records += given.records
        self._uncommitted = given.pending
        return self._after_commit(now_ms)

    def _on_offsets_not_committed(
        self, now_ms: int, given: OffsetsNotCommitted
    ) -> list[BodyEffect]:
        self._trouble = f"Failed to commit consumer offsets: {given.reason}"
        return self._after_commit(now_ms)

    def _after_commit(self, now_ms: int) -> list[BodyEffect]:
        self._commit_ms = now_ms
        return self._go_on(now_ms) if self._ending is None else self._end(now_ms)


def _table() -> Table:
    s = SinkState
    go_on = (s.POLLING, s.PAUSED, s.CLOSING)
    out: dict[tuple[StrEnum, type], tuple[StrEnum, ...]] = {
        (s.NEW, Begin): (s.WAITING, s.STARTING),
        (s.WAITING, ResumeTask): (s.STARTING,),
        (s.STARTING, Started): go_on,
        (s.POLLING, Consumed): (*go_on, s.DELIVERING, s.COMMITTING),
        (s.DELIVERING, Delivered): (*go_on, s.COMMITTING),
        (s.DELIVERING, PutRetriable): (s.DELIVERING, s.COMMITTING, s.CLOSING),
        (s.COMMITTING, OffsetsCommitted): go_on,
        (s.COMMITTING, OffsetsNotCommitted): go_on,
        # A partition that was assigned within a paused poll may bring records with it.
        (s.PAUSED, Consumed): (*go_on, s.DELIVERING, s.COMMITTING),
        (s.CLOSING, Closed): (s.ENDED,),
    }
    for state in (s.POLLING, s.DELIVERING, s.PAUSED):
        out[state, PartitionsAssigned] = (state,)
        out[state, PartitionsRevoked] = (state,)
    for state in s:
        at_rest = state in SinkMachine.AT_REST
        for command in (PauseTask, ResumeTask):
            out.setdefault((state, command), (state,))
        for ending in (StopTask, LifelineLost):
            out[state, ending] = (s.CLOSING,) if at_rest else (state,)
        if state not in (s.NEW, s.CLOSING, s.ENDED):
            out[state, Failed] = (s.CLOSING,)
    return MappingProxyType(out)


SINK_TRANSITIONS: Mapping[tuple[StrEnum, type], tuple[StrEnum, ...]] = _table()
SinkMachine.TABLE = SINK_TRANSITIONS
