"""The policy `kip415`: the one rule that reproduces all five tables of KIP-415.

A round has four steps, each a function below: find the free work (`_sort_out`), decide which of it
waits for a lost worker (`_delay`), decide what each member keeps (`_keep`), and assign the rest
(`_deal`).

- Members are ordered by id, not by time of joining; the first table shows it.
- With T connectors and tasks together and n members, each member may hold T/n, and the first
(T mod n) members one more.
- If no delay runs, a member keeps the first of its work in sorted order, up to its capacity, and
the rest is revoked. Revoked work is free in the next round. It does not count as lost if its member
leaves.
- Work whose member left the group is lost, and waits until a planned time. Meanwhile new work is
assigned and no other work moves. A second departure does not change that time.
- Work that two members report is revoked from all of them; deleted work is revoked.

Differs from Apache's assignor, which is the policy `connect`: connectors and tasks are balanced
together. Work that was assigned to a member that does not report it is free at once, as it was
never lost. A new leader continues a delay that is running.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from headgate.assignment.model import MemberAssignment, MemberWork, Round, RoundInput, Work
from headgate.errors import NoMembersError
from headgate.ids import TaskId, utf16_key

_Code: TypeAlias = int
"""A connector or task as one number, so that sets and sorting are cheap: the rank of the
connector's name, then 0 for the connector itself or 1 + the task's number. The order of the numbers
is the order of work: by name, the connector before its tasks, tasks by number."""

_NUMBER_BITS: Final = 32
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1


@dataclass(frozen=True, slots=True)
class Memory:
    """State that the leader of a round keeps for the next round."""

    leader: str
    generation: int
    """Generation of the round that made this memory. The memory is valid only if that was the
    leader's last completed round."""
    owned: Mapping[str, frozenset[Work]] = field(repr=False)
    """Work that each member kept or was assigned, by member id."""
    waiting: frozenset[Work] = frozenset()
    """Free work that is not assigned before `planned_ms`."""
    planned_ms: int | None = None
    """When the delay ends; None if no delay is running."""


def assign(round_input: RoundInput, memory: object | None) -> Round:
    """Assign the configured connectors and tasks to the members.

    Args:
        round_input: W >= 1 members in any order, with the work that each holds or is still
            stopping; T connectors and tasks, with task numbers below 2**31.
        memory: Memory of this leader's last round; None for a new leader.

    Returns:
        For each member the added and the revoked work, sorted and disjoint. Work is added only if
        no member reports it. `delay_ms` is the time that lost work will still wait, or 0.

    Raises:
        NoMembersError: The round has no members.

    Cost: O(T log T). Source: KIP-415, its five tables.
    """
    if not round_input.members:
        raise NoMembersError(f"generation {round_input.generation} has no members to assign to")
    last = memory if isinstance(memory, Memory) else None
    if last is not None and not _is_current(last, round_input):
        # The sync failed, or another member led in between. Then the owners are not known, but the
        # end of the delay is.
        last = Memory(round_input.leader, -1, {}, frozenset(), last.planned_ms)
    sorted_out = _sort_out(round_input)
    waiting, planned_ms = _delay(round_input, last, sorted_out)
    kept = _keep(sorted_out, balance=planned_ms is None)
    dealt = _deal(sorted_out, kept, waiting)
    delay_ms = 0 if planned_ms is None else planned_ms - round_input.now_ms
    return _round(round_input, sorted_out, kept, dealt, waiting, planned_ms, delay_ms)


def _is_current(memory: Memory, round_input: RoundInput) -> bool:
    return (
        memory.leader == round_input.leader
        and memory.generation == round_input.last_completed_generation
    )


# -- what is free --


