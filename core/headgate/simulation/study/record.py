"""Who writes down the facts of a run: told of each message, task and worker as it happens."""

from collections.abc import Callable

from headgate.ids import TargetState, TaskId
from headgate.membership.codec import CODECS, Assignment, AssignmentError
from headgate.membership.leading import changed
from headgate.membership.messages import (
    GroupRequest,
    GroupResponse,
    Heartbeat,
    HeartbeatAnswered,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    SyncedGroup,
    SyncGroup,
)
from headgate.membership.protocols import RULES
from headgate.simulation.study import facts as f
from headgate.simulation.world import Worker
from headgate.task.messages import TaskSpec
from headgate.topics.config_state import ConfigState


def worker_of(member_id: str) -> str:
    """Name of the worker whose member id this is: worker ids are ``w1.2``, member ids
    ``w1.2-17``."""
    return member_id.partition(".")[0]


class Record:
    """The facts of one run, in their order, and what is true now."""

    def __init__(self, now_ms: Callable[[], int], *, trace: bool) -> None:
        self.facts: list[f.Fact] = []
        self._now_ms = now_ms
        self._trace = trace
        self._told: tuple[tuple[TaskId, ...], tuple[TaskId, ...]] = ((), ())
        self._connectors: tuple[str, ...] = ()
        self._configured: tuple[TaskId, ...] = ()
        self._joined: JoinedGroup | None = None
        """The leader's answer of the last round, with what all members said."""
        self._began: tuple[int, str] | None = None
        """When the round that is under way began, and why."""
        self._completed = -1

    # -- workers and events --

    def happened(self, event: int, text: str) -> None:
        self.facts.append(f.Happened(self._now_ms(), event, text))

    def worker(self, name: str, change: f.Change) -> None:
        self.facts.append(f.WorkerChanged(self._now_ms(), name, change))

    def refused(self, what: str, why: str, *, again: bool) -> None:
        self.facts.append(f.Refused(self._now_ms(), what, why, again))

    # -- tasks --

    def task(self, worker: str, spec: TaskSpec, *, runs: bool) -> None:
        self.facts.append(f.TaskChanged(self._now_ms(), spec.task, worker, runs, spec.run))

    def config(self, state: ConfigState) -> None:
        """The config topic has grown to `state`."""
        self._connectors = tuple(sorted(state.connector_names()))
        self._configured = tuple(task for name in self._connectors for task in state.tasks(name))
        wanted = tuple(
            task
            for task in self._configured
            if state.target_state(task.connector) is TargetState.STARTED
        )
        paused = tuple(task for task in self._configured if task not in set(wanted))
        if (wanted, paused) != self._told:
            self._told = wanted, paused
            self.facts.append(f.Configured(self._now_ms(), wanted, paused))

    # -- the group --

    def sending(self, worker: Worker, request: GroupRequest) -> None:
        """`request` arrives at the coordinator now."""
        if self._trace:
            self._sent(worker.name, "broker", _request_text(request))
        if isinstance(request, JoinGroup) and self._began is None:
            pending = worker.herder.view().pending
            reason = next((text for text in pending if text.startswith("joining")), "")
            why = reason.partition(": ")[2] or "it joins"
            self._began = self._now_ms(), f"{worker.name}: {why}"

    def received(self, worker: str, response: GroupResponse) -> None:
        """`response` arrives at a worker now."""
        if self._trace:
            self._sent("broker", worker, _response_text(response))

    def answered(self, response: GroupResponse) -> None:
        """The coordinator has answered."""
        if isinstance(response, JoinedGroup) and response.members:
            self._joined = response

    def gone(self, member_id: str, why: str) -> None:
        worker = worker_of(member_id)
        self.facts.append(f.MemberGone(self._now_ms(), worker, why))
        if self._began is None:
            self._began = self._now_ms(), f"{worker} {why}"

    def synced(self, request: SyncGroup) -> None:
        """The leader's assignments are accepted: the round is complete."""
        joined = self._joined
        if joined is None or request.generation <= self._completed:
            return
        self._completed = request.generation
        codec = CODECS[joined.protocol]
        assignments = {
            member_id: codec.decode_assignment(data)
            for member_id, data in request.assignments.items()
        }
        held = {
            member.member_id: codec.decode_metadata(member.metadata) for member in joined.members
        }
        eager = RULES[joined.protocol].eager
        members: list[f.MemberRound] = []
        for member_id, assignment in assignments.items():
            had = ((), ()) if eager else (held[member_id].connectors, held[member_id].tasks)
            members.append(_round(member_id, *had, assignment))
        has: set[str | TaskId] = set()
        for one in members:
            has.update(one.connectors, one.revoked_connectors, one.tasks, one.revoked_tasks)
        first = next(iter(assignments.values()))
        began_ms, why = self._began or (self._now_ms(), "")
        self._began = None
        self.facts.append(
            f.Rebalanced(
                at_ms=self._now_ms(),
                began_ms=began_ms,
                why=why,
                generation=request.generation,
                protocol=joined.protocol,
                leader=worker_of(joined.leader),
                members=tuple(members),
                waiting_connectors=tuple(name for name in self._connectors if name not in has),
                waiting_tasks=tuple(task for task in self._configured if task not in has),
                delay_ms=first.delay_ms,
                failed=first.error is not AssignmentError.NONE,
            )
        )

    def _sent(self, source: str, target: str, text: str) -> None:
        self.facts.append(f.Sent(self._now_ms(), source, target, text))


def _round(
    member_id: str,
    connectors: tuple[str, ...],
    tasks: tuple[TaskId, ...],
    assignment: Assignment,
) -> f.MemberRound:
    change = assignment.change
    after = changed(connectors, tasks, change)
    return f.MemberRound(
        worker_of(member_id),
        tuple(sorted(after[0])),
        tuple(sorted(after[1])),
        change.assigned_connectors,
        change.assigned_tasks,
        change.revoked_connectors,
        change.revoked_tasks,
    )


def _request_text(request: GroupRequest) -> str:
    match request:
        case JoinGroup():
            names = ", ".join(name for name, _ in request.protocols)
            member = request.member_id or "without a member id"
            return f"JoinGroup {member}, protocols {names}"
        case SyncGroup():
            count = len(request.assignments)
            brought = f" with {count} assignments" if count else ""
            return f"SyncGroup generation {request.generation}{brought}"
        case Heartbeat():
            return f"Heartbeat generation {request.generation}"
        case LeaveGroup():
            return f"LeaveGroup {request.member_id}"


def _response_text(response: GroupResponse) -> str:
    error = f": {response.error}" if response.error else ""
    match response:
        case JoinedGroup():
            if error:
                return f"JoinGroup answered{error}"
            leader = worker_of(response.leader)
            return f"JoinGroup answered: generation {response.generation}, leader {leader}"
        case SyncedGroup():
            return f"SyncGroup answered{error or f': {len(response.assignment)} bytes'}"
        case HeartbeatAnswered():
            return f"Heartbeat answered{error}"
