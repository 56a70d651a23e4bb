"""The worker's membership of its group, and what follows from it for connectors and tasks.

`GroupWork` embeds the member machine. It tells the machine which work is held, and turns the
machine's outputs into starts, stops and releases. Source: Connect's WorkerCoordinator,
DistributedHerder.RebalanceListener.
"""

from collections.abc import Iterator
from dataclasses import replace

from headgate.herder.connectors import Connectors
from headgate.herder.context import Context, ForMember
from headgate.herder.messages import SendGroup
from headgate.herder.round_times import RoundTimes
from headgate.herder.tasks import Tasks
from headgate.ids import TaskId
from headgate.membership import member_messages as mm
from headgate.membership.member import Member
from headgate.membership.member_messages import MemberState
from headgate.membership.messages import GroupResponse, HeartbeatAnswered

_WORKING = (MemberState.STEADY, MemberState.RELEASING)
"""States in which work may be started once the member has allowed it."""

_SILENCE = (mm.Tick, mm.CoordinatorLost)
"""Inputs after which the coordinator is out of reach, if the member then stops everything."""


class GroupWork:
    def __init__(self, ctx: Context, connectors: Connectors, tasks: Tasks) -> None:
        self._ctx = ctx
        self._connectors = connectors
        self._tasks = tasks
        settings = ctx.settings
        self.member = Member(
            mm.MemberSettings(
                group=settings.group,
                client_id=settings.client_id or settings.worker_id,
                url=settings.url,
                session_timeout_ms=settings.session_timeout_ms,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                rebalance_timeout_ms=settings.rebalance_timeout_ms,
                delay_ms_max=settings.rebalance_delay_ms_max,
                policy=settings.policy,
                protocols=settings.protocols,
                config_topic=settings.config_topic,
                grpc=settings.grpc_address,
            )
        )
        self.assigned: mm.Assigned | None = None
        """The assignment of the last rebalance that this worker completed."""
        self.times = RoundTimes()
        self.changed = False
        """The membership has changed since the other parts were told."""
        self._start_allowed = False
        self._catch_up = 0
        """Number of the last read of the log that the member asked for."""
        self._awaiting_release = False
        self._releasing_connectors: dict[str, None] = {}
        self._releasing_tasks: dict[TaskId, None] = {}
        self._view: mm.WorkView | None = None
        self._configured: dict[str, int] = {}
        self._configured_at: int | None = None

    # -- inputs --

    def join(self) -> None:
        self._give(mm.Start())

    def tick(self) -> None:
        deadline_ms = self.member.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= self._ctx.now_ms:
            self._give(mm.Tick())

    def on_group_answered(self, response: GroupResponse) -> None:
        self.times.heard()
        self._give(response)
        if (
            isinstance(response, HeartbeatAnswered)
            and response.error is None
            and response.generation == self._ctx.membership.generation
        ):
            self._tasks.on_membership_confirmed(response.sent_ms)

    def on_coordinator_lost(self, reason: str) -> None:
        self._give(mm.CoordinatorLost(reason))

    def rejoin(self, reason: str) -> None:
        self._start_allowed = False  # what is assigned is about to change
        self._give(mm.RejoinRequested(reason))

    def caught_up(self, number: int, error: str | None) -> None:
        if number == self._catch_up:
            self._give(mm.CaughtUp(error))

    def leave(self) -> None:
        self._give(mm.Leave())

    @property
    def left(self) -> bool:
        idle = not (self._awaiting_release or any(self._tasks.held) or any(self._connectors.held))
        return idle and self.member.state is MemberState.OUTSIDE

    # -- what was released --

    def connector_released(self, connector: str) -> None:
        self._view = None
        self._releasing_connectors.pop(connector, None)
        self._release()

    def task_gone(self, task: TaskId) -> None:
        self._view = None
        self._releasing_tasks.pop(task, None)
        self._release()

    def _release(self) -> None:
        if self._awaiting_release and not self._releasing_tasks and not self._releasing_connectors:
            self._awaiting_release = False
            self._give(mm.WorkReleased())

    # -- the member machine --

    def _give(self, given: mm.MemberInput) -> None:
        for output in self.member.handle(self._ctx.now_ms, given, self._work_view()):
            if isinstance(output, mm.StopEverything) and isinstance(given, _SILENCE):
                self.times.lost()
            self._carry_out(output)
        self._update_membership()
        state = self.member.state
        steady, outside = state is MemberState.STEADY, state is MemberState.OUTSIDE
        self.times.look(self._ctx.now_ms, steady=steady, outside=outside)
        self._release()

    def _carry_out(self, output: mm.MemberOutput) -> None:
        match output:
            case mm.Assigned():
                self._assigned(output)
            case mm.Revoked(connectors, tasks):
                self._revoke(connectors, tasks)
            case mm.StopEverything():
                self._start_allowed = False
                self._ctx.membership.stable = self._ctx.membership.alive = False
                self._revoke(tuple(self._connectors.held), tuple(self._tasks.held))
            case mm.CatchUp():
                self._catch_up += 1
                self._ctx.read_to_end(ForMember(self._catch_up))
            case mm.StartAllowed():
                self._start_allowed = True
                self._ctx.membership.stable = True
                self.changed = True
            case _:
                self._ctx.emit(SendGroup(output))

    def _assigned(self, assigned: mm.Assigned) -> None:
        self.assigned = assigned
        membership = self._ctx.membership
        membership.member_id = self.member.member_id
        membership.generation = assigned.generation
        membership.protocol = assigned.protocol
        membership.leader = assigned.leader
        membership.leader_url = assigned.leader_url
        membership.alive = True
        self._start_allowed = False
        self._view = None
        for connector in assigned.connectors:
            self._releasing_connectors.pop(connector, None)
        if self._releasing_tasks:
            for task in assigned.tasks:
                self._releasing_tasks.pop(task, None)
        self._connectors.assign(assigned.connectors)
        self._tasks.assign(assigned.tasks)
        self.changed = True

    def _revoke(self, connectors: tuple[str, ...], tasks: tuple[TaskId, ...]) -> None:
        self._awaiting_release = True
        self._releasing_connectors.update(dict.fromkeys(connectors))
        self._releasing_tasks.update(dict.fromkeys(tasks))
        for connector in connectors:
            if not self._connectors.holds_any(connector):
                self._releasing_connectors.pop(connector, None)
        for task in tasks:
            if not self._tasks.holds_any(task):
                self._releasing_tasks.pop(task, None)
        self._tasks.revoke(tasks)
        self._connectors.revoke(connectors)
        self.changed = True

    def _update_membership(self) -> None:
        """Update `Context.membership` from the member's state after an input."""
        membership, member = self._ctx.membership, self.member
        alive = member.generation >= 0
        stable = self._start_allowed and alive and member.state in _WORKING
        if not alive and membership.leader:
            membership.leader = membership.leader_url = ""
            membership.generation = -1
            self.changed = True
        if (membership.alive, membership.stable) != (alive, stable):
            membership.alive, membership.stable = alive, stable
            self.changed = True
        membership.member_id = member.member_id

    def _work_view(self) -> mm.WorkView:
        """Return the work as the member must know it. It is kept until something in it changes,
        since it is as large as the work that is held."""
        state = self._ctx.state
        if self._configured_at != state.assignment_offset:
            self._configured_at = state.assignment_offset
            self._configured = {
                name: 0 if entry.inconsistent else max(entry.task_count or 0, 0)
                for name, entry in state.entries.items()
                if entry.config is not None
            }
            self._view = None
        if self._view is None:
            self._view = mm.WorkView(
                state.assignment_offset,
                state.offset,
                self._configured,
                tuple(self._connectors.held),
                tuple(self._tasks.held),
            )
        elif self._view.config_offset != state.offset:
            self._view = replace(self._view, config_offset=state.offset)
        return self._view

    def disagreements(self) -> Iterator[str]:
        """Yield, in words, where the work held differs from the assignment."""
        membership = self._ctx.membership
        releasing = [*self._releasing_connectors, *map(str, self._releasing_tasks)]
        if releasing and not self._awaiting_release:
            yield f"{releasing} are being released, and nobody waits for it"
        for name in self._releasing_connectors:
            if not self._connectors.holds_any(name) or self._connectors.holds(name):
                yield f"connector {name} is being released; it is kept, or not held"
        for task in self._releasing_tasks:
            if not self._tasks.holds_any(task) or self._tasks.holds(task):
                yield f"task {task} is being released; it is kept, or not held"
        assigned = self.assigned
        if not membership.stable or assigned is None:
            return
        if (membership.alive, membership.generation) != (True, assigned.generation):
            yield f"work of generation {assigned.generation} may start in {membership.generation}"
        kept = {name for name in self._connectors.held if self._connectors.holds(name)}
        if kept != set(assigned.connectors):
            yield f"connectors held: {sorted(kept)}, assigned: {sorted(assigned.connectors)}"
        tasks = {task for task in self._tasks.held if self._tasks.holds(task)}
        if tasks != set(assigned.tasks):
            words = [sorted(map(str, each))[:5] for each in (tasks, assigned.tasks)]
            yield f"tasks held: {words[0]}, assigned: {words[1]}"

    @property
    def pending(self) -> list[str]:
        disagreement = self.member.disagreement.words
        return [*self.member.pending, *([disagreement] if disagreement else ())]
