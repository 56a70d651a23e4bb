"""The decisions of one worker: commands in, effects out.

`Herder` composes the parts and dispatches each command to them. To change something that all
workers must know, it appends a record to the config topic. The change takes effect on this worker,
as on every other, when the record is read back (`ConfigRead`). Source: Connect's DistributedHerder,
KIP-415, KIP-618.

    herder = Herder(settings, now_ms)
    effects = herder.handle(now_ms, command)    # perform them; what happens is a command

`headgate.herder.messages` says which effects must keep their order.

Parts, by subject: `leadership` (the leader's writes), `requests` (calls), `connectors`, `tasks`,
`restarts`, `offset_changes`, `fencing_rounds`, `session_keys`, `statuses`, and the group's member
machine (`headgate.membership.member`).
"""

from typing import assert_never

from headgate import wire
from headgate.herder import context as c
from headgate.herder import messages as m
from headgate.herder.check import InconsistentError, ToldNews
from headgate.herder.connectors import Connectors
from headgate.herder.fencing_rounds import FencingRounds
from headgate.herder.leadership import Leadership
from headgate.herder.news import Item, News
from headgate.herder.offset_changes import OffsetChanges
from headgate.herder.privileged import RecordCount
from headgate.herder.requests import Requests
from headgate.herder.restart_answers import RestartAnswers
from headgate.herder.restarts import Restarts
from headgate.herder.rows import KeptRows, touched_by_configs, touched_by_statuses
from headgate.herder.session_keys import KeyRing, SessionKeys
from headgate.herder.settings import HerderSettings
from headgate.herder.statuses import Statuses
from headgate.herder.tasks import Tasks
from headgate.herder.work import GroupWork
from headgate.ids import TargetState
from headgate.membership.member_messages import Assigned
from headgate.topics.config_events import (
    ConfigEvent,
    ConnectorRemoved,
    LoggerLevelChanged,
    RecordRejected,
    RestartRequested,
    SessionKeyChanged,
    TargetStateChanged,
    TasksCommitted,
)
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate.topics.status import StatusEvent


