"""The timeline of a study's run, as ``headgate simulate`` prints it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from headgate.ids import TaskId
from headgate.simulation.study import Run, facts
from headgate.simulation.study.times import time_text

PIECES_MAX: Final = 24
"""Tasks, or rows of tasks, that one list names."""
_INDENT: Final = " " * 16


def timeline(run: Run) -> Iterator[str]:
    """Lines, by virtual time: events with a star, then what comes of them."""
    view = _View()
    for is_task, group in groupby(run.facts, key=lambda fact: isinstance(fact, facts.TaskChanged)):
        if is_task:
            yield from view.tasks([one for one in group if isinstance(one, facts.TaskChanged)])
        else:
            for fact in group:
                yield from view.lines(fact)
    yield f"{_clock(run.ended_ms)}  {_end(run)}"


def _end(run: Run) -> str:
    if run.settled:
        return "the end: nothing is under way any more"
    if run.study.duration_ms is not None:
        return "the end, as duration says; something is under way still"
    return "the end: what is under way has not come to rest"


class _View:
    def __init__(self) -> None:
        self._wanted: frozenset[TaskId] = frozenset()
        self._on: dict[TaskId, set[str]] = {}

    def lines(self, fact: facts.Fact) -> Iterator[str]:
        at = _clock(fact.at_ms)
        match fact:
            case facts.Happened():
                yield f"{at}* {fact.text}"
            case facts.WorkerChanged():
                yield f"{at}  {fact.worker} {fact.change.value}"
            case facts.MemberGone():
                yield f"{at}  {fact.worker} is out of the group: it {fact.why}"
            case facts.Configured():
                self._wanted = frozenset(fact.tasks)
                paused = f", and {_named(fact.paused)} not to run" if fact.paused else ""
                yield f"{at}  the config topic has {_named(fact.tasks) or 'no tasks'}{paused}"
            case facts.Rebalanced():
                yield from _rebalance(fact)
            case facts.Refused():
                again = "is refused, and asked again" if fact.again else "has no effect"
                yield f"{at}  {fact.what} {again}: {fact.why}"
            case facts.Sent():
                yield f"{at}    {fact.source} > {fact.target}: {fact.text}"
            case facts.TaskChanged():
                yield from self.tasks([fact])

    def tasks(self, changes: Sequence[facts.TaskChanged]) -> Iterator[str]:
        """A line for all changes between which nothing else happened, at the time of the last."""
        before = {change.task: frozenset(self._on.get(change.task, ())) for change in changes}
        for change in changes:
            on = self._on.setdefault(change.task, set())
            if change.runs:
                on.add(change.worker)
            else:
                on.discard(change.worker)
        begun: dict[str, list[TaskId]] = {}
        ended: dict[str, list[TaskId]] = {}
        for task, had in sorted(before.items()):
            for worker in sorted(self._on[task] - had):
                begun.setdefault(worker, []).append(task)
            for worker in sorted(had - self._on[task]):
                ended.setdefault(worker, []).append(task)
        parts = [f"stop {_on(ended)}"] if ended else []
        parts += [f"run {_on(begun)}"] if begun else []
        if parts:
            yield f"{_clock(changes[-1].at_ms)}  tasks {'; '.join(parts)} ({self._count()})"

    def _count(self) -> str:
        runs = sum(1 for task in self._wanted if self._on.get(task))
        twice = [task for task, on in self._on.items() if len(on) > 1]
        text = (
            f"all {runs} run" if runs == len(self._wanted) else f"{runs} of {len(self._wanted)} run"
        )
        return f"{text}; TWICE {_named(sorted(twice))}" if twice else text


def _on(tasks: dict[str, list[TaskId]]) -> str:
    return ", ".join(f"{_named(those)} on {worker}" for worker, those in sorted(tasks.items()))


def _rebalance(fact: facts.Rebalanced) -> Iterator[str]:
    took = time_text(fact.at_ms - fact.began_ms)
    delay = f", scheduled delay {time_text(fact.delay_ms)}" if fact.delay_ms else ""
    failed = ", FAILED: the leader had read less than a member" if fact.failed else ""
    yield (
        f"{_clock(fact.at_ms)}  rebalance: generation {fact.generation}, leader {fact.leader}, "
        f"{fact.protocol}, took {took}{delay}{failed}"
    )
    yield f"{_INDENT}because {fact.why}"
    width = max((len(member.worker) for member in fact.members), default=2)
    for member in sorted(fact.members, key=lambda one: int(one.worker[1:])):
        yield f"{_INDENT}{member.worker:{width}}  {_member(member)}"
    waiting = _work(fact.waiting_connectors, fact.waiting_tasks)
    if waiting:
        waits = "wait for the delay" if fact.delay_ms else "wait for the next rebalance"
        yield f"{_INDENT}{'-':{width}}  {waiting} {waits}"


def _member(member: facts.MemberRound) -> str:
    new_connectors, new_tasks = set(member.new_connectors), set(member.new_tasks)
    kept = _work(
        [name for name in member.connectors if name not in new_connectors],
        [task for task in member.tasks if task not in new_tasks],
    )
    given = _work(member.new_connectors, member.new_tasks)
    revoked = _work(member.revoked_connectors, member.revoked_tasks)
    parts = [f"keeps {kept}"] if kept else []
    parts += [f"ASSIGNED {given}"] if given else []
    parts += [f"REVOKED {revoked}"] if revoked else []
    return "  ".join(parts) or "has nothing"


def _work(connectors: Iterable[str], tasks: Iterable[TaskId]) -> str:
    shown = [f"connector {name}" for name in sorted(connectors)]
    named = _named(sorted(tasks))
    return ", ".join((*shown, named) if named else shown)


def _named(tasks: Iterable[TaskId]) -> str:
    """``orders-0..3,7``: numbers in a row as their first and last."""
    shown: list[str] = []
    pieces = 0
    count = 0
    for name, group in groupby(sorted(tasks), key=lambda task: task.connector):
        numbers = [task.task for task in group]
        rows = list(_rows(numbers))
        left = max(PIECES_MAX - pieces, 0)
        pieces += len(rows)
        count += len(numbers)
        if left:
            shown.append(f"{name}-{','.join(rows[:left])}")
    more = f" and more, {count} in all" if pieces > PIECES_MAX else ""
    return f"{', '.join(shown)}{more}"


def _rows(numbers: Sequence[int]) -> Iterator[str]:
    first = last = numbers[0]
    for number in (*numbers[1:], None):
        if number == last + 1:
            last = number
            continue
        if last - first >= 2:
            yield f"{first}..{last}"
        else:
            yield from map(str, range(first, last + 1))
        if number is not None:
            first = last = number


def _clock(ms: int) -> str:
    return f"{ms / 1000:11.3f} s"
