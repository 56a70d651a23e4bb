"""The policy `connect`: Apache's incremental cooperative assignor, its quirks included, so that a
group with Java members is led the same way whichever worker leads it.

A round has five steps, each a function below:

- `_sort_out` finds deleted, lost and new work.
- `_workers` decides what every member may keep.
- `_place_lost` decides whether lost work is placed now, and where.
- `_balance` revokes from members with more than their share.
- `_fill` assigns what is free.

Details that are easily overlooked:

- Lost work waits for the delay. New work is placed meanwhile, and nothing else moves. When the
delay ends, the lost work goes to the members that were empty during it, however much it is.
- A second departure does not move the end of the delay.
- Revoked work counts as new in the next round. So does all work after the leader changed or its
sync failed: then no work is known to be lost, and none waits.
- In the round after a revocation for balance any departure starts the delay, even that of a member
without work. A second revocation in a row waits for a backoff instead. A round that comes before
the end of the backoff forgets the first revocation, so the round after it may revoke at once.
- Where the odd piece of work may be kept, members count in the order of a Java `HashMap`.

Source: KIP-415; `IncrementalCooperativeAssignor` of connect-runtime 4.3.1. This policy agrees with
it on what is assigned and revoked, in which order, and on all that it remembers. Differs: state
that Java keeps in fields is a value here; and a planned time may have any value, where Java uses 0
for none.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Generic, TypeAlias, TypeVar

from headgate.assignment.model import MemberAssignment, MemberWork, Round, RoundInput
from headgate.errors import NoMembersError
from headgate.ids import TaskId, task_ids, utf16_key
from headgate.java.hash import STRINGS, TASKS, in_map_order, in_set_order

T = TypeVar("T", str, TaskId)

_Works: TypeAlias = Mapping[str, AbstractSet[int]]
"""Connectors and tasks as in the bytes of the protocol: for each connector the numbers of its
tasks, and `CONNECTOR` for the connector itself. No entry is empty."""

CONNECTOR: Final = -1
_NOTHING: Final[frozenset[int]] = frozenset()
BACKOFF_FACTOR: Final = 40


@dataclass(frozen=True, slots=True)
class Delay:
    """State of delay and revocation that one leader carries from round to round."""

    delay_ms: int = 0
    """Time that the last round told all members to wait, or 0."""
    planned_ms: int | None = None
    """When that time ends; None if nothing is planned."""
    candidates: tuple[str, ...] = ()
    """Members that were empty while lost work waited; they get the lost work."""
    revoked: bool = False
    """Whether the last round revoked work for balance."""
    successive_revocations: int = 0
    """Number of successive rounds that had to revoke again right after a revocation."""


@dataclass(frozen=True, slots=True)
class Memory:
    """State that a leader keeps of the last round that it computed, even if other members led
    rounds since."""

    generation: int = -1
    """Generation of that round. Ownership is known only if it was the leader's last completed
    round."""
    members: frozenset[str] = frozenset()
    owned: Mapping[str, frozenset[int]] = field(
        default_factory=lambda: dict[str, frozenset[int]](), repr=False
    )
    """Work that members kept, were assigned or lost: for each connector the numbers of its tasks
    and `CONNECTOR`."""
    revoked: Mapping[str, frozenset[int]] = field(
        default_factory=lambda: dict[str, frozenset[int]](), repr=False
    )
    delay: Delay = Delay()


def assign(round_input: RoundInput, memory: object | None) -> Round:
    """Assign the configured connectors and tasks to the members as Apache's assignor does.

    Args:
        round_input: W >= 1 members in join order, with the work that each reports, in its order; T
            connectors and tasks.
        memory: Memory of the last round that this process computed, whoever led since; None if it
            computed none.

    Returns:
        For each member, in Java's order, the added and the revoked work, disjoint. `delay_ms` is
        the time after which all members should join again, or 0.

    Raises:
        NoMembersError: The round has no members.

    Cost: O(T), and O(C log C) for C connectors, and O(W log W) for W workers.
    """
    if not round_input.members:
        raise NoMembersError(f"generation {round_input.generation} has no members to assign to")
    last = memory if isinstance(memory, Memory) else Memory()
    sorted_out = _sort_out(round_input, last)
    workers = _workers(sorted_out)
    delay, reassigned = _place_lost(round_input, last, sorted_out.lost, workers)
    delay = _balance(round_input, delay, workers)
    connectors, tasks = _listed(sorted_out.created, reassigned)
    _fill([worker.connectors for worker in workers], connectors)
    _fill([worker.tasks for worker in workers], tasks)
    return _round(round_input, sorted_out, workers, delay)


# -- what is deleted, lost, new --


@dataclass(frozen=True, slots=True)
class _SortedOut:
    members: tuple[MemberWork, ...]
    """The members as they joined, without duplicates within one member's report."""
    active: _Works
    """Work that members report."""
    deleted: _Works
    """Work that was owned after the last round and is no longer configured."""
    duplicated: _Works
    """Work that more than one member reports."""
    lost: _Works
    """Work that was owned after the last round, is configured, and is not reported by any
    member."""
    created: _Works
    """Work that is configured, and neither owned nor reported."""