@dataclass(slots=True)
class _SortedOut:
    """The work of one round as codes. Members are in the order of their ids."""

    names: list[str]
    """Connector names by rank."""
    ranks: dict[str, int]
    capacity: dict[str, int]
    reported: dict[str, list[_Code]]
    """Work that each member reports, sorted and without duplicates."""
    refused: set[_Code]
    """Reported work that no member may keep, because it is deleted or duplicated."""
    free: set[_Code]
    """Configured work that no member reports."""
    works: dict[_Code, Work]
    """Reported work by code, so that its objects need not be made again."""

    def code(self, work: Work) -> _Code | None:
        """Return the code of `work`; None if its connector is neither configured nor reported."""
        if isinstance(work, TaskId):
            rank = self.ranks.get(work.connector)
            return None if rank is None else rank << _NUMBER_BITS | work.task + 1
        rank = self.ranks.get(work)
        return None if rank is None else rank << _NUMBER_BITS

    def work(self, code: _Code) -> Work:
        found = self.works.get(code)
        if found is None:
            name = self.names[code >> _NUMBER_BITS]
            number = code & _NUMBER_MASK
            found = TaskId(name, number - 1) if number else name
            self.works[code] = found
        return found


def _sort_out(round_input: RoundInput) -> _SortedOut:
    names = _ranked_names(round_input)
    ranks = {name: rank for rank, name in enumerate(names)}
    works: dict[_Code, Work] = {}
    reported: dict[str, list[_Code]] = {}
    active: set[_Code] = set()
    duplicated: set[_Code] = set()
    for member in sorted(round_input.members, key=lambda member: utf16_key(member.member_id)):
        coded = _coded(member, ranks)
        reported[member.member_id] = sorted(coded)
        if not active.isdisjoint(coded):
            duplicated |= active & coded.keys()
        active.update(coded)
        works.update(coded)
    configured: set[_Code] = set()
    for name, task_count in round_input.connectors.items():
        first = ranks[name] << _NUMBER_BITS
        configured.update(range(first, first + 1 + task_count))
    share, extras = divmod(len(configured), len(reported))
    return _SortedOut(
        names=names,
        ranks=ranks,
        capacity={member_id: share + (n < extras) for n, member_id in enumerate(reported)},
        reported=reported,
        refused=duplicated | (active - configured),
        free=configured - active,
        works=works,
    )


def _ranked_names(round_input: RoundInput) -> list[str]:
    """Return the names that are configured or reported, in Java's order."""
    names = dict.fromkeys(round_input.connectors)
    for member in round_input.members:
        names.update(dict.fromkeys(member.connectors))
        names.update(dict.fromkeys([task.connector for task in member.tasks]))
    return sorted(names, key=utf16_key)


def _coded(member: MemberWork, ranks: Mapping[str, int]) -> dict[_Code, Work]:
    """Return what `member` reports, by code."""
    coded: dict[_Code, Work] = {ranks[name] << _NUMBER_BITS: name for name in member.connectors}
    coded.update(
        {ranks[task.connector] << _NUMBER_BITS | task.task + 1: task for task in member.tasks}
    )
    return coded


# -- what waits --


def _delay(
    round_input: RoundInput, memory: Memory | None, sorted_out: _SortedOut
) -> tuple[set[_Code], int | None]:
    """Return the free work that must wait, and the time until which it waits."""
    now_ms, delay_ms_max = round_input.now_ms, round_input.delay_ms_max
    running_ms = memory.planned_ms if memory is not None else _learnt(round_input)
    if running_ms is not None:
        running_ms = min(running_ms, now_ms + delay_ms_max)
        if running_ms <= now_ms:
            # The delay is over, also for members that left while it ran.
            return set(), None
    if memory is None or memory.generation < 0:
        # Lost work cannot be told from new work. All of it waits if a delay runs; else none does.
        waiting = sorted_out.free if running_ms is not None else set[_Code]()
    else:
        ids = sorted_out.reported
        departed = (work for owner, work in memory.owned.items() if owner not in ids)
        codes = {sorted_out.code(work) for works in departed for work in works}
        if running_ms is not None:
            codes.update(sorted_out.code(work) for work in memory.waiting)
        waiting = {code for code in codes if code in sorted_out.free}
    if not waiting or delay_ms_max <= 0:
        return set(), None
    return waiting, now_ms + delay_ms_max if running_ms is None else running_ms


