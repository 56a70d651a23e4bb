"""Machine of a source task: exactly-once start-up, transactions, offsets, pause and stop.

    new -> fencing -> initialising -> reading -> rechecking -> starting -> polling <-> committing
      \\-> waiting (paused from birth)                                        \\-> paused

Without exactly-once, a task begins with reading, and starting follows it. Every state leads to
closing and ended. Source: KIP-618; Connect's AbstractWorkerSourceTask, ExactlyOnceWorkerSourceTask,
WorkerSourceTask.

Differs: offsets are read while the worker rechecks (Connect: after it). Older producers are fenced
by then, and the offsets read are not used before the task starts. A task may be polled while its
previous records are being committed; the new records are not sent before the commit has succeeded.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from headgate.ids import TargetState
from headgate.task import steps as st
from headgate.task.machine import (
    IDLE_POLL_DELAY_MS,
    RETRY_DELAY_MS,
    Table,
    TaskMachine,
    start_paused,
)
from headgate.task.messages import (
    FencingAnswered,
    FencingRequested,
    PauseTask,
    ProducerInitialised,
    RecheckAnswered,
    ResumeTask,
    StopTask,
    TaskEnded,
    TaskOutcome,
    TaskRunning,
    TaskSpec,
)

DRY_FLUSH_INTERVAL_MS = 500
COMMIT_AND_ABORT = "Connector requested both commit and abort of same transaction"
"""Message of Connect's WorkerTransactionContext."""
MEND_OR_TOLERATE = "; mend it, or let errors.tolerance = all pass over it"


class SourceState(StrEnum):
    NEW = "new"
    WAITING = "waiting"
    FENCING = "fencing"
    INITIALISING = "initialising"
    RECHECKING = "rechecking"
    READING = "reading"
    STARTING = "starting"
    POLLING = "polling"
    COMMITTING = "committing"
    PAUSED = "paused"
    CLOSING = "closing"
    ENDED = "ended"


class TransactionBoundary(StrEnum):
    """When a transaction ends (`transaction.boundary`). Source: KIP-618,
    SourceTask.TransactionBoundary."""

    POLL = "poll"
    INTERVAL = "interval"
    CONNECTOR = "connector"


@dataclass(frozen=True, slots=True)
class SourceSettings:
    exactly_once: bool
    boundary: TransactionBoundary = TransactionBoundary.POLL
    interval_ms: int = 60_000
    """Interval of the transactions (`interval`), or of offset flushes without exactly-once."""
    tolerate: bool = False
    """Whether `errors.tolerance` is all."""
    target_state: TargetState = TargetState.STARTED

    @classmethod
    def from_spec(cls, spec: TaskSpec) -> "SourceSettings":
        """Return the settings of the task in `spec`.

        Raises:
            ValueError: A setting cannot be parsed; validation should have refused it.
        """
        config = spec.connector_config
        flush_ms = spec.worker_settings.get("offset.flush.interval.ms", "60000")
        boundary = TransactionBoundary(config.get("transaction.boundary", "poll").strip().lower())
        own_ms = config.get("transaction.boundary.interval.ms")
        interval = boundary is TransactionBoundary.INTERVAL
        return cls(
            exactly_once=spec.exactly_once,
            boundary=boundary,
            interval_ms=int(own_ms if spec.exactly_once and interval and own_ms else flush_ms),
            tolerate=config.get("errors.tolerance", "none").strip().lower() == "all",
            target_state=TargetState.PAUSED if start_paused(spec) else TargetState.STARTED,
        )


