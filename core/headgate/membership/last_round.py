"""What a member knows from the last round it completed."""

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
"""Policies that go by what they remember although others have led since, or the membership was
given up: Apache's assignor lives as long as its worker, and sees by the generation whether it knows
the last round. (So it goes on with its backoff, say.)"""
LEFTOVER_MS: Final = 1_000
"""After a round that left over what is not configured: a moment for what else is going on."""


class LastRound:
    """Blank before any round, and after the membership was given up, but for what outlives it."""

    def __init__(self) -> None:
        self.generation = -1
        self.completed = -1
        """Generation of the last sync that succeeded; outlives the membership."""
        self.protocol = ""
        """Outlives the membership: the next round will probably be of the same."""
        self.assignment: Assignment | None = None
        self.connectors: tuple[str, ...] = ()
        """Assigned, and not to be released."""
        self.tasks: tuple[TaskId, ...] = ()
        self.planned_ms: int | None = None
        """When to join again because the delay is over."""
        self._again_ms: int | None = None
        """When to join again because of what this member's round has left over."""
        self._led: Led | None = None
        """The round this member computed last; not to be used before its sync succeeded."""
        self._memories: dict[str, object | None] = {}
        """What policies remember, by their names."""

    # -- what happened --

    def take(
        self, now_ms: int, generation: int, protocol: str, assignment: Assignment, reported: Works
    ) -> None:
        """A sync succeeded. `reported`: what the join before it said was held."""
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
        """This member computed a round. Should its sync fail, its generation tells the policy."""
        self._forget()
        self._led = led
        self._memories[policy] = led.memory

    def another_leads(self) -> None:
        """What was remembered of the own rounds is out of date."""
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
        """What the worker is told of it. There was one."""
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
        """`Metadata.grpc` by url, as far as this member has to do with others: a leader calls all,
        others their leader."""
        if leads and self._led is not None and self._counts(self._led):
            return self._led.grpc
        address = self.assignment.leader_grpc if self.assignment else ""
        return {self.leader_url: address} if address else {}

    # -- what it says --

    @property
    def next_join_ms(self) -> int | None:
        """When to join again of its own accord."""
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
        """Config offset that the round was computed for; -1 without one."""
        return self.assignment.config_offset if self.assignment else -1

    @property
    def offset_text(self) -> str:
        kind = "config" if RULES[self.protocol].plain_offset else "assignment"
        return f"{kind} offset {self.offset}"

    def offset_read(self, view: WorkView) -> int:
        """How far this worker has read, to be compared with `offset`."""
        return offset_read(self.protocol, view)

    def held(self, view: WorkView) -> Works:
        """What was assigned and not started yet is held as well; what is still stopping comes
        last."""
        return (
            tuple(dict.fromkeys((*self.connectors, *view.held_connectors))),
            tuple(dict.fromkeys((*self.tasks, *view.held_tasks))),
        )

    def to_release(self, view: WorkView) -> Works:
        """What the assignment takes away: by name, or, where it names all there is, by leaving
        it out."""
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
        """What is not settled yet, or cannot be, in words."""
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
        """What `policy` is to be told: the others' mean nothing to it."""
        return self._memories.get(policy)

    # -- as the leader of `generation` --

    def owner_url(self, work: Work) -> str | None:
        return self._led.owner_url(work) if self._led and self._counts(self._led) else None

    def foresee(self, stages: Sequence[Mapping[str, int]]) -> tuple[Move, ...] | None:
        """Where work would move through the stages of what is configured; None: it is not known."""
        led = self._led
        if led is None or led.round_input is None or not self._counts(led):
            return None
        return foresee(led, stages, eager=self.eager)

    def given(self) -> Mapping[str, Works] | None:
        """What each member that can be read has after the round, by url; None: it is not known."""
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