def _learnt(round_input: RoundInput) -> int | None:
    """Return when the previous leader's delay ends, as far as the members report it; None if none
    runs.

    If the leader itself reports a delay, its own value counts. It reports none if it is new to the
    group; then the longest delay of any member counts. If a member does not say how much is left,
    the whole delay counts, from now.
    """
    for member in round_input.members:
        if member.member_id == round_input.leader and member.last_delay_ms > 0:
            if member.delay_left_ms is not None:
                return round_input.now_ms + member.delay_left_ms
            break
    left_ms = max(
        member.last_delay_ms if member.delay_left_ms is None else member.delay_left_ms
        for member in round_input.members
    )
    return round_input.now_ms + left_ms if left_ms > 0 else None


# -- who gets what --


def _keep(sorted_out: _SortedOut, *, balance: bool) -> dict[str, list[_Code]]:
    """Return the work that each member keeps: up to its capacity with `balance`, else all that it
    may keep."""
    kept: dict[str, list[_Code]] = {}
    for member_id, codes in sorted_out.reported.items():
        if not sorted_out.refused.isdisjoint(codes):
            codes = [code for code in codes if code not in sorted_out.refused]
        kept[member_id] = codes[: sorted_out.capacity[member_id]] if balance else codes
    return kept


def _deal(
    sorted_out: _SortedOut, kept: Mapping[str, Sequence[_Code]], waiting: set[_Code]
) -> dict[str, list[_Code]]:
    """Assign connectors and then tasks, each in descending order, round robin over the members that
    are not full.

    There is always room: the capacities add up to everything that is configured.
    """
    dealt: dict[str, list[_Code]] = {member_id: [] for member_id in kept}
    room = {
        member_id: sorted_out.capacity[member_id] - len(codes) for member_id, codes in kept.items()
    }
    ring = deque(member_id for member_id in kept if room[member_id] > 0)
    codes = sorted(sorted_out.free - waiting, reverse=True)
    connectors = [code for code in codes if not code & _NUMBER_MASK]
    tasks = [code for code in codes if code & _NUMBER_MASK]
    for code in connectors + tasks:
        member_id = ring.popleft()
        dealt[member_id].append(code)
        room[member_id] -= 1
        if room[member_id]:
            ring.append(member_id)
    return dealt


def _round(
    round_input: RoundInput,
    sorted_out: _SortedOut,
    kept: Mapping[str, Sequence[_Code]],
    dealt: Mapping[str, Sequence[_Code]],
    waiting: set[_Code],
    planned_ms: int | None,
    delay_ms: int,
) -> Round:
    members: dict[str, MemberAssignment] = {}
    owned: dict[str, frozenset[Work]] = {}
    for member in round_input.members:
        member_id = member.member_id
        keeps, reported = set(kept[member_id]), sorted_out.reported[member_id]
        revoked = [sorted_out.work(code) for code in reported if code not in keeps]
        added = list(map(sorted_out.work, sorted(dealt[member_id])))
        members[member_id] = MemberAssignment(*_sorts(added), *_sorts(revoked))
        has = frozenset((*member.connectors, *member.tasks, *added))
        owned[member_id] = has.difference(revoked)
    memory = Memory(
        leader=round_input.leader,
        generation=round_input.generation,
        owned=MappingProxyType(owned),
        waiting=frozenset(map(sorted_out.work, waiting)),
        planned_ms=planned_ms,
    )
    return Round(MappingProxyType(members), delay_ms, memory)


def _sorts(works: Sequence[Work]) -> tuple[tuple[str, ...], tuple[TaskId, ...]]:
    """Return the connectors and the tasks of `works`, each in order."""
    return (
        tuple([work for work in works if isinstance(work, str)]),
        tuple([work for work in works if not isinstance(work, str)]),
    )
