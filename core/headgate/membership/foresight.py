"""Preview of the next rounds: the policy's answer for work that is not configured yet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from headgate.assignment import POLICIES
from headgate.assignment.model import RoundInput, Work
from headgate.membership.leading import Led, Works, changed

ROUNDS_MAX: Final = 6
"""Number of rounds within which a policy settles; it revokes in one round and assigns in the
next."""


@dataclass(frozen=True, slots=True)
class Move:
    """One unit of work that would move from one member to another, named by their urls; an empty
    url means no member."""

    work: Work
    source: str
    target: str


def foresee(led: Led, stages: Sequence[Mapping[str, int]], *, eager: bool) -> tuple[Move, ...]:
    """Return where work would move if no member joined or left, in the order of the work.

    Args:
        led: The last round; it must not have been refused.
        stages: Configured connectors and their task counts, one stage after the other. A new
            connector has two stages, since it is assigned before it has tasks.

    Cost: several rounds of the policy.
    """
    assert led.round_input is not None, "the round was refused"
    policy, memory, last = POLICIES[led.policy], led.memory, led.round_input
    held = {each.member_id: works_after(led, each.member_id, eager=eager) for each in last.members}
    before = _owners(held)
    waiting = [*stages]
    for number in range(1, ROUNDS_MAX * len(stages) + 1):
        done = policy(_next_round(last, held, waiting[0], number), memory)
        memory = done.memory
        if eager:
            held = {
                member_id: (change.assigned_connectors, change.assigned_tasks)
                for member_id, change in done.members.items()
            }
        after = {
            member_id: changed(*works, done.members[member_id]) for member_id, works in held.items()
        }
        if eager or after == held:
            waiting.pop(0)
            if not waiting:
                break
        held = held if eager else after
    now = _owners(held)
    moved = [work for work in {**before, **now} if before.get(work) != now.get(work)]
    return tuple(
        Move(work, _url(led, before.get(work)), _url(led, now.get(work)))
        for work in sorted(moved, key=_order)
    )


def works_after(led: Led, member_id: str, *, eager: bool) -> Works:
    """Return the work that a member has after the last round. A member that was refused has kept
    its work."""
    connectors, tasks = led.held.get(member_id, ((), ()))
    change = led.changes.get(member_id)
    if change is None:
        return connectors, tasks
    if eager:
        return change.assigned_connectors, change.assigned_tasks
    return changed(connectors, tasks, change)


def _next_round(
    last: RoundInput, held: Mapping[str, Works], connectors: Mapping[str, int], number: int
) -> RoundInput:
    """Return the input of the next round, late enough that no delay is running. Delays that members
    reported do not matter, since the policy remembers its own."""
    members = [
        replace(
            each,
            connectors=held[each.member_id][0],
            tasks=held[each.member_id][1],
        )
        for each in last.members
    ]
    return replace(
        last,
        members=tuple(members),
        generation=last.generation + number,
        last_completed_generation=last.generation + number - 1,
        connectors=connectors,
        now_ms=last.now_ms + number * (last.delay_ms_max + 1),
    )


def _owners(held: Mapping[str, Works]) -> dict[Work, str]:
    return {work: member_id for member_id, works in held.items() for work in chain[Work](*works)}


def _url(led: Led, member_id: str | None) -> str:
    return "" if member_id is None else led.urls[member_id]


def _order(work: Work) -> tuple[str, int]:
    return (work, -1) if isinstance(work, str) else (work.connector, work.task)