class Herder:
    """The machine that makes one worker's decisions. Call it from one thread, or under one lock.

    Effects may be performed on other threads, and further commands may be given before they are
    done. Only the order that `headgate.herder.messages` requires must be kept.
    """

    def __init__(
        self, settings: HerderSettings, now_ms: int, *, wall_ms: int | None = None
    ) -> None:
        """`wall_ms`: wall time at `now_ms`, in milliseconds since 1970. None: `now_ms` is that
        itself."""
        ahead_ms = 0 if wall_ms is None else wall_ms - now_ms
        self._ctx = ctx = c.Context(settings, now_ms, wall_ahead_ms=ahead_ms, news=News(now_ms))
        self._statuses = Statuses(ctx)
        self._tasks = Tasks(ctx, self._statuses)
        self._connectors = Connectors(ctx, self._statuses)
        self._leadership = Leadership(ctx)
        self._rounds = FencingRounds(ctx)
        self._keys = SessionKeys(ctx, self._leadership)
        self._restarts = Restarts(ctx, self._connectors, self._tasks, self._statuses)
        self._restart_answers = RestartAnswers(ctx)
        self._work = GroupWork(ctx, self._connectors, self._tasks)
        self._offset_changes = OffsetChanges(ctx, self._leadership, self._work.member)
        self._rows = KeptRows(settings)
        self._told_news = ToldNews()
        self._requests = Requests(
            ctx,
            self._work.member,
            self._leadership,
            self._rounds,
            self._connectors,
            self._tasks,
            self._statuses,
            self._offset_changes,
            self._rows,
        )
        self._led_before = False
        """True from the moment this worker leads until it is no longer its group's leader."""
        self._begun = False
        self._touched: dict[str, None] | None = None
        """Connectors about which a record was read since `take_touched`. None: nobody watches."""

    def handle(self, now_ms: int, command: m.Command) -> list[m.Effect]:
        """Handle one command and return the effects to perform.

        Perform every effect, even if another one fails.

        Args:
            now_ms: milliseconds of a monotonic clock, never less than in the call before.
            command: what happened or is asked for. Answers may be late or stale. Records of the
                config topic must be in order.

        Raises:
            LogOrderError: the offsets of a `ConfigRead` do not rise, which is the caller's error.

        Cost: independent of the number of connectors and tasks held. The exceptions are a change of
        the assignment, the loss of the coordinator, and a `DescribeWorker` that asks for
        everything.
        """
        ctx = self._ctx
        ctx.now_ms = now_ms
        self._rows.expire(now_ms)
        if not self._begun:
            self._begun = True
            ctx.read_to_end(c.AtStart())
        # The membership is looked at first: after a freeze of the process it may be lost.
        self._work.tick()
        self._settle()
        while (timer := ctx.due()) is not None:
            self._on_timer(timer)
            self._settle()
        self._dispatch(command)
        self._settle()
        self._tasks.start_some()
        self._settle()
        effects, ctx.effects = ctx.effects, []
        return effects

    @property
    def next_deadline_ms(self) -> int | None:
        """Time by which the next command must be given, `Tick` if there is no other. None: no timer
        is set."""
        deadlines = (self._ctx.next_timer_ms, self._work.member.next_deadline_ms)
        return min((d for d in deadlines if d is not None), default=None)

    @property
    def done(self) -> bool:
        """True after `Shutdown`, once nothing runs here, the group was left and every call is
        answered."""
        return self._ctx.stopping and self._work.left

    @property
    def leads(self) -> bool:
        """Whether this worker is the leader, as far as it knows. May be read from any thread."""
        return self._ctx.membership.is_leader

    @property
    def state(self) -> ConfigState:
        """The config topic as far as this worker has read it. Immutable: it may be kept, and handed
        to other threads."""
        return self._ctx.state

    @property
    def session_keys(self) -> KeyRing:
        """Keys that sign and verify requests between workers. May be read from any thread."""
        return self._keys.ring

    @property
    def assigned(self) -> Assigned | None:
        """The assignment of the last rebalance that this worker completed. None: there is none
        yet."""
        return self._work.assigned

    @property
    def disagreement(self) -> str:
        """Why rebalances keep failing: members read different config topics. Empty: they do not."""
        return self._work.member.disagreement.words

    def grpc_address(self, url: str) -> str:
        """Return the gRPC address of the worker at `url`. Empty: it takes calls by HTTP only.

        Java's protocols carry no gRPC addresses: while a Java worker is in the group, the result is
        empty for every worker. May be called from any thread.
        """
        assigned = self._work.assigned
        return "" if assigned is None else assigned.grpc.get(url, "")

    @property
    def protocol(self) -> str:
        """Protocol of the last rebalance, as in `headgate.membership.protocols`. Empty before the
        first."""
        return self._ctx.membership.protocol

    def outcome(self, connector: str) -> m.Result | None:
        """Return how a connector's config has worked out on this worker. None: that is undecided,
        or another worker has the connector."""
        return self._connectors.outcome(connector)

    def restarting(self, connector: str) -> bool:
        """Return whether a restart by record has yet to stop the connector or its tasks on this
        worker. Source: KIP-745."""
        return self._restarts.under_way(connector)

    def check(self) -> None:
        """Check that the herder's tables agree with each other. Cost: proportional to the work
        held.

        Raises:
            InconsistentError: they do not, which is a bug in the herder.
        """
        if self._ctx.notes or self._ctx.effects or self._work.changed:
            raise InconsistentError("a command has ended with something left to be done")
        parts = (
            *(self._work, self._connectors, self._tasks, self._requests),
            *(self._leadership, self._rounds, self._offset_changes, self._statuses),
        )
        found = [words for part in parts for words in part.disagreements()]
        found += self._rows.disagreements(self._ctx.state, self._statuses.view)
        view = self.view()
        shown: dict[Item, object] = {each.task: each for each in view.tasks}
        shown.update(view.connectors.items())
        found += self._told_news.disagreements(self._ctx.news, shown)
        if found:
            raise InconsistentError("; ".join(found))

    def watch(self, watched: bool) -> None:
        """Start or stop to record which connectors are touched."""
        self._touched = {} if watched else None

    @property
    def watched(self) -> bool:
        """Whether touched connectors are recorded."""
        return self._touched is not None

    def take_touched(self) -> tuple[str, ...]:
        """Return the touched connectors, and forget them. A connector is touched when its config,
        target state, task configs or a status is read. Empty unless `watch` was called."""
        if not self._touched:
            return ()
        touched, self._touched = tuple(self._touched), {}
        return touched

    def view(
        self,
        seen: str | None = None,
        loop: m.LoopBusy | None = None,
        connector_calls: tuple[m.ConnectorCall, ...] = (),
    ) -> m.WorkerView:
        """Return what the worker shows of itself. The arguments are those of `DescribeWorker`."""
        membership, pending = self._ctx.membership, self._pending()
        news = self._ctx.news
        told = None if seen is None else news.since(seen)
        changed, gone = told or ([], [])
        connectors = [item for item in changed if isinstance(item, str)]
        tasks = [item for item in changed if not isinstance(item, str)]
        return m.WorkerView(
            worker_id=self._ctx.settings.worker_id,
            url=self._ctx.settings.url,
            member_id=membership.member_id,
            leader=membership.leader,
            generation=membership.generation,
            config_offset=self._ctx.state.offset,
            settled=not pending,
            pending=pending,
            connectors=self._connectors.view(None if told is None else connectors),
            tasks=self._tasks.view(None if told is None else tasks),
            rebalances=self._work.member.rebalances,
            now_ms=self._ctx.now_ms,
            mark="" if seen is None else news.asked(),
            since=seen or "" if told is not None else "",
            gone_connectors=tuple(item for item in gone if isinstance(item, str)),
            gone_tasks=tuple(item for item in gone if not isinstance(item, str)),
            fencing_rounds=self._rounds.done,
            failed_fencing_rounds=self._rounds.failed,
            loop=loop,
            rebalance_times=self._work.times.read(self._ctx.now_ms),
            startups=m.Startups(*self._connectors.startups, *self._tasks.startups),
            connector_calls=connector_calls,
        )

    def _pending(self) -> tuple[str, ...]:
        start = [] if self._ctx.ready else ["reading the config topic"]
        return (
            *start,
            *self._work.pending,
            *self._leadership.pending,
            *self._rounds.pending,
            *self._requests.pending,
            *self._offset_changes.pending,
            *self._restarts.pending,
            *self._connectors.pending,
            *self._tasks.pending,
        )

    # -- the one dispatch on the kind of command --

    def _dispatch(self, command: m.Command) -> None:
        match command:
            case m.Tick():
                pass
            case m.ConfigRead(events):
                self._on_config_read(events)
            case m.ConfigEndRead(token, error):
                self._on_end_read(self._ctx.end_read(token), error)
            case m.ConfigAppended():
                if not self._leadership.on_appended(command):
                    self._requests.on_appended(command)
            case m.ConfigAppendFailed():
                if not self._leadership.on_append_failed(command):
                    self._requests.on_append_failed(command.token, command.reason)
            case m.LeadershipClaimed():
                if self._leadership.on_claimed(command):
                    self._leads_now()
            case m.StatusRead(records):
                self._on_status_read(records)
            case m.StatusesWritten(token):
                self._restart_answers.on_written(token)
            case m.GroupAnswered(response):
                self._work.on_group_answered(response)
            case m.CoordinatorLost(reason):
                self._work.on_coordinator_lost(reason)
            case m.Called(call_id, m.DescribeWorker(seen, loop, calls)):
                shown = wire.plain(self.view(seen, loop, calls))
                self._ctx.emit(m.Answer(call_id, m.Success(shown)))
            case m.Called():
                self._requests.on_called(command)
            case m.PeerAnswered(token, result):
                self._requests.on_peer_answered(token, result)
            case m.ConfigValidated():
                self._requests.on_validated(command)
            case m.ConnectorStarted(connector, run, version):
                self._connectors.on_started(connector, run, version)
            case m.ConnectorStopped(connector, run):
                self._connectors.on_stopped(connector, run)
            case m.ConnectorFailed():
                self._connectors.on_failed(command)
            case m.TaskConfigsGenerated():
                self._connectors.on_generated(command)
            case m.TaskReconfigurationRequested(connector, run):
                self._connectors.reconfigure(connector, run)
            case m.TaskReported(run, report):
                self._tasks.on_report(run, report)
            case m.ProducersFenced(token, error):
                self._rounds.on_fenced(token, error)
                self._offset_changes.on_fenced(token, error)
            case m.SessionKeyMade():
                self._keys.on_made(command)
            case m.ConnectorOffsetsRead():
                self._requests.on_offsets_read(command)
            case m.ConnectorOffsetsAltered():
                self._offset_changes.on_altered(command)
            case m.Shutdown():
                self._on_shutdown()
            case _:
                assert_never(command)

    # -- the config topic --

    def _on_config_read(self, events: tuple[ConfigEvent, ...]) -> None:
        ctx = self._ctx
        before = ctx.state
        ctx.state = fold(before, events)
        self._rows.configs_read(touched_by_configs(events))
        if self._touched is not None:
            self._touched.update(dict.fromkeys(touched_by_configs(events)))
        self._leadership.on_config_read()
        self._keys.on_read()
        if not ctx.ready:
            return  # nothing is held yet, and old restarts and logger levels are not replayed
        touched: dict[str, bool] = {}
        for event in events:
            match event:
                case RecordRejected():
                    pass
                case SessionKeyChanged():
                    self._keys.look()
                case LoggerLevelChanged(logger=logger, level=level):
                    ctx.emit(m.ApplyLoggerLevel(logger, level))
                case RestartRequested():
                    self._restarts.on_requested(event)
                case _:
                    name = event.connector
                    touched[name] = touched.get(name, False) or isinstance(event, TasksCommitted)
        stopped = {
            event.connector
            for event in events
            if isinstance(event, TargetStateChanged) and event.target_state is TargetState.STOPPED
        }
        removed = {event.connector for event in events if isinstance(event, ConnectorRemoved)}
        for name, committed in touched.items():
            if committed or name in removed:
                self._rounds.on_commit(name)
                self._tasks.on_commit(name)
                self._statuses.connector_changed(name)
            elif ctx.state.target_state(name) is not before.target_state(name):
                self._tasks.on_target_state(name)
            if name in removed:
                self._connectors.on_removed(name)
            self._connectors.on_config(name)
            self._offset_changes.on_config(name)
            if name in stopped:
                self._connectors.on_tasks_gone(name)
        if ctx.state.assignment_offset != before.assignment_offset:
            self._work.rejoin("connectors or their tasks have changed")
        self._restarts.carry_out()

    def _on_status_read(self, records: tuple[tuple[str, StatusEvent], ...]) -> None:
        self._statuses.on_read(records, leading=self._leadership.ready)
        self._rows.forget(touched_by_statuses(records))
        if self._touched is not None:
            self._touched.update(dict.fromkeys(touched_by_statuses(records)))

    def _on_end_read(self, purpose: c.Purpose | None, error: str | None) -> None:
        match purpose:
            case None | c.ForReadBack():
                pass
            case c.AtStart():
                if error is not None:
                    self._ctx.after(c.RETRY_DELAY_MS, c.ReadAgain(purpose))
                elif not self._ctx.stopping:
                    self._ctx.ready = True
                    self._work.join()
            case c.ForMember(number):
                self._work.caught_up(number, error)
            case c.ForClaim(generation):
                if self._leadership.on_all_read(generation, error):
                    self._leads_now()
            case c.ForUnchanged(subject):
                self._leadership.on_unchanged_read(subject, error)
            case c.ForRecheck(run):
                self._tasks.on_recheck_read(run, error)
            case c.ForFenced():
                self._tasks.on_fenced_read(purpose, error)
            case c.ForCall(ticket):
                self._requests.on_log_read(ticket, error)
            case c.ForRound():
                self._rounds.on_read(purpose, error)
            case c.ForOffsets():
                self._offset_changes.on_read(purpose, error)
            case _:
                assert_never(purpose)

    def _leads_now(self) -> None:
        self._statuses.clean_up(everything=not self._led_before)
        self._led_before = True
        self._keys.look()
        self._requests.membership_changed()

    # -- timers and notes --

    def _on_timer(self, timer: c.Timer) -> None:
        match timer:
            case c.CallDue(ticket):
                self._requests.on_due(ticket)
            case c.RouteAgain(ticket):
                self._requests.route_again(ticket)
            case c.ClaimAgain(generation):
                self._leadership.claim_again(generation)
            case c.ReadAgain(purpose):
                self._ctx.read_to_end(purpose)
            case c.GenerateAgain(connector, token):
                self._connectors.generate_again(connector, token)
            case c.FenceAgain(origin):
                self._tasks.ask_fencing_again(origin)
            case c.WakeTask(task, run):
                self._tasks.wake(task, run)
            case c.RestartFailedTask(task, run):
                self._tasks.restart_failed(task, run)
            case c.RestartFailedConnector(connector, number):
                self._connectors.restart_failed(connector, number)
            case c.LookAtKey():
                self._keys.look()
            case c.ForgetKey():
                self._keys.forget()
            case c.StartMore():
                pass  # `handle` starts what is due
            case c.StatusUnheard(key):
                self._statuses.on_unheard(key)
            case c.StatusesDue(token):
                self._restart_answers.on_written(token)
            case _:
                assert_never(timer)

    def _settle(self) -> None:
        """Carry notes from part to part until none is left."""
        ctx = self._ctx
        while ctx.notes or self._work.changed:
            if self._work.changed:
                self._on_membership_changed()
            while ctx.notes:
                self._on_note(ctx.notes.popleft())

    def _on_note(self, note: c.Note) -> None:
        match note:
            case c.Ask():
                self._requests.on_ask(note)
            case c.Restarted():
                self._restart_answers.on_restarted(note)
            case c.Resolved(ticket, result):
                self._requests.resolve(ticket, result)
            case c.Unplaced(ticket):
                self._requests.unplaced(ticket)
            case c.LookAgain(ticket):
                self._requests.look_again(ticket)
            case c.Finished(origin, result):
                self._on_finished(origin, result)
            case c.ConnectorReleased(connector):
                self._work.connector_released(connector)
            case c.TaskGone(task):
                self._work.task_gone(task)
            case c.RoundDone(connector, commit_offset):
                self._leadership.submit(RecordCount(connector, commit_offset))
            case c.CountRecorded():
                self._rounds.on_recorded(note)
            case c.LaneHeld(ticket, subject):
                self._offset_changes.on_lane_held(ticket, subject)
            case c.SessionKeyWritten(written):
                self._keys.on_written(written=written)
            case _:
                assert_never(note)

    def _on_finished(
        self, origin: c.FromConnector | c.FromTasks | c.FromOffsets, result: m.Result
    ) -> None:
        match origin:
            case c.FromConnector():
                self._connectors.on_published(origin, result)
            case c.FromTasks():
                self._tasks.on_fencing_result(origin, result)
            case c.FromOffsets():
                self._offset_changes.on_fencing_result(origin, result)
            case _:
                assert_never(origin)

    def _on_membership_changed(self) -> None:
        self._work.changed = False
        self._statuses.membership_changed()
        self._leadership.membership_changed()
        if not self._ctx.membership.is_leader:
            self._rounds.give_up()
            self._offset_changes.give_up()
            self._led_before = False
        self._requests.membership_changed()
        self._offset_changes.membership_changed()
        self._connectors.membership_changed()
        self._tasks.membership_changed()
        self._restarts.carry_out()

    # -- the end --

    def _on_shutdown(self) -> None:
        if self._ctx.stopping:
            return
        self._ctx.stopping = True
        self._requests.shut_down()
        self._work.leave()