def _sort_out(round_input: RoundInput, last: Memory) -> _SortedOut:
    members, active, duplicated = _reported(round_input.members)
    is_current = last.generation == round_input.last_completed_generation
    owned: _Works = last.owned if is_current else {}
    if any(not active.get(name, _NOTHING).isdisjoint(gone) for name, gone in last.revoked.items()):
        # A revocation was not carried out, so only the members' reports count.
        owned = active
    configured = _configured(round_input.connectors)
    deleted: dict[str, AbstractSet[int]] = {}
    lost: dict[str, AbstractSet[int]] = {}
    known = {**owned, **active}
    created = {name: numbers for name, numbers in configured.items() if name not in known}
    for name in known:
        before, after = owned.get(name, _NOTHING), configured.get(name, _NOTHING)
        reported = active.get(name, _NOTHING)
        if before == after == reported:
            continue  # the common case
        if gone := before - after:
            deleted[name] = gone
        if missing := before & after - reported:
            lost[name] = missing
        if new := after - before - reported:
            created[name] = new
    return _SortedOut(members, active, deleted, duplicated, lost, created)


def _configured(connectors: Mapping[str, int]) -> _Works:
    """Return the configured work. Connectors with equal task counts share one set."""
    counts = dict.fromkeys(connectors.values())
    numbers = {count: frozenset(range(CONNECTOR, count)) for count in counts}
    return {name: numbers[count] for name, count in connectors.items()}


def _reported(
    members: tuple[MemberWork, ...],
) -> tuple[tuple[MemberWork, ...], _Works, _Works]:
    """Return the members, the work that they report together, and the work that more than one
    reports."""
    active: dict[str, set[int]] = defaultdict(set)
    count = 0
    for member in members:
        count += len(member.connectors) + len(member.tasks)
        for name in member.connectors:
            active[name].add(CONNECTOR)
        for name, number in member.tasks:
            active[name].add(number)
    duplicated: dict[str, set[int]] = defaultdict(set)
    if sum(map(len, active.values())) != count:
        members = tuple(_each_once(member) for member in members)
        seen: set[tuple[str, int]] = set()
        for member in members:
            for name, number in _pairs(member):
                if (name, number) in seen:
                    duplicated[name].add(number)
                seen.add((name, number))
    return members, dict(active), dict(duplicated)


def _each_once(member: MemberWork) -> MemberWork:
    return replace(
        member,
        connectors=tuple(dict.fromkeys(member.connectors)),
        tasks=tuple(dict.fromkeys(member.tasks)),
    )


def _pairs(member: MemberWork) -> Iterator[tuple[str, int]]:
    yield from ((name, CONNECTOR) for name in member.connectors)
    yield from member.tasks


# -- what every member may keep --


@dataclass(slots=True)
class _Load(Generic[T]):
    """The connectors, or the tasks, that one member will have: `kept`, then `given`."""

    sort_key: bytes
    """Sort key of the member."""
    kept: Sequence[T]
    """Work in the order in which the member reported it."""
    given: list[T]
    revoked: list[T]

    def __len__(self) -> int:
        return len(self.kept) + len(self.given)

    def revoke(self, count: int) -> None:
        """Revoke the first `count` items, which are those that the member reported first."""
        of_kept = min(count, len(self.kept))
        self.revoked.extend(self.kept[:of_kept])
        self.revoked.extend(self.given[: count - of_kept])
        self.kept = self.kept[of_kept:]
        del self.given[: count - of_kept]