class SourceMachine(TaskMachine):
    CLOSING = SourceState.CLOSING
    ENDED = SourceState.ENDED
    AT_REST: ClassVar[frozenset[StrEnum]] = frozenset(
        {
            SourceState.NEW,
            SourceState.WAITING,
            SourceState.FENCING,
            SourceState.RECHECKING,
            SourceState.PAUSED,
        }
    )

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(SourceState.NEW, settings.target_state, tolerate=settings.tolerate)
        self._settings = settings
        self._rechecked: RecheckAnswered | None = None
        """Answer of the worker's recheck, which may come while offsets are read."""
        self._plan: deque[st.BodyEffect] = deque()
        """Effects still to be performed for the last batch."""
        self._open = 0
        """Number of records that were sent and are not covered by a commit."""
        self._letters = 0
        """Number of dead letters among the open records; they do not count as records."""
        self._passed_open = False
        """Whether source offsets without a record (of skipped records, for example) wait for a
        commit."""
        self._commit_ms = 0
        self._dry = False
        """Whether the last poll found nothing."""
        self._delay_ms = 0
        """Delay before the next poll."""
        self._ahead = False
        """Whether the next poll's result was already polled during the commit."""
        self._retriable = ""
        """Reason why the last poll failed with a retriable error; empty if it did not."""

    # -- start-up --

    def _on_begin(self, _now_ms: int, _given: st.Begin) -> list[st.BodyEffect]:
        # A task that is paused from birth does nothing at all, since its producer would fence
        # others.
        return self._paused(SourceState.WAITING) if self._pause_wanted else self._start_up()

    def _start_up(self) -> list[st.BodyEffect]:
        if not self._settings.exactly_once:
            self.state = SourceState.READING
            return [st.ReadOffsets()]
        self.state = SourceState.FENCING
        return [st.Report(FencingRequested()), st.Connect()]

    def _on_fencing_answered(self, now_ms: int, given: FencingAnswered) -> list[st.BodyEffect]:
        if self.state is not SourceState.FENCING:
            return []  # the answer crossed the task's own end
        if given.error is not None:
            return self._close(now_ms, TaskEnded(TaskOutcome.FAILED, given.error))
        self.state = SourceState.INITIALISING
        return [st.InitProducer()]

    def _on_producer_ready(self, now_ms: int, _given: st.ProducerReady) -> list[st.BodyEffect]:
        if self._ending is not None:
            return self._close(now_ms, self._ending)
        self.state = SourceState.READING
        return [st.Report(ProducerInitialised()), st.ReadOffsets()]

    def _on_recheck_answered(self, now_ms: int, given: RecheckAnswered) -> list[st.BodyEffect]:
        self._rechecked = given
        return self._start_if_rechecked(now_ms) if self.state is SourceState.RECHECKING else []

    def _on_offsets_read(self, now_ms: int, _given: st.OffsetsRead) -> list[st.BodyEffect]:
        if self._ending is not None:
            return self._close(now_ms, self._ending)
        self.state = SourceState.RECHECKING
        return self._start_if_rechecked(now_ms)

    def _start_if_rechecked(self, now_ms: int) -> list[st.BodyEffect]:
        if self._settings.exactly_once:
            if self._rechecked is None:
                return []
            if self._rechecked.abandon is not None:
                return self._close(
                    now_ms, TaskEnded(TaskOutcome.ABANDONED, self._rechecked.abandon)
                )
        self.state = SourceState.STARTING
        return [st.CallStart()]

    def _on_started(self, now_ms: int, _given: st.Started) -> list[st.BodyEffect]:
        self._commit_ms = now_ms
        if self._ending is not None:
            return self._close(now_ms, self._ending)
        if self._pause_wanted:
            return self._paused(SourceState.PAUSED)
        return self._run()

    def _run(self) -> list[st.BodyEffect]:
        self.state = SourceState.POLLING
        return [st.Report(TaskRunning()), st.Poll()]

    # -- a batch --

    def _on_polled(self, now_ms: int, given: st.Polled) -> list[st.BodyEffect]:
        if self._must_drop:
            return self._rest_ended(now_ms)
        if given.skipped:
            if not self._tolerate:
                return self._fail(now_ms, given.detail + MEND_OR_TOLERATE)
            self._count_skipped(given.skipped, given.detail)
            self._passed_open = True
        self._letters += given.letters
        if given.offsets:
            self._passed_open = True
        if given.quarantined is not None:
            self._quarantined = given.quarantined
        self._retriable = self._error_text = given.retriable
        if given.conflict:
            return self._fail(now_ms, COMMIT_AND_ABORT)
        was_dry, self._dry = self._dry, not given.found and not given.retriable
        self._plan = deque(self._steps(now_ms, given))
        # Idle: this poll was begun after the last commit, found nothing, and nothing is open.
        is_open = self._open or self._passed_open or self._ending
        self._idle = self._dry and not given.awaited and not is_open
        self._delay_ms = RETRY_DELAY_MS if given.retriable else 0
        if self._dry and was_dry:
            self._delay_ms = IDLE_POLL_DELAY_MS
        return self._proceed(now_ms)

    def _steps(self, now_ms: int, given: st.Polled) -> list[st.BodyEffect]:
        """Return the sends, commits and aborts for one batch, in order."""
        steps: list[st.BodyEffect] = []
        sent = 0
        for boundary in given.boundaries if self._by_connector else ():
            if boundary.end > sent:
                steps.append(st.SendRecords(sent, boundary.end))
                sent = boundary.end
            commit = boundary.ask is st.Ask.COMMIT
            steps.append(st.CommitTransaction() if commit else st.AbortTransaction())
        if given.records > sent:
            steps.append(st.SendRecords(sent, given.records))
        if self._commit_due(now_ms, given.records):
            steps.append(self._commit_step())
        return steps

    @property
    def open_records(self) -> int:
        """Number of records that were sent and are not covered by a commit."""
        return self._open

    @property
    def _by_connector(self) -> bool:
        settings = self._settings
        return settings.exactly_once and settings.boundary is TransactionBoundary.CONNECTOR

    def _commit_step(self) -> st.BodyEffect:
        return st.CommitTransaction() if self._settings.exactly_once else st.FlushOffsets()

    def _commit_due(self, now_ms: int, records: int) -> bool:
        """Return whether to commit at the end of this batch."""
        if self._by_connector:
            return False
        if self._ending is not None or self._pause_wanted:
            return True
        settings = self._settings
        if settings.exactly_once and settings.boundary is TransactionBoundary.POLL:
            return True
        since_ms = now_ms - self._commit_ms
        if since_ms >= settings.interval_ms:
            return True
        # Differs from Connect, which keeps the offsets of a source that has run dry until the
        # interval ends. Without transactions an early flush does no harm.
        dry = not settings.exactly_once and self._dry and bool(self._open or self._passed_open)
        return dry and not records and since_ms >= DRY_FLUSH_INTERVAL_MS

    def _proceed(self, now_ms: int) -> list[st.BodyEffect]:
        """Return the next steps of the plan, up to one that has an outcome; after the last step,
        the next poll."""
        effects: list[st.BodyEffect] = []
        while self._plan:
            step = self._plan.popleft()
            effects.append(step)
            if isinstance(step, st.SendRecords):
                self._open += step.end - step.first
                continue
            self.state = SourceState.COMMITTING
            return effects
        if self._ahead:
            # Also before a pause or a stop: records that the task has returned are delivered.
            self._ahead = False
            self.state = SourceState.POLLING
            return [*effects, *self._progress(now_ms), st.Poll()]
        if self._ending is not None:
            return effects + self._close(now_ms, self._ending)
        if self._pause_wanted:
            return effects + self._paused(SourceState.PAUSED)
        self.state = SourceState.POLLING
        return [*effects, *self._progress(now_ms), st.Poll(self._delay_ms)]

    def _on_send_failed(self, now_ms: int, given: st.SendFailed) -> list[st.BodyEffect]:
        if self._ending is not None and self.state is SourceState.CLOSING:
            return []
        if not self._tolerate:
            reason = f"Unrecoverable exception from producer send callback: {given.reason}"
            return self._fail(now_ms, reason)
        self._open = max(0, self._open - given.records)
        self._count_skipped(given.records, given.reason)
        return []

    def _on_committed(self, now_ms: int, given: st.Committed) -> list[st.BodyEffect]:
        self._error_text = self._retriable
        self._count_commit(self._open - given.open_records)
        if not given.open_records:
            self._records -= self._letters
            self._letters = 0
        self._open = given.open_records
        self._passed_open = False
        self._commit_ms = now_ms
        self._ahead = given.ahead
        return self._after_commit(now_ms)

    def _on_commit_failed(self, now_ms: int, given: st.CommitFailed) -> list[st.BodyEffect]:
        # As in Connect, the offsets are kept for the next interval's try, and the task goes on.
        self._error_text = f"Failed to flush source offsets: {given.reason}"
        self._commit_ms = now_ms
        return self._after_commit(now_ms)

    def _on_aborted(self, now_ms: int, _given: st.Aborted) -> list[st.BodyEffect]:
        self._open = self._letters = 0
        self._passed_open = False
        self._commit_ms = now_ms
        return self._after_commit(now_ms)

    def _after_commit(self, now_ms: int) -> list[st.BodyEffect]:
        if self._must_drop:
            return self._rest_ended(now_ms)
        return self._proceed(now_ms)

    def _fail(self, now_ms: int, reason: str) -> list[st.BodyEffect]:
        return self._close(now_ms, TaskEnded(TaskOutcome.FAILED, reason))

    # -- pause, resume, stop --

    def _on_resume_task(self, now_ms: int, given: ResumeTask) -> list[st.BodyEffect]:
        super()._on_resume_task(now_ms, given)
        if self.state is SourceState.WAITING:
            return self._start_up()
        if self.state is SourceState.PAUSED:
            self._commit_ms = now_ms  # the interval starts anew after a pause, as in Connect
            return self._run()
        return []

    def _rest_ended(self, now_ms: int) -> list[st.BodyEffect]:
        # Without transactions, a pause may have left offsets that could not be flushed.
        assert self._ending is not None
        unflushed = bool(self._open or self._passed_open) and not self._settings.exactly_once
        if self.state is SourceState.PAUSED and unflushed and not self._must_drop:
            self.state = SourceState.COMMITTING
            return [st.FlushOffsets()]
        return self._close(now_ms, self._ending)


