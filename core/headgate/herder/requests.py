"""Open calls: each is taken in, executed here or forwarded, and answered once.

One table has every call, from outside or from a part of this herder, from its arrival to its
answer. A call that finds no leader, or the wrong one, waits and is routed again until its time is
over. So a rebalance delays calls and does not fail them. Source: Connect's HerderRequestHandler and
DistributedHerder.

Differs: Java answers 409 and 500 during rebalances. Pause, resume and restart of a connector that
this worker does not know read the log first (Java answers 404 for one just created elsewhere).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, assert_never

from headgate.assignment.model import Work
from headgate.herder import messages as m
from headgate.herder.check import check_calls
from headgate.herder.connectors import Connectors
from headgate.herder.context import (
    Ask,
    CallDue,
    Context,
    Finished,
    ForCall,
    FromOutside,
    Origin,
    RouteAgain,
    retry_delay_ms,
)
from headgate.herder.fencing_rounds import FencingRounds
from headgate.herder.leadership import WRITE_FAILED, CallJob, Leadership
from headgate.herder.offset_changes import OffsetChanges
from headgate.herder.offset_input import NOTHING_GIVEN
from headgate.herder.offset_previews import (
    ChangeCall,
    OffsetCall,
    offsets_answer,
    place_of_offsets,
)
from headgate.herder.open_call import SHUTTING_DOWN, OpenCall, Stage
from headgate.herder.planning import group_result, moves_result, planned_stages, too_many
from headgate.herder.privileged import (
    STALE_CONFIG,
    MergedPatch,
    OrderRestart,
    PrivilegedCall,
    absent,
    merged,
)
from headgate.herder.reach import Reach, unreached
from headgate.herder.reads import (
    BEHIND,
    RESET_DISABLED,
    TRACKING_DISABLED,
    Read,
    is_behind,
    kind_of,
    read,
)
from headgate.herder.rows import KeptRows
from headgate.herder.statuses import Statuses
from headgate.herder.tasks import Tasks
from headgate.membership.member import Member
from headgate.topics.config_events import Config
from headgate.topics.config_records import Record, encode_logger_level, encode_target_state

HOPS_MAX: Final = 2
"""How often a call is forwarded at most: from any worker to the leader, and to the owner."""
INTERNAL_TIMEOUT_MS: Final = 10_000
"""Time limit of the herder's own calls: they are repeated, so a lost answer costs no more."""
ROUTE_DELAY_MS_MAX: Final = 2_000

NO_LEADER = (
    "Cannot complete request momentarily due to no known leader URL, likely because a rebalance "
    "was underway."
)
CONFLICTING = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
DIFFERENT_TOPICS = "Members of this group read different config topics"
NOT_CLAIMED = "The worker leads, but cannot write the config topic yet, and tries again: {}"
_OF_THE_MOMENT = (NO_LEADER, CONFLICTING, STALE_CONFIG)