@dataclass(slots=True)
class _Worker:
    member_id: str
    connectors: _Load[str]
    tasks: _Load[TaskId]

    def is_empty(self) -> bool:
        return not len(self.connectors) and not len(self.tasks)


def _workers(sorted_out: _SortedOut) -> list[_Worker]:
    """Return the members in the order of a `HashMap` that was filled from another `HashMap`. Their
    deleted work is revoked, and so is every copy of work that several members report."""
    by_id = {member.member_id: member for member in sorted_out.members}
    refused = (sorted_out.deleted, sorted_out.duplicated)
    workers: list[_Worker] = []
    for member_id in in_map_order(in_map_order(by_id)):
        member = by_id[member_id]
        sort_key = utf16_key(member_id)
        connectors: _Load[str] = _Load(sort_key, member.connectors, [], [])
        tasks: _Load[TaskId] = _Load(sort_key, member.tasks, [], [])
        for works in refused:
            if works:
                _refuse(works, member, connectors, tasks)
        workers.append(_Worker(member_id, connectors, tasks))
    return workers


def _refuse(
    works: _Works, member: MemberWork, connectors: _Load[str], tasks: _Load[TaskId]
) -> None:
    """Revoke the part of `works` that the member reports, in the order of a Java set of all that it
    reports."""
    names = [name for name in member.connectors if CONNECTOR in works.get(name, ())]
    found = [task for task in member.tasks if task.task in works.get(task.connector, ())]
    if names:
        ordered = in_set_order(member.connectors, STRINGS, names)
        connectors.revoked = list(dict.fromkeys((*connectors.revoked, *ordered)))
        connectors.kept = [name for name in connectors.kept if name not in set(names)]
    if found:
        ordered_tasks = in_set_order(member.tasks, TASKS, found)
        tasks.revoked = list(dict.fromkeys((*tasks.revoked, *ordered_tasks)))
        gone = set(found)
        tasks.kept = [task for task in tasks.kept if task not in gone]


# -- lost work --


def _place_lost(
    round_input: RoundInput, last: Memory, lost: _Works, workers: Sequence[_Worker]
) -> tuple[Delay, _Works]:
    """Return the new state of the delay, and the lost work that is to be placed like new work."""
    delay = last.delay
    if not lost and not delay.revoked:
        return replace(delay, delay_ms=0, planned_ms=None, candidates=()), {}
    by_id = {worker.member_id: worker for worker in workers}
    if delay.planned_ms is None and last.members <= by_id.keys():
        # No member left: members did not receive their assignments.
        return delay, lost
    if round_input.delay_ms_max == 0:
        return delay, lost
    now_ms = round_input.now_ms
    if delay.planned_ms is not None and now_ms >= delay.planned_ms:
        candidates = [by_id[name] for name in delay.candidates if name in by_id]
        over = Delay(successive_revocations=delay.successive_revocations)
        if not candidates:
            return over, lost
        connectors, tasks = _listed(lost)
        for seat, worker in enumerate(candidates):
            worker.connectors.given += connectors[seat :: len(candidates)]
            worker.tasks.given += tasks[seat :: len(candidates)]
        return over, {}
    empty = in_map_order([worker.member_id for worker in workers if worker.is_empty()])
    delay_ms = round_input.delay_ms_max
    if delay.planned_ms is not None:
        delay_ms = min(delay_ms, delay.planned_ms - now_ms)
    waiting = replace(
        delay,
        delay_ms=delay_ms,
        planned_ms=now_ms + delay_ms,
        candidates=tuple(dict.fromkeys((*delay.candidates, *empty))),
    )
    return waiting, {}


# -- balance --


def _balance(round_input: RoundInput, delay: Delay, workers: Sequence[_Worker]) -> Delay:
    """Revoke what exceeds a member's share, unless a delay runs or the last round revoked."""
    if delay.delay_ms:
        return replace(delay, revoked=False)
    counts = round_input.connectors
    connectors = _surplus(len(counts), [len(worker.connectors) for worker in workers])
    tasks = _surplus(sum(counts.values()), [len(worker.tasks) for worker in workers])
    if not counts or not (any(connectors) or any(tasks)):
        return replace(delay, revoked=False, successive_revocations=0) if delay.revoked else delay
    if delay.revoked:
        successive = delay.successive_revocations + 1
        delay = replace(delay, successive_revocations=successive)
        if backoff_ms := backoff(successive, round_input.delay_ms_max):
            planned_ms = round_input.now_ms + backoff_ms
            return replace(delay, delay_ms=backoff_ms, planned_ms=planned_ms)
    for worker, of_connectors, of_tasks in zip(workers, connectors, tasks, strict=True):
        worker.connectors.revoke(of_connectors)
        worker.tasks.revoke(of_tasks)
    return replace(delay, revoked=True)


