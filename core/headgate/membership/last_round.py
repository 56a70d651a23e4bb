"""State that a member keeps from the last round that it completed."""

from collections.abc import Mapping, Sequence
from typing import Final

from headgate.assignment.model import Work
from headgate.ids import TaskId
from headgate.membership.codec import Assignment, AssignmentError
from headgate.membership.foresight import Move, foresee, works_after
from headgate.membership.leading import Led, Works, changed
from headgate.membership.member_messages import Assigned, WorkView
from headgate.membership.protocols import RULES, offset_read

_LASTING: Final = frozenset({"connect"})
"""Policies whose memory stays valid although others have led since, or the membership was given up.
Apache's assignor lives as long as its worker, and sees by the generation whether it knows the last
round. (Therefore it continues its backoff, for example.)"""
LEFTOVER_MS: Final = 1_000
"""Time to wait before joining again after a round that left unconfigured work with members; other
changes may come meanwhile."""


class LastRound:
    """The last completed round. Empty before any round, and after the membership was given up
    except for what outlives it."""

    def __init__(self) -> None:
        self.generation = -1
        self.completed = -1
        """Generation of the last successful sync; outlives the membership."""
        self.protocol = ""
        """Protocol of the round. It outlives the membership, since the next round will probably use
        it too."""
        self.assignment: Assignment | None = None
        self.connectors: tuple[str, ...] = ()
        """Connectors that are assigned and need not be released."""
        self.tasks: tuple[TaskId, ...] = ()
        self.planned_ms: int | None = None
        """When to join again because the scheduled rebalance delay ends; None if no delay runs."""
        self._again_ms: int | None = None
        """When to join again because this member's round left unconfigured work with members."""
        self._led: Led | None = None
        """The last round that this member computed; not valid before its sync succeeded."""
        self._memories: dict[str, object | None] = {}
        """Memories of the policies, by policy name."""

    # -- what happened --

    def take(
        self, now_ms: int, generation: int, protocol: str, assignment: Assignment, reported: Works
    ) -> None:
        """Store the result of a successful sync. `reported` is the work that the join before it
        reported as held."""
        self.generation = self.completed = generation
        self.protocol = protocol
        self.assignment = assignment
        change = assignment.change
        if self.eager and assignment.error is AssignmentError.NONE:
            self.connectors, self.tasks = change.assigned_connectors, change.assigned_tasks
        else:
            self.connectors, self.tasks = changed(*reported, change)
        delay_ms = assignment.delay_ms
        self.planned_ms = now_ms + delay_ms if delay_ms > 0 else None
        leftover = self._led is not None and self._counts(self._led) and self._led.leftover
        self._again_ms = now_ms + LEFTOVER_MS if leftover else None

    def led(self, policy: str, led: Led) -> None:
        """Store a round that this member computed. If its sync fails, the policy sees that by the
        generation."""
        self._forget()
        self._led = led
        self._memories[policy] = led.memory

    def another_leads(self) -> None:
        """Drop the memory of this member's own rounds, which is out of date."""
        self._forget()

    def _forget(self) -> None:
        self._led = None
        self._memories = {name: self._memories.get(name) for name in _LASTING}

    def release(self, works: Works) -> None:
        connectors, tasks = set(works[0]), set(works[1])
        self.connectors = tuple(name for name in self.connectors if name not in connectors)
        self.tasks = tuple(task for task in self.tasks if task not in tasks)

    def give_up(self) -> None:
        self.generation = -1
        self.assignment = self.planned_ms = self._again_ms = None
        self.connectors, self.tasks = (), ()
        self.another_leads()

    def assigned(self, *, leads: bool) -> Assigned:
        """Return what the worker is told about the round; there must have been one."""
        assert self.assignment is not None
        return Assigned(
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            leader_url=self.leader_url,
            is_leader=leads,
            connectors=self.connectors,
            tasks=self.tasks,
            config_offset=self.assignment.config_offset,
            failed=self.assignment.error is not AssignmentError.NONE,
            grpc=self._grpc(leads=leads),
        )

    def _grpc(self, *, leads: bool) -> Mapping[str, str]:
        """Return `Metadata.grpc` by url for the workers that this member calls: a leader calls all
        members, the others call their leader."""
        if leads and self._led is not None and self._counts(self._led):
            return self._led.grpc
        address = self.assignment.leader_grpc if self.assignment else ""
        return {self.leader_url: address} if address else {}

    # -- what it says --

    @property
    def next_join_ms(self) -> int | None:
        """When to join again without being asked; None if never."""
        planned = (self.planned_ms, self._again_ms)
        return min((ms for ms in planned if ms is not None), default=None)

    def why_again(self, now_ms: int) -> str:
        if self.planned_ms is not None and now_ms >= self.planned_ms:
            return "the scheduled rebalance delay is over"
        return "members keep what is not configured any more"

    @property
    def eager(self) -> bool:
        return bool(self.protocol) and RULES[self.protocol].eager

    @property
    def leader(self) -> str:
        return self.assignment.leader if self.assignment else ""

    @property
    def leader_url(self) -> str:
        return self.assignment.leader_url if self.assignment else ""

    @property
    def offset(self) -> int:
        """Config offset that the round was computed for; -1 without a round."""
        return self.assignment.config_offset if self.assignment else -1

    @property
    def offset_text(self) -> str:
        kind = "config" if RULES[self.protocol].plain_offset else "assignment"
        return f"{kind} offset {self.offset}"

    def offset_read(self, view: WorkView) -> int:
        """Return how far this worker has read, to be compared with `offset`."""
        return offset_read(self.protocol, view)

    def held(self, view: WorkView) -> Works:
        """Return the work that is held. Work that is assigned but not started yet counts as held;
        work that is still stopping comes last."""
        return (
            tuple(dict.fromkeys((*self.connectors, *view.held_connectors))),
            tuple(dict.fromkeys((*self.tasks, *view.held_tasks))),
        )

    def to_release(self, view: WorkView) -> Works:
        """Return the work that must be released: what a cooperative assignment revokes by name, or
        what an eager one leaves out."""
        if self.assignment is None:
            return (), ()
        if not self.eager:
            change = self.assignment.change
            return change.revoked_connectors, change.revoked_tasks
        connectors, tasks = set(self.connectors), set(self.tasks)
        return (
            tuple(name for name in view.held_connectors if name not in connectors),
            tuple(task for task in view.held_tasks if task not in tasks),
        )

    def pending(self, *, leads: bool) -> tuple[str, ...]:
        """Return what is not settled yet, or cannot be, as texts."""
        delay_ms = self.assignment.delay_ms if self.assignment else 0
        delayed = (f"lost work waits for its worker, {delay_ms} ms at most",) if delay_ms else ()
        unreadable: Mapping[str, str] = self.unreadable() if leads else {}
        return delayed + tuple(
            f"member {member_id} is given nothing, what it says of itself cannot be read: {why}"
            for member_id, why in unreadable.items()
        )

    def delay_left_ms(self, now_ms: int) -> int:
        return 0 if self.planned_ms is None else max(0, self.planned_ms - now_ms)

    def memory(self, policy: str) -> object | None:
        """Return the memory of `policy`. It means nothing to other policies."""
        return self._memories.get(policy)

    # -- as the leader of `generation` --

    def owner_url(self, work: Work) -> str | None:
        return self._led.owner_url(work) if self._led and self._counts(self._led) else None

    def foresee(self, stages: Sequence[Mapping[str, int]]) -> tuple[Move, ...] | None:
        """Return where work would move in each stage (see `foresee`); None if it is not known."""
        led = self._led
        if led is None or led.round_input is None or not self._counts(led):
            return None
        return foresee(led, stages, eager=self.eager)

    def given(self) -> Mapping[str, Works] | None:
        """Return the work that each member has after the round, by url; None if it is not known.
        Members whose metadata cannot be read are left out."""
        led = self._led
        if led is None or not self._counts(led):
            return None
        return {url: works_after(led, each, eager=self.eager) for each, url in led.urls.items()}

    def releasing(self, connector: str) -> bool:
        return self._led is None or not self._counts(self._led) or connector in self._led.releasing

    def unreadable(self) -> Mapping[str, str]:
        return self._led.unreadable if self._led and self._counts(self._led) else {}

    @property
    def furthest_url(self) -> str:
        """Url of a member that has read further than this leader; empty if none has."""
        return self._led.furthest_url if self._led and self._counts(self._led) else ""

    def _counts(self, led: Led) -> bool:
        return led.generation == self.generation