class Requests:
    def __init__(
        self,
        ctx: Context,
        member: Member,
        leadership: Leadership,
        rounds: FencingRounds,
        connectors: Connectors,
        tasks: Tasks,
        statuses: Statuses,
        offset_changes: OffsetChanges,
        rows: KeptRows,
    ) -> None:
        self._ctx = ctx
        self._member = member
        self._leadership = leadership
        self._rounds = rounds
        self._connectors = connectors
        self._tasks = tasks
        self._statuses = statuses
        self._offset_changes = offset_changes
        self._rows = rows
        self._open: dict[int, OpenCall] = {}
        self._by_token: dict[int, int] = {}
        self._reach = Reach(ctx.settings)

    # -- in --

    def on_called(self, command: m.Called) -> None:
        if self._ctx.stopping:
            failure = m.Failure(m.ErrorKind.NOT_READY, SHUTTING_DOWN)
            self._ctx.emit(m.Answer(command.call_id, failure))
            return
        latest_ms = self._ctx.now_ms + self._ctx.settings.request_timeout_ms
        deadline_ms = latest_ms if command.deadline_ms is None else command.deadline_ms
        self._take(FromOutside(command.call_id), command.call, command.hops, deadline_ms)

    def on_ask(self, note: Ask) -> None:
        self._take(note.origin, note.call, 0, self._ctx.now_ms + INTERNAL_TIMEOUT_MS)

    def _take(self, origin: Origin, call: m.Call, hops: int, deadline_ms: int) -> None:
        ticket = self._ctx.token()
        terms = self._leadership.terms
        self._open[ticket] = OpenCall(ticket, origin, call, hops, deadline_ms, terms=terms)
        self._ctx.after(max(deadline_ms - self._ctx.now_ms, 0), CallDue(ticket))
        self._route(self._open[ticket])

    # -- out --

    def resolve(self, ticket: int, result: m.Result) -> None:
        """Answer a call and remove it from the table. No other code removes calls."""
        found = self._open.pop(ticket, None)
        if found is None:
            return  # its time was over before its result came
        self._by_token.pop(found.token, None)
        self._offset_changes.closed(ticket)
        if isinstance(found.origin, FromOutside):
            self._ctx.emit(m.Answer(found.origin.call_id, result))
        else:
            self._ctx.note(Finished(found.origin, result))

    def on_due(self, ticket: int) -> None:
        found = self._open.get(ticket)
        if found is None:
            return
        if found.unreached:
            self.resolve(ticket, unreached(found, self._ctx.now_ms))
        elif found.stage is Stage.WAITING and is_behind(self._ctx.state, found.call):
            text = BEHIND.format(self._ctx.state.offset)
            self.resolve(found.ticket, m.Failure(m.ErrorKind.TIMEOUT, text))
        elif found.stage is Stage.WAITING:
            text = CONFLICTING if self._ctx.membership.leader else NO_LEADER
            if words := self._member.disagreement.words:
                text = f"{text.rstrip('.')}. {DIFFERENT_TOPICS}: {words}"
            self.resolve(ticket, m.Failure(m.ErrorKind.CONFLICT, self._error_text or text))
        else:
            text = f"Request timed out. The worker is currently {found.stage.value}."
            told = f"{text} {self._error_text}".rstrip()
            self.resolve(ticket, m.Failure(m.ErrorKind.TIMEOUT, told))

    @property
    def _error_text(self) -> str:
        """Why this worker, as leader, cannot write; empty if it knows of no reason."""
        if not (self._ctx.membership.is_leader and self._leadership.error_text):
            return ""
        return NOT_CLAIMED.format(self._leadership.error_text)

    def shut_down(self) -> None:
        for ticket, found in list(self._open.items()):
            self.resolve(ticket, found.shut_down())

    def disagreements(self) -> Iterator[str]:
        parts = (self._rounds, self._offset_changes, self._leadership)
        return check_calls(self._open, self._by_token, self._ctx, *parts)

    # -- to the worker that executes it --

    def _route(self, found: OpenCall) -> None:
        call = found.call
        self._by_token.pop(found.token, None)  # an answer of the worker asked before is stale
        if self._gone_elsewhere(found):
            return
        match call:
            case m.DescribeWorker():
                raise AssertionError("answered by the herder itself")
            case m.SetTargetState() if not found.changes_as_leader:
                self._set_target_state(found, call)
            case m.CreateConnector() | m.PutConnectorConfig() if not found.validated:
                self._validate(found, call)
            case m.PatchConnectorConfig():
                self._patch(found, call)
            case m.RestartConnector() if call.by_record:
                self._order_restart(found, call)
            case m.RestartConnector():
                self._restart_connector(found, call)
            case m.RestartTask():
                self._restart_task(found, call)
            case m.FenceConnector():
                if self._leadership.ready:
                    found.stage = Stage.FENCING
                    self._rounds.join(found.ticket, call.connector)
                else:
                    self._pass_to_leader(found)
            case (
                m.CreateConnector()
                | m.PutConnectorConfig()
                | m.DeleteConnector()
                | m.SetTargetState()
                | m.PutTaskConfigs()
            ):
                self._submit(found, call)
            case (
                m.ListConnectors()
                | m.DescribeConnector()
                | m.DescribeTasks()
                | m.DescribeStatus()
                | m.DescribeTaskStatus()
                | m.DescribeTopics()
                | m.ShowConnector()
                | m.ShowConnectors()
            ):
                self._read(found, call)
            case m.ForeseeMoves():
                self._foresee(found, call)
            case m.DescribeGroup():
                self._describe_group(found)
            case m.ResetTopics():
                self.resolve(found.ticket, self._reset_topics(call))
            case m.SetLoggerLevel(logger, level):
                self._append(found, encode_logger_level(logger, level))
            case m.ReadOffsets() | m.ReadDeletedOffsets():
                self._ask_for_offsets(found, call)
            case m.AlterOffsets() | m.ResetOffsets() | m.ResetDeletedOffsets():
                self._change_offsets(found, call)
            case _:
                assert_never(call)

    def _submit(self, found: OpenCall, call: PrivilegedCall) -> None:
        """Submit the call to the leader's writes, on this worker or another."""
        if self._leadership.ready:
            found.stage = Stage.WRITING
            self._leadership.submit(CallJob(found.ticket, call))
        else:
            self._pass_to_leader(found)

    def _gone_elsewhere(self, found: OpenCall) -> bool:
        """Refuse a forwarded change, unless this worker has led ever since it came. Return whether
        it was refused. The worker that forwarded it asks the next leader itself, and may be
        answered before this one gets to the change, which would then undo what was acknowledged
        since."""
        if found.hops == 0 or not found.changes_as_leader:
            return False
        leads = self._ctx.membership.leader_url == self._ctx.settings.url
        if leads and found.terms == self._leadership.terms:
            return False
        self.resolve(found.ticket, m.Failure(m.ErrorKind.CONFLICT, CONFLICTING))
        return True

    def _pass_to_leader(self, found: OpenCall) -> None:
        membership = self._ctx.membership
        found.asked_leader = membership.leader
        self._pass(found, membership.leader_url)

    def _pass(self, found: OpenCall, url: str) -> None:
        if not url or url == self._ctx.settings.url:
            # No worker is known, or it is this one, which is still claiming the log. The call is
            # routed again when that changes.
            found.stage = Stage.WAITING
        elif found.hops >= HOPS_MAX:
            self.resolve(found.ticket, m.Failure(m.ErrorKind.CONFLICT, CONFLICTING))
        else:
            found.stage = Stage.ELSEWHERE
            self._await_token(found)
            self._reach.asks(found, url, self._ctx.now_ms)
            left_ms = max(found.deadline_ms - self._ctx.now_ms, 0)
            self._ctx.emit(m.CallPeer(found.token, url, found.call, found.hops + 1, left_ms))

    def _await_token(self, found: OpenCall) -> None:
        self._by_token.pop(found.token, None)
        found.token = self._ctx.token()
        self._by_token[found.token] = found.ticket

    def _awaited(self, token: int) -> OpenCall | None:
        """Return the call that waits for this answer; None: none does any more."""
        ticket = self._by_token.pop(token, None)
        return None if ticket is None else self._open.get(ticket)

    def on_peer_answered(self, token: int, result: m.Result) -> None:
        found = self._awaited(token)
        if found is None:
            return
        if isinstance(result, m.Failure) and result.kind is m.ErrorKind.UNREACHABLE:
            self._on_unreachable(found, result)
            return
        self._reach.answered(found)
        if isinstance(result, m.Failure) and self._may_pass(found, result):
            self._look_later(found)
        else:
            self.resolve(found.ticket, result)

    def _on_unreachable(self, found: OpenCall, failure: m.Failure) -> None:
        """Handle that nobody could be asked. Only the worker where the call came in retries."""
        told = self._reach.failed(found, failure, self._ctx.now_ms)
        if found.hops > 0:
            told = unreached(found, self._ctx.now_ms)
        if told is None:
            self._look_later(found)
        else:
            self.resolve(found.ticket, told)

    def _may_pass(self, found: OpenCall, failure: m.Failure) -> bool:
        """Return whether the call may be retried: the worker asked was the wrong one, is shutting
        down, or is a Java worker in a rebalance. Only the worker where the call came in retries it.
        After a conflict, parts of this herder make a new call from newer configs instead."""
        if found.hops > 0:
            return False
        if failure.kind is m.ErrorKind.CONFLICT and isinstance(found.origin, FromOutside):
            return failure.message.startswith(_OF_THE_MOMENT)
        return failure.kind is m.ErrorKind.NOT_READY

    def _look_later(self, found: OpenCall) -> None:
        found.stage = Stage.WAITING
        found.failures += 1
        delay_ms = min(retry_delay_ms(found.failures), ROUTE_DELAY_MS_MAX)
        self._ctx.after(delay_ms, RouteAgain(found.ticket))

    def route_again(self, ticket: int) -> None:
        found = self._open.get(ticket)
        if found is not None and found.stage is Stage.WAITING:
            self._route(found)

    def unplaced(self, ticket: int) -> None:
        found = self._open.get(ticket)
        if found is not None:
            found.stage = Stage.WAITING
            self._look_later(found)

    def membership_changed(self) -> None:
        """Route waiting calls again: the generation is new, or this worker leads now. Also route
        calls that were sent to a former leader, if asking twice does no harm."""
        leader = self._ctx.membership.leader
        for found in list(self._open.values()):
            if found.stage is Stage.WAITING or (
                found.stage is Stage.ELSEWHERE
                and leader
                and found.asked_leader not in ("", leader)
                and not isinstance(found.call, m.CreateConnector | m.DeleteConnector)
                and not found.has_etag
            ):
                self._route(found)

    # -- reads, and resets of topics: any worker --

    def _read(self, found: OpenCall, call: Read) -> None:
        if is_behind(self._ctx.state, call) and found.log_read:
            found.log_read = False
            self._look_later(found)
            return
        ready = self._ctx.ready and not found.to_end
        if is_behind(self._ctx.state, call) or not (ready or found.log_read):
            self._read_log(found)
            return
        ctx = self._ctx
        self._rows.asked(ctx.now_ms)
        result = read(ctx.state, self._statuses.view, call, ctx.settings, self._rows)
        if (
            isinstance(call, m.DescribeConnector | m.DescribeTasks | m.ShowConnector)
            and isinstance(result, m.Failure)
            and not found.log_read
        ):
            self._read_log(found)
            return
        self.resolve(found.ticket, result)

    def _foresee(self, found: OpenCall, call: m.ForeseeMoves) -> None:
        """Predict from the last round. If it is outdated, another one comes before the moves."""
        if not self._ctx.membership.is_leader:
            self._pass_to_leader(found)
            return
        stages = planned_stages(self._ctx.state, call.task_counts)
        refusal = too_many(stages)
        led = self._member.led()
        moves = None if led is None else led.foresee(stages)
        self.resolve(found.ticket, refusal or moves_result(moves))

    def _describe_group(self, found: OpenCall) -> None:
        led = self._member.led()
        if led is None:
            self._pass_to_leader(found)
        else:
            self.resolve(found.ticket, group_result(self._ctx.settings.url, led))

    def _ask_for_offsets(self, found: OpenCall, call: OffsetCall) -> None:
        place = place_of_offsets(self._ctx.state, call, self._ctx.settings, log_read=found.log_read)
        if place is None:
            self._read_log(found)
        elif isinstance(place, m.Failure):
            self.resolve(found.ticket, place)
        else:
            found.stage = Stage.READING_OFFSETS
            self._await_token(found)
            read = (call.name, place.config, place.kind, place.changes)
            self._ctx.emit(m.ReadConnectorOffsets(found.token, *read))

    def on_offsets_read(self, answer: m.ConnectorOffsetsRead) -> None:
        found = self._awaited(answer.token)
        if found is None:
            return
        assert isinstance(found.call, OffsetCall)
        result = offsets_answer(found.call, answer, self._ctx.state, self._ctx.settings)
        self.resolve(found.ticket, result)

    def _change_offsets(self, found: OpenCall, call: ChangeCall) -> None:
        if isinstance(call, m.AlterOffsets) and not call.offsets:
            self.resolve(found.ticket, NOTHING_GIVEN)
        elif call.dry_run:
            self._ask_for_offsets(found, call)
        elif self._leadership.ready:
            found.stage = Stage.CHANGING_OFFSETS
            self._offset_changes.begin(found.ticket, call)
        else:
            self._pass_to_leader(found)

    def _reset_topics(self, call: m.ResetTopics) -> m.Result:
        settings = self._ctx.settings
        if not settings.topic_tracking:
            return TRACKING_DISABLED
        if not settings.topic_tracking_reset:
            return RESET_DISABLED
        self._statuses.reset_topics(call.name)
        return m.Success()

    # -- create, put, patch: validation first --

    def _validate(self, found: OpenCall, call: m.CreateConnector | m.PutConnectorConfig) -> None:
        if self._name_fits(found, call.name, call.config.get("name")):
            config: Config = {**call.config, "name": call.name}
            found.call = replace(call, config=config)
            self._ask_to_validate(found, call.name, config)

    def _name_fits(self, found: OpenCall, name: str, given: str | None) -> bool:
        if given is None or given == name:
            return True
        text = (
            f"Connector name configuration ({given}) doesn't match connector name in the URL "
            f"({name})"
        )
        self.resolve(found.ticket, m.Failure(m.ErrorKind.BAD_REQUEST, text))
        return False

    def _ask_to_validate(self, found: OpenCall, name: str, config: Config) -> None:
        found.stage = Stage.VALIDATING
        self._await_token(found)
        self._ctx.emit(m.ValidateConfig(found.token, name, config))

    def _patch(self, found: OpenCall, call: m.PatchConnectorConfig) -> None:
        """Merge the patch as leader, have the whole config validated, and write it. If the config
        in force has changed in between, begin again."""
        entry = self._ctx.state.entry(call.name)
        if not self._leadership.ready:
            self._pass_to_leader(found)
        elif entry is None or entry.config is None:
            self._unless_read(found, absent(self._ctx.state, call.name, call.etag))
        elif found.validated and found.merged is not None:
            self._submit(found, MergedPatch(call.name, call.changes, found.merged, call.etag))
        elif self._name_fits(found, call.name, call.changes.get("name")):
            found.merged = merged(call.name, entry.config, call.changes)
            self._ask_to_validate(found, call.name, found.merged)

    def look_again(self, ticket: int) -> None:
        """Merge a patch again, because the config that it was merged with is not in force."""
        found = self._open.get(ticket)
        if found is not None:
            found.validated = False
            self._route(found)

    def on_validated(self, answer: m.ConfigValidated) -> None:
        found = self._awaited(answer.token)
        if found is None:
            return
        if answer.errors:
            failure = m.Failure(m.ErrorKind.BAD_REQUEST, "\n".join(answer.errors))
            self.resolve(found.ticket, failure)
            return
        found.validated = True
        self._route(found)

    # -- pause, resume: any worker --

    def _set_target_state(self, found: OpenCall, call: m.SetTargetState) -> None:
        if self._ctx.state.entry(call.name) is None:
            self._unless_read(found, f"Unknown connector {call.name}")
            return
        self._append(found, encode_target_state(call.name, call.target_state))

    def _append(self, found: OpenCall, record: Record) -> None:
        """Append a record that any worker may write. It is not read back before the answer."""
        found.stage = Stage.WRITING
        self._await_token(found)
        self._ctx.emit(m.AppendConfig(found.token, (record,), privileged=False))

    def _unless_read(self, found: OpenCall, refusal: str | m.Failure) -> None:
        """Refuse the call (NOT_FOUND if given a text) once the log was read to its end for it."""
        if found.log_read:
            if isinstance(refusal, str):
                refusal = m.Failure(m.ErrorKind.NOT_FOUND, refusal)
            self.resolve(found.ticket, refusal)
        else:
            self._read_log(found)

    def _read_log(self, found: OpenCall) -> None:
        found.stage = Stage.READING
        self._ctx.read_to_end(ForCall(found.ticket), statuses=found.to_end)

    def on_log_read(self, ticket: int, error: str | None) -> None:
        found = self._open.get(ticket)
        if found is None:
            return
        if error is not None:
            self._look_later(found)
            return
        found.log_read = True
        self._route(found)

    def on_appended(self, answer: m.ConfigAppended) -> None:
        found = self._awaited(answer.token)
        if found is not None:
            etag = answer.end if isinstance(found.call, m.SetTargetState) else None
            self.resolve(found.ticket, m.Success(config_offset=answer.end, etag=etag))

    def on_append_failed(self, token: int, reason: str) -> None:
        found = self._awaited(token)
        if found is not None:
            failure = m.Failure(m.ErrorKind.INTERNAL, f"{WRITE_FAILED} ({reason})")
            self.resolve(found.ticket, failure)

    # -- restarts: with flags by record, else by the owner --

    def _order_restart(self, found: OpenCall, call: m.RestartConnector) -> None:
        """Make the plan, then write the restart record, so that the plan says what the record
        restarts. Java makes the plan after the write (DistributedHerder.restartConnectorAndTasks),
        when a quick owner may already have reported RUNNING."""
        name = call.name
        if self._ctx.state.entry(name) is None:
            self._unless_read(found, f"Unknown connector: {name}")
            return
        plan = self._statuses.view.restart_plan(
            name,
            kind_of(self._ctx.state, name, self._ctx.settings),
            include_tasks=call.include_tasks,
            only_failed=call.only_failed,
        )
        if plan is None and self._leadership.ready:
            text = f"Status for connector {name} not found"
            self.resolve(found.ticket, m.Failure(m.ErrorKind.NOT_FOUND, text))
        else:
            answer = m.Success(plan)
            self._submit(found, OrderRestart(name, call.include_tasks, call.only_failed, answer))

    def _restart_connector(self, found: OpenCall, call: m.RestartConnector) -> None:
        if self._ctx.state.entry(call.name) is None:
            self._unless_read(found, f"Unknown connector: {call.name}")
        elif self._connectors.holds(call.name):
            found.stage = Stage.RESTARTING
            self._connectors.restart(found.ticket, call.name)
        else:
            self._pass_to_owner(found, call.name)

    def _restart_task(self, found: OpenCall, call: m.RestartTask) -> None:
        task = call.task
        if self._ctx.state.entry(task.connector) is None:
            self._unless_read(found, f"Unknown connector: {task.connector}")
        elif self._ctx.state.task_config(task) is None:
            self._unless_read(found, f"Unknown task: {task}")
        elif self._tasks.holds(task):
            found.stage = Stage.RESTARTING
            self._tasks.restart(found.ticket, task)
        else:
            self._pass_to_owner(found, task)

    def _pass_to_owner(self, found: OpenCall, work: Work) -> None:
        """Forward the call to the owner, by way of the leader, which alone knows owners."""
        if not self._ctx.membership.is_leader:
            self._pass_to_leader(found)
            return
        found.asked_leader = ""
        self._pass(found, self._member.owner_url(work) or "")

    @property
    def pending(self) -> list[str]:
        """Calls that this worker is executing itself, in words."""
        return [
            f"{type(found.call).__name__}: {found.stage.value}"
            for found in self._open.values()
            if found.stage in (Stage.WRITING, Stage.FENCING, Stage.RESTARTING)
        ]
