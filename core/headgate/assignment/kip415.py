"""The policy `kip415`: the one rule that reproduces all five tables of KIP-415.

A round in four steps, each a function below: what is free (`_sort_out`), what of it waits for a
worker to come back (`_delay`), what every member keeps (`_keep`), who gets the rest (`_deal`).

- Members count in the order of their ids, not of joining; the first table shows it.
- Of T connectors and tasks together each of n members may hold T/n, the first (T mod n) of them
  one more.
- No delay running: a member keeps the first of its work in sorted order, up to its capacity, and
  the rest is revoked. Revoked work is free in the next round, and not lost if its member goes.
- Work whose member left the group is lost and waits until a planned time. Meanwhile new work is
  dealt and nothing else moves. A second departure does not move that time.
- Work reported by two members is revoked from all of them; deleted work is revoked.

Differs from Apache's assignor, which is a policy of its own: connectors and tasks are balanced
together; work that a member was given but does not report is free, as it was never lost; a new
leader keeps a delay that is running.
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
"""Work as one number, so that sets and sorting stay cheap: the rank of the connector's name, then
0 for the connector itself or 1 + the task's number. Their order is the order of work: by name,
connector before its tasks, by number."""

_NUMBER_BITS: Final = 32
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1


@dataclass(frozen=True, slots=True)
class Memory:
    """What the leader of a round remembers for the next one."""

    leader: str
    generation: int
    """Generation of the round that made it; valid only if it was the leader's last completed
    one."""
    owned: Mapping[str, frozenset[Work]] = field(repr=False)
    """What each member was left with or given, by member id."""
    waiting: frozenset[Work] = frozenset()
    """Free work that is not dealt before `planned_ms`."""
    planned_ms: int | None = None
    """When the delay ends; None: none is running."""


def assign(round_input: RoundInput, memory: object | None) -> Round:
    """Share the configured connectors and tasks among the members.

    Args:
        round_input: members in any order, W >= 1, with the work each holds or is still stopping;
            T connectors and tasks with task numbers below 2**31.
        memory: what the last round of this leader returned; None for a new leader.

    Returns:
        Per member, sorted: what is added and what is revoked, disjoint. Work is added only if no
        member reports it. `delay_ms` is 0, or how long lost work goes on waiting.

    Raises:
        NoMembersError: the round has no members.

    Cost: O(T log T). Source: KIP-415, its five tables.
    """
    if not round_input.members:
        raise NoMembersError(f"generation {round_input.generation} has no members to assign to")
    last = memory if isinstance(memory, Memory) else None
    if last is not None and not _is_current(last, round_input):
        # The sync failed, or another led meanwhile: who owns what is not known, when the delay
        # ends is.
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
    """A round's work as codes. Members in the order of their ids."""

    names: list[str]
    """Connector names by rank."""
    ranks: dict[str, int]
    capacity: dict[str, int]
    reported: dict[str, list[_Code]]
    """Sorted, each once."""
    refused: set[_Code]
    """Reported work that nobody may keep: deleted or duplicated."""
    free: set[_Code]
    """Configured work that nobody reports."""
    works: dict[_Code, Work]
    """The reported work itself, so that it need not be made again."""

    def code(self, work: Work) -> _Code | None:
        """None: of a connector that is neither configured nor reported."""
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
    """Names that are configured or reported, in Java's order."""
    names = dict.fromkeys(round_input.connectors)
    for member in round_input.members:
        names.update(dict.fromkeys(member.connectors))
        names.update(dict.fromkeys([task.connector for task in member.tasks]))
    return sorted(names, key=utf16_key)


def _coded(member: MemberWork, ranks: Mapping[str, int]) -> dict[_Code, Work]:
    """What `member` reports, by code."""
    coded: dict[_Code, Work] = {ranks[name] << _NUMBER_BITS: name for name in member.connectors}
    coded.update(
        {ranks[task.connector] << _NUMBER_BITS | task.task + 1: task for task in member.tasks}
    )
    return coded


# -- what waits --


def _delay(
    round_input: RoundInput, memory: Memory | None, sorted_out: _SortedOut
) -> tuple[set[_Code], int | None]:
    """Free work that must wait, and until when."""
    now_ms, delay_ms_max = round_input.now_ms, round_input.delay_ms_max
    running_ms = memory.planned_ms if memory is not None else _learnt(round_input)
    if running_ms is not None:
        running_ms = min(running_ms, now_ms + delay_ms_max)
        if running_ms <= now_ms:
            # The delay is over, also for whoever left while it ran.
            return set(), None
    if memory is None or memory.generation < 0:
        # It cannot be told lost from new: all of it waits for a delay that runs, else none does.
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
    """When the delay of the leader before ends, as far as the members tell.

    The leader knows it by itself, unless it is new to the group: then other members tell. A member
    that tells how long the delay was, and not how much of it is left, counts as told just now.
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
    """What of its work each member keeps; all that may be kept unless `balance`."""
    kept: dict[str, list[_Code]] = {}
    for member_id, codes in sorted_out.reported.items():
        if not sorted_out.refused.isdisjoint(codes):
            codes = [code for code in codes if code not in sorted_out.refused]
        kept[member_id] = codes[: sorted_out.capacity[member_id]] if balance else codes
    return kept


def _deal(
    sorted_out: _SortedOut, kept: Mapping[str, Sequence[_Code]], waiting: set[_Code]
) -> dict[str, list[_Code]]:
    """Connectors, then tasks, each in descending order, around the ring of members, the full ones
    left out.

    There is always room: the capacities add up to all that is configured.
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
    """Connectors and tasks of `works`, in their order."""
    return (
        tuple([work for work in works if isinstance(work, str)]),
        tuple([work for work in works if not isinstance(work, str)]),
    )