def _surplus(total: int, counts: Sequence[int]) -> list[int]:
    """Return by how much each member exceeds its share of `total`. If `total` does not divide
    evenly, the first members that exceed the share may keep one more each, until the remainder is
    used up."""
    share, extras = divmod(total, len(counts))
    surplus: list[int] = []
    for count in counts:
        over = max(0, count - share)
        if over and extras:
            extras -= 1
            over -= 1
        surplus.append(over)
    return surplus


def backoff(successive: int, delay_ms_max: int) -> int:
    """Return how many milliseconds to wait before the next revocation for balance.

    Source: `ExponentialBackoff` without jitter, in floating point and truncated as in Java, so that
    the maximum may come out one lower (8000: 7999). For one maximum in 16,000 the last bit of the
    power decides that, and there platforms differ, Java's as well. No whole number of seconds up to
    eight hours is such a maximum.
    """
    if delay_ms_max <= 1:
        return delay_ms_max
    exponent = min(successive, math.log(delay_ms_max) / math.log(BACKOFF_FACTOR))
    return min(int(float(BACKOFF_FACTOR) ** exponent), delay_ms_max)


# -- what is free --


def _listed(*works: _Works) -> tuple[list[str], list[TaskId]]:
    """Return connectors and tasks of `works`, each argument sorted in Java's order."""
    connectors: list[str] = []
    tasks: list[TaskId] = []
    for part in works:
        for name in sorted(part, key=utf16_key):
            numbers = sorted(part[name])
            if numbers[0] == CONNECTOR:
                connectors.append(name)
                del numbers[0]
            tasks += task_ids(name, numbers)
    return connectors, tasks


def _fill(loads: Iterable[_Load[T]], items: Sequence[T]) -> None:
    """Give `items` to the members that have least until all have the same, then round robin.

    In each pass, every member level with the first gets one item; members whose level is reached
    join the next pass.
    """
    order = sorted(loads, key=lambda load: (len(load), load.sort_key))
    at = level = 0
    while at < len(items):
        while level < len(order) and len(order[level]) <= len(order[0]):
            level += 1
        if level == len(order):
            break
        batch = items[at : at + level]
        for load, item in zip(order, batch, strict=False):
            load.given.append(item)
        at += len(batch)
    for seat, load in enumerate(order):
        load.given += items[at + seat :: len(order)]


def _round(
    round_input: RoundInput, sorted_out: _SortedOut, workers: Sequence[_Worker], delay: Delay
) -> Round:
    changes = {
        worker.member_id: MemberAssignment(
            assigned_connectors=tuple(worker.connectors.given),
            assigned_tasks=tuple(worker.tasks.given),
            revoked_connectors=tuple(worker.connectors.revoked),
            revoked_tasks=tuple(worker.tasks.revoked),
        )
        for worker in workers
    }
    revoked: dict[str, set[int]] = defaultdict(set)
    for change in changes.values():
        for name in change.revoked_connectors:
            revoked[name].add(CONNECTOR)
        for name, number in change.revoked_tasks:
            revoked[name].add(number)
    owned = dict(sorted_out.active)
    for name, gone in revoked.items():
        owned[name] = owned.get(name, _NOTHING) - gone
    for works in (sorted_out.created, sorted_out.lost):
        for name, numbers in works.items():
            owned[name] = owned[name] | numbers if name in owned else numbers
    memory = Memory(
        generation=round_input.generation,
        members=frozenset(changes),
        owned=_frozen(owned),
        revoked=_frozen(revoked),
        delay=delay,
    )
    members = {member.member_id: changes[member.member_id] for member in round_input.members}
    return Round(MappingProxyType(members), delay.delay_ms, memory)


def _frozen(works: _Works) -> Mapping[str, frozenset[int]]:
    return MappingProxyType({name: frozenset(n) for name, n in works.items() if n})
