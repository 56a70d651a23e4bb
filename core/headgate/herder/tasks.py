"""Task runs of this worker: when they start, what they are answered, when they are over.

`headgate.herder.task_table` has the states of a task. An assigned task is *held* until it is
revoked and nothing of its run is alive; only then is it reported as gone. Source: Connect's
DistributedHerder (startWork, processTaskConfigUpdatesWithIncrementalCooperative), KIP-415, KIP-618.

Differs: the leader is not asked to fence if the log has a task count record after the run's task
configs. It would look for no more, and the recheck finds newer commits. A failed request for
fencing is repeated (in Java the task stays FAILED until a user restarts it). A run that was fenced
or lost starts again with backoff while the task is still assigned to this worker.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import Final, assert_never

from headgate.connector.restart_policy import RestartPolicy, restart_policy
from headgate.errors import IllegalTransitionError
from headgate.herder import context as c
from headgate.herder.check import TaskTables, check_tasks
from headgate.herder.fencing_rounds import FAILED as FENCING_FAILED
from headgate.herder.held_task import (
    NO_PROGRESS,
    HeldTask,
    HeldTasks,
    begin_anew,
    has_failed,
    note_call,
    task_spec,
    task_view,
)
from headgate.herder.messages import (
    ErrorKind,
    Failure,
    FenceConnector,
    Result,
    SendGroup,
    SendTask,
    StartTask,
    StopTaskBy,
    Success,
    TaskView,
)
from headgate.herder.statuses import Statuses
from headgate.herder.task_table import (
    ALIVE,
    NOTHING_ALIVE,
    SETTLED,
    TaskInput,
    TaskState,
    next_state,
)
from headgate.ids import State, TargetState, TaskId
from headgate.membership.messages import Heartbeat
from headgate.task.messages import (
    FencingAnswered,
    FencingRequested,
    LongCall,
    PauseTask,
    ProducerInitialised,
    RecheckAnswered,
    ResumeTask,
    TaskEnded,
    TaskOutcome,
    TaskPaused,
    TaskProgress,
    TaskReleased,
    TaskReport,
    TaskRunning,
    TopicsUsed,
)

FENCING_TRIES_MAX: Final = 12
"""How often fencing is requested before its failure is final: five minutes in all."""
_REFUSALS: Final = frozenset({ErrorKind.INTERNAL, ErrorKind.FORBIDDEN, ErrorKind.BAD_REQUEST})
STARTS_MAX: Final = 200
"""Most tasks started within one command. The rest starts in commands that follow at once, so that a
large assignment does not delay heartbeats."""


class Tasks:
    def __init__(self, ctx: c.Context, statuses: Statuses) -> None:
        self._ctx = ctx
        self._statuses = statuses
        self._held = HeldTasks(ctx.news)
        self._runs: dict[str, HeldTask] = {}
        """Held tasks by run, for the runs of which something is alive."""
        self._idle: dict[TaskId, None] = {}
        """Tasks that are held, not revoked, and of which nothing is alive: they wait to start."""
        self._revoked: dict[TaskId, None] = {}
        """Revoked tasks that are held until nothing of them is alive any more."""
        self._to_start: deque[TaskId] = deque()
        self._unsettled: dict[TaskId, None] = {}
        """Tasks that are neither idle nor in a state of `SETTLED`, the earliest first."""
        self._confirming: dict[TaskId, None] = {}
        self._fencing: dict[c.FromTasks, int] = {}
        """Open requests for fencing, and how often each has failed. One serves all runs of a task
        generation. It is made after the commit was read, so the leader reads that commit, too."""
        self._run_count = 0
        self._birth_ms = ctx.now_ms
        self.startups = [0, 0]
        """Number of starts that succeeded, and of those that failed."""

    # -- what the group says --

    def assign(self, tasks: Collection[TaskId]) -> None:
        self._idle.update(self._held.add(tasks))
        if not self._revoked:
            return  # as in nearly all rounds: most of what they bring is held already
        for task in tasks:
            if task in self._revoked:
                # Given back while its run was stopping: a new run follows.
                del self._revoked[task]
                self._held[task].revoked = False

    def revoke(self, tasks: Iterable[TaskId], grace_ms: int | None = None) -> None:
        """Stop these tasks. `TaskGone` follows for each one held, at once if nothing is alive."""
        for task in tasks:
            held = self._held.get(task)
            if held is None or held.revoked:
                continue
            held.revoked = True
            self._revoked[task] = None
            self._stop(held, grace_ms)
            if held.state is TaskState.IDLE:
                self._drop(held)

    def membership_changed(self) -> None:
        """Queue the idle tasks to start if work may be started now; otherwise queue none."""
        self._to_start.clear()
        if self._ctx.membership.stable:
            self._to_start.extend(self._idle)

    @property
    def held(self) -> Iterator[TaskId]:
        return iter(self._held)

    def holds_any(self, task: TaskId) -> bool:
        """Return whether the task is held, even if it is revoked and still stopping."""
        return task in self._held

    def holds(self, task: TaskId) -> bool:
        held = self._held.get(task)
        return held is not None and not held.revoked

    # -- what the log says --

    def on_commit(self, connector: str) -> None:
        """Stop the runs of the old task configs before the rebalance. There may be no new ones."""
        for held in self._of(connector):
            begin_anew(held)
            held.reached = False
            self._stop(held, None)

    def on_target_state(self, connector: str) -> None:
        target = self._ctx.state.target_state(connector)
        if target is TargetState.STOPPED:
            return  # its empty commit stops them
        command = PauseTask() if target is TargetState.PAUSED else ResumeTask()
        for held in self._of(connector):
            if held.state in ALIVE and held.target_told is not target:
                held.target_told = target
                self._ctx.emit(SendTask(held.run, command))

    # -- starting --

    def start_some(self) -> None:
        """Start the queued tasks, `STARTS_MAX` at most."""
        for _ in range(STARTS_MAX):
            if not self._to_start:
                return
            task = self._to_start.popleft()
            held = self._held.get(task)
            if held is not None and held.state is TaskState.IDLE and not held.revoked:
                self._start(held)
        if self._to_start:
            self._ctx.after(0, c.StartMore())

    def _start(self, held: HeldTask) -> None:
        entry = self._ctx.state.entry(held.task.connector)
        config = self._ctx.state.task_config(held.task)
        if not self._ctx.membership.stable or entry is None or config is None:
            return
        if not held.counted:
            held.restarts = self._statuses.restarts_of(held.task)  # by the owner before us
            held.counted = True
        self._run_count += 1
        held.run = f"{self._ctx.settings.worker_id}/{self._birth_ms}.{self._run_count}"
        spec = task_spec(self._ctx, held, entry)
        held.commit_offset = entry.commit_offset
        held.target_told = spec.target_state
        held.stop_requested = held.log_read = held.confirmed = False
        held.ended = held.running_since_ms = held.moved_ms = held.restart_at_ms = None
        held.progress = NO_PROGRESS
        note_call(held, LongCall(), self._ctx.now_ms)
        held.topics = ()
        self._runs[held.run] = held
        self._move(held, TaskInput.START_EXACTLY_ONCE if spec.exactly_once else TaskInput.START)
        self._ctx.emit(StartTask(spec))
        self._resolve(held, Success())

    def restart(self, ticket: int, task: TaskId) -> None:
        """Stop and start one held task. The ticket is resolved when the new run was handed to the
        runner. Source: DistributedHerder.restartTask."""
        held = self._held[task]
        held.tickets = (*held.tickets, ticket)
        begin_anew(held)
        # Also for an idle task: readers skip UNASSIGNED, and would see the run before.
        held.show_restarting = True
        self._stop(held, None)
        if held.state is TaskState.IDLE:
            self._wait_idle(held)

    def restart_planned(self, connector: str, *, only_failed: bool) -> None:
        """Restart the connector's tasks that are here, as part of a restart by record. Source:
        doRestartConnectorAndTasks."""
        for held in self._of(connector):
            if held.revoked or (only_failed and not has_failed(held)):
                if held.state in SETTLED:
                    self._statuses.take_account(held.task)
                continue
            begin_anew(held)
            held.show_restarting = True
            self._stop(held, None)
            if held.task in self._idle:
                self._wait_idle(held)  # nothing of it was alive

    def is_restarting(self, connector: str) -> bool:
        """Return whether tasks of the connector are being stopped in order to start again."""
        return any(held.show_restarting for held in self._of(connector))

    # -- stopping --

    def _stop(self, held: HeldTask, grace_ms: int | None) -> None:
        """Stop what is alive of the task. `grace_ms` None: as long as the settings say."""
        alive = held.state in ALIVE
        if alive or held.state in NOTHING_ALIVE:
            rested = held.state in (TaskState.CONFIRMING, TaskState.BACKING_OFF, TaskState.FAILED)
            self._move(held, TaskInput.STOP)
            if rested and not held.revoked:
                self._idle[held.task] = None
            if rested and held.revoked:
                self._show(held, State.UNASSIGNED)
        if alive:
            grace = self._ctx.settings.task_stop_timeout_ms if grace_ms is None else grace_ms
            self._ctx.emit(StopTaskBy(held.run, grace))
        elif grace_ms is not None and held.run in self._runs:
            self._ctx.emit(StopTaskBy(held.run, grace_ms))
        held.stop_requested = True

    # -- what runs report --

    def on_report(self, run: str, report: TaskReport) -> None:
        if (held := self._runs.get(run)) is None:
            return  # released before: a late report changes nothing
        if report != held.progress:
            self._ctx.news.changed(held.task)
        try:
            self._on_report(held, report)
        except IllegalTransitionError as error:
            self._misbehaved(held, str(error))

    def _on_report(self, held: HeldTask, report: TaskReport) -> None:
        if not isinstance(report, LongCall | TaskEnded | TaskReleased):
            held.reached = True
        match report:
            case FencingRequested():
                self._move(held, TaskInput.FENCING_REQUESTED)
                self._fencing_requested(held)
            case ProducerInitialised():
                self._move(held, TaskInput.PRODUCER_INITIALISED)
                if held.state is TaskState.RECHECKING:
                    self._ctx.read_to_end(c.ForRecheck(held.run))
            case TaskRunning():
                self._move(held, TaskInput.RUNNING_REPORTED)
                if held.state is TaskState.RUNNING:
                    self.startups[0] += held.running_since_ms is None
                    held.running_since_ms = held.moved_ms = self._ctx.now_ms
                    self._show(held, State.RUNNING)
            case TaskPaused():
                self._move(held, TaskInput.PAUSED_REPORTED)
                if held.state in (TaskState.PAUSED, TaskState.PARKED):
                    self._show(held, State.PAUSED)
            case TaskProgress():
                if held.state is not TaskState.ENDING:
                    self._move(held, TaskInput.PROGRESS_REPORTED)
                    if report.records != held.progress.records:
                        self._statuses.topics_used(held.task, held.topics)  # they may be reset
                        held.moved_ms = self._ctx.now_ms
                    held.progress = report
            case LongCall():
                note_call(held, report, self._ctx.now_ms)
            case TopicsUsed(topics):
                held.topics = tuple(dict.fromkeys((*held.topics, *topics)))
                self._statuses.topics_used(held.task, topics)
            case TaskEnded():
                self._ended(held, report)
            case TaskReleased(abandoned):
                self._released(held, abandoned)
            case _:
                assert_never(report)

    def _misbehaved(self, held: HeldTask, what: str) -> None:
        """End the run at once and let the task fail, because its body broke the protocol. The body
        may have skipped a step that exactly-once depends on."""
        if held.state in ALIVE:
            self._move(held, TaskInput.STOP)
            self._ctx.emit(StopTaskBy(held.run, 0))
        if held.ended is None:
            held.ended = TaskEnded(TaskOutcome.FAILED, f"protocol of the task's body: {what}")

    def _ended(self, held: HeldTask, report: TaskEnded) -> None:
        verdict = held.ended
        self._move(held, TaskInput.ENDED)
        held.ended = ended = verdict or report
        note_call(held, LongCall(), self._ctx.now_ms)
        if held.stop_requested:
            self._show(held, State.UNASSIGNED)
        elif ended.outcome is TaskOutcome.FAILED:
            self.startups[1] += held.running_since_ms is None
            self._show_failed(held, ended)

    def _released(self, held: HeldTask, abandoned: bool) -> None:
        if held.state is not TaskState.ENDING:
            reason = "abandoned" if abandoned else "released without a last word"
            self._ended(held, TaskEnded(TaskOutcome.LOST, reason))
        assert held.ended is not None
        del self._runs[held.run]
        self._move(held, TaskInput.RELEASED)
        if held.revoked:
            self._drop(held)
        elif held.stop_requested:
            self._wait_idle(held)
        elif held.ended.outcome is TaskOutcome.FAILED:
            self._move(held, TaskInput.FAIL)
            if held.restart_at_ms is not None:
                left_ms = max(held.restart_at_ms - self._ctx.now_ms, 0)
                self._ctx.after(left_ms, c.RestartFailedTask(held.task, held.run))
            self._resolve(held, Failure(ErrorKind.INTERNAL, f"Failed to start task: {held.task}"))
        elif held.ended.outcome is TaskOutcome.FENCED:
            self._confirm(held)
        else:
            self._back_off(held)

    def _wait_idle(self, held: HeldTask) -> None:
        self._idle[held.task] = None
        if held.show_restarting:
            held.show_restarting = False
            self._show(held, State.RESTARTING)
        if self._ctx.membership.stable:
            self._to_start.append(held.task)

    def _drop(self, held: HeldTask) -> None:
        self._held.remove(held.task)
        self._revoked.pop(held.task, None)
        self._idle.pop(held.task, None)
        self._statuses.task_gone(held.task)
        for ticket in held.tickets:
            self._ctx.note(c.Unplaced(ticket))
        self._ctx.note(c.TaskGone(held.task))

    # -- fencing before the start --

    def _fencing_requested(self, held: HeldTask) -> None:
        if held.state is not TaskState.AWAITING_FENCING:
            return  # it crossed our stop
        if self._is_fenced(held.task.connector):
            self._answer_fencing(held, None)
            return
        origin = c.FromTasks(held.task.connector, held.commit_offset)
        if origin not in self._fencing:
            self._fencing[origin] = 0
            self._ctx.note(c.Ask(origin, FenceConnector(origin.connector)))

    def _is_fenced(self, connector: str) -> bool:
        """Return whether a task count record follows the task configs of the runs here. Those are
        the newest, since a newer commit would have stopped the runs."""
        entry = self._ctx.state.entry(connector)
        return entry is not None and not entry.fencing_pending

    def _answer_fencing(self, held: HeldTask, error: str | None) -> None:
        self._move(held, TaskInput.FENCING_ANSWERED)
        self._ctx.emit(SendTask(held.run, FencingAnswered(error)))

    def on_fencing_result(self, origin: c.FromTasks, result: Result) -> None:
        """Handle the answer to a request for fencing. A change of leader, newer task configs or a
        lost answer must not leave the task FAILED, so failures are retried. A lasting failure of
        the fencing itself is final, so that the status shows, say, a missing permission."""
        awaiting = self._awaiting_fencing(origin)
        if not awaiting:
            self._fencing.pop(origin, None)
            return
        error: str | None = None
        if isinstance(result, Failure):
            self._fencing[origin] += 1
            if not _for_good(result.kind, self._fencing[origin]):
                self._ctx.after(c.retry_delay_ms(self._fencing[origin]), c.FenceAgain(origin))
                return
            told = result.message
            error = told if told.startswith(FENCING_FAILED) else f"{FENCING_FAILED}: {told}"
        del self._fencing[origin]
        for held in awaiting:
            self._answer_fencing(held, error)

    def ask_fencing_again(self, origin: c.FromTasks) -> None:
        awaiting = self._awaiting_fencing(origin)
        if awaiting and not self._is_fenced(origin.connector):
            self._ctx.note(c.Ask(origin, FenceConnector(origin.connector)))
            return
        self._fencing.pop(origin, None)
        for held in awaiting:
            self._answer_fencing(held, None)

    def _awaiting_fencing(self, origin: c.FromTasks) -> list[HeldTask]:
        return [
            held
            for held in self._of(origin.connector)
            if held.state is TaskState.AWAITING_FENCING
            and held.commit_offset == origin.commit_offset
        ]

    # -- recheck after the producer was initialised --

    def on_recheck_read(self, run: str, error: str | None) -> None:
        held = self._runs.get(run)
        if held is None or held.state is not TaskState.RECHECKING:
            return
        if error is not None:  # Java too reads without a time limit here
            self._ctx.after(c.retry_delay_ms(1), c.ReadAgain(c.ForRecheck(run)))
            return
        self._move(held, TaskInput.RECHECK_ANSWERED)
        self._ctx.emit(SendTask(run, RecheckAnswered(self._objection(held))))

    def _objection(self, held: HeldTask) -> str | None:
        """Return why the task must not go on; None: it may. Source: KIP-618,
        ExactlyOnceWorkerSourceTask's postProducerCheck.

        Differs: Java checks here for a newer commit and for a revocation. Here, either of them has
        already stopped the run, which is then not RECHECKING any more. What is checked is that the
        log has the task count record by which the leader says that older producers are fenced.
        """
        entry = self._ctx.state.entry(held.task.connector)
        if entry is None or entry.fencing_pending:
            return (
                f"Cannot start source task {held.task} as no task count record follows its task "
                "configs: older producers may not be shut out"
            )
        return None

    # -- fenced --

    def _confirm(self, held: HeldTask) -> None:
        """Find out why another producer has the task's transactional id. Either another worker has
        the task by now, or an older run was late. The log and the group tell which."""
        membership = self._ctx.membership
        self._move(held, TaskInput.CONFIRM)
        self._confirming[held.task] = None
        held.fenced_ms = self._ctx.now_ms
        self._ctx.read_to_end(c.ForFenced(held.task, held.run))
        self._ctx.emit(
            SendGroup(
                Heartbeat(
                    self._ctx.settings.group,
                    membership.member_id,
                    membership.generation,
                    sent_ms=self._ctx.now_ms,
                )
            )
        )

    def on_fenced_read(self, purpose: c.ForFenced, error: str | None) -> None:
        held = self._held.get(purpose.task)
        if held is None or held.run != purpose.run or held.state is not TaskState.CONFIRMING:
            return
        if error is not None:
            self._ctx.after(c.retry_delay_ms(1), c.ReadAgain(purpose))
            return
        held.log_read = True
        self._confirmed(held)

    def on_membership_confirmed(self, sent_ms: int) -> None:
        """Note that a heartbeat sent at `sent_ms` was answered in this worker's generation."""
        for task in list(self._confirming):
            held = self._held.get(task)
            if held is None or held.state is not TaskState.CONFIRMING:
                del self._confirming[task]
            elif sent_ms >= held.fenced_ms:
                held.confirmed = True
                self._confirmed(held)

    def _confirmed(self, held: HeldTask) -> None:
        # A newer commit would have stopped it, a revocation would have dropped it.
        if held.log_read and held.confirmed:
            self._confirming.pop(held.task, None)
            self._back_off(held)

    # -- starting anew --

    def _back_off(self, held: HeldTask) -> None:
        since = held.running_since_ms
        if since is not None and self._ctx.now_ms - since >= c.RETRY_DELAY_MS_MAX:
            held.failures = 0
        held.failures += 1
        held.attempts += 1
        self._move(held, TaskInput.BACK_OFF)
        self._ctx.after(c.retry_delay_ms(held.failures), c.WakeTask(held.task, held.run))
        assert held.ended is not None
        self._show(
            held,
            State.RESTARTING,
            f"{held.ended.outcome}: {held.ended.reason}; started anew, attempt {held.attempts}",
        )

    def _policy(self, held: HeldTask) -> RestartPolicy:
        entry = self._ctx.state.entry(held.task.connector)
        default = self._ctx.settings.restart
        if entry is None or entry.config is None:
            return default
        return restart_policy(entry.config, default)

    def _show_failed(self, held: HeldTask, ended: TaskEnded) -> None:
        """Write the status FAILED, and whether the restart policy starts the task again."""
        policy, since, now_ms = self._policy(held), held.running_since_ms, self._ctx.now_ms
        if since is not None and now_ms - since >= policy.quiet_ms:
            held.restarts = 0
        trace = ended.trace or ended.reason
        delay_ms = policy.delay_ms(held.restarts, trace)
        held.restart_at_ms = None if delay_ms is None else now_ms + delay_ms
        self._show(held, State.FAILED, policy.announced(trace, held.restarts, delay_ms))

    def restart_failed(self, task: TaskId, run: str) -> None:
        """Start the task after the restart policy's delay, if it is still FAILED."""
        held = self._held.get(task)
        if held is None or held.run != run or held.state is not TaskState.FAILED or held.revoked:
            return
        held.restarts += 1
        held.show_restarting = True
        self._stop(held, None)
        self._wait_idle(held)

    def wake(self, task: TaskId, run: str) -> None:
        held = self._held.get(task)
        if held is None or held.run != run or held.state is not TaskState.BACKING_OFF:
            return
        self._move(held, TaskInput.WAKE)
        self._wait_idle(held)

    # -- views --

    def view(self, changed: Iterable[TaskId] | None = None) -> tuple[TaskView, ...]:
        """Return the views of all tasks held, or of `changed`."""
        shown = map(self._held.look, sorted(self._held if changed is None else changed))
        return tuple(map(task_view, shown))

    @property
    def pending(self) -> list[str]:
        """Everything under way, in words, each with its task."""
        words = [f"{self._held.look(t).state.value} {t}" for t in self._unsettled]
        if self._ctx.membership.stable:
            config = self._ctx.state.task_config
            words.extend(f"to be started {t}" for t in self._idle if config(t) is not None)
        return words

    def disagreements(self) -> Iterator[str]:
        tables = (self._idle, self._revoked, self._unsettled, self._confirming, self._fencing)
        return check_tasks(TaskTables(self._held, self._runs, *tables), self._ctx.state)

    # -- bookkeeping --

    def _of(self, connector: str) -> list[HeldTask]:
        return self._held.of(connector)

    def _show(self, held: HeldTask, state: State, trace: str | None = None) -> None:
        self._statuses.write_task(held.task, state, trace, restarts=held.restarts)

    def _resolve(self, held: HeldTask, result: Result) -> None:
        for ticket in held.tickets:
            self._ctx.note(c.Restarted(ticket, result))
        held.tickets = ()

    def _move(self, held: HeldTask, given: TaskInput) -> None:
        """Apply an input to the task's state. No other code changes it."""
        held.state = next_state(held.state, given)
        if held.state is TaskState.IDLE or held.state in SETTLED:
            self._unsettled.pop(held.task, None)
        else:
            self._unsettled[held.task] = None
            self._idle.pop(held.task, None)


def _for_good(kind: ErrorKind, tries: int) -> bool:
    """Return whether a failure of fencing is final. Even BAD_REQUEST may be temporary: a leader
    answers it to an unsigned request, and requests were unsigned before the group's protocol
    changed."""
    return kind in _REFUSALS and tries >= FENCING_TRIES_MAX