def _table() -> Table:
    s = SourceState
    out: dict[tuple[StrEnum, type], tuple[StrEnum, ...]] = {
        (s.NEW, st.Begin): (s.WAITING, s.FENCING, s.READING),
        (s.FENCING, FencingAnswered): (s.INITIALISING, s.CLOSING),
        (s.INITIALISING, st.ProducerReady): (s.READING, s.CLOSING),
        (s.READING, RecheckAnswered): (s.READING,),
        (s.READING, st.OffsetsRead): (s.RECHECKING, s.STARTING, s.CLOSING),
        (s.RECHECKING, RecheckAnswered): (s.STARTING, s.CLOSING),
        (s.STARTING, st.Started): (s.POLLING, s.PAUSED, s.CLOSING),
        (s.POLLING, st.Polled): (s.POLLING, s.COMMITTING, s.PAUSED, s.CLOSING),
        (s.COMMITTING, st.Committed): (s.POLLING, s.COMMITTING, s.PAUSED, s.CLOSING),
        (s.COMMITTING, st.CommitFailed): (s.POLLING, s.COMMITTING, s.PAUSED, s.CLOSING),
        (s.COMMITTING, st.Aborted): (s.POLLING, s.COMMITTING, s.PAUSED, s.CLOSING),
        (s.CLOSING, st.Closed): (s.ENDED,),
        (s.WAITING, ResumeTask): (s.FENCING, s.READING),
        (s.PAUSED, ResumeTask): (s.POLLING,),
        (s.PAUSED, StopTask): (s.COMMITTING, s.CLOSING),
        (s.PAUSED, st.LifelineLost): (s.CLOSING,),
    }
    for state in (s.POLLING, s.COMMITTING, s.CLOSING):
        # A refused record may become known only after the batch: at the flush, or while paused.
        out[state, st.SendFailed] = (state, s.CLOSING)
    for state in s:
        at_rest = state in SourceMachine.AT_REST
        for command in (PauseTask, ResumeTask):
            out.setdefault((state, command), (state,))
        for ending in (StopTask, st.LifelineLost):
            out.setdefault((state, ending), (s.CLOSING,) if at_rest else (state,))
        if state in (s.CLOSING, s.ENDED):
            for answer in (FencingAnswered, RecheckAnswered):
                out[state, answer] = (state,)  # it crossed the task's own end
        if state not in (s.NEW, s.CLOSING, s.ENDED):
            out[state, st.Failed] = (s.CLOSING,)
    return MappingProxyType(out)


SOURCE_TRANSITIONS: Mapping[tuple[StrEnum, type], tuple[StrEnum, ...]] = _table()
SourceMachine.TABLE = SOURCE_TRANSITIONS
