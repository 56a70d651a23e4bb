"""Checks that the tables of one herder agree with each other, after each command.

A wrong entry in a table would show much later, as a task that never starts or that two workers
have. `Herder.check` finds it at the command that made it. The simulation and the scenarios call it
after every command. A worker does not, since it looks at all work that is held.

Source: dask's `validate_state`.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, assert_never

from headgate.errors import CoreError
from headgate.herder.context import Context, ForCall, FromTasks
from headgate.herder.held_task import HeldTask, HeldTasks
from headgate.herder.news import Item, News
from headgate.herder.open_call import OpenCall, Stage
from headgate.herder.task_table import ALIVE, NOTHING_ALIVE, SETTLED, TaskState
from headgate.ids import TargetState, TaskId
from headgate.topics.config_state import ConfigState


class InconsistentError(CoreError):
    """Tables of a herder do not agree, which is a bug in the herder. The message has all that was
    found."""


@dataclass(frozen=True, slots=True)
class TaskTables:
    """The tables of `headgate.herder.tasks`, under the same names."""

    held: HeldTasks
    runs: Mapping[str, HeldTask]
    idle: Collection[TaskId]
    revoked: Collection[TaskId]
    unsettled: Collection[TaskId]
    confirming: Collection[TaskId]
    fencing: Mapping[FromTasks, int]


class ToldNews:
    """Checks that every item whose view has changed since the last check was reported to `News`."""

    def __init__(self) -> None:
        self._mark = ""
        self._shown: Mapping[Item, object] = {}

    def disagreements(self, news: News, shown: Mapping[Item, object]) -> Iterator[str]:
        """Yield, in words, where `news` and the views disagree. `shown`: the view of each item held
        now."""
        found, before = news.since(self._mark), self._shown
        self._mark, self._shown = news.asked(), shown
        if found is None:
            return  # the first check
        changed, gone = set(found[0]), set(found[1])
        for item, now in shown.items():
            if item not in changed and before.get(item) != now:
                yield f"{item} is shown as {now} and was as {before.get(item)}, which is no news"
        for item in [*before, *changed, *gone]:
            if (item in shown) is (item in gone):
                yield f"that {item} {'is held' if item in shown else 'is gone'} is told otherwise"


def check_tasks(tables: TaskTables, state: ConfigState) -> Iterator[str]:
    yield from tables.held.disagreements()
    tasks = [tables.held.look(task) for task in tables.held]
    for name, members, expected in (
        ("idle", tables.idle, {t.task for t in tasks if _is_idle(t)}),
        ("revoked", tables.revoked, {t.task for t in tasks if t.revoked}),
        ("unsettled", tables.unsettled, {t.task for t in tasks if _is_unsettled(t)}),
    ):
        if set(members) != expected:
            yield f"tasks said to be {name}: {_few(members)}; by their states: {_few(expected)}"
    for run, held in tables.runs.items():
        known = held.task in tables.held and tables.held.look(held.task) is held
        if held.run != run or held.state in NOTHING_ALIVE or not known:
            yield f"run {run} is said to be alive; {held.task} is {held.state} with run {held.run}"
    for held in tasks:
        yield from _check_task(held, tables, state)


def _check_task(held: HeldTask, tables: TaskTables, state: ConfigState) -> Iterator[str]:
    task = held.task
    if held.state not in NOTHING_ALIVE and tables.runs.get(held.run) is not held:
        yield f"{task} is {held.state} with run {held.run}, which is not said to be alive"
    if held.revoked and held.state in NOTHING_ALIVE:
        yield f"{task} is revoked and {held.state}, and was not given up"
    if held.state is TaskState.CONFIRMING and task not in tables.confirming:
        yield f"{task} is to be confirmed, and nobody does"
    origin = FromTasks(task.connector, held.commit_offset)
    if held.state is TaskState.AWAITING_FENCING and origin not in tables.fencing:
        yield f"{task} awaits fencing of commit {held.commit_offset}, which nobody asks for"
    if held.state not in ALIVE:
        return
    entry = state.entry(task.connector)
    if entry is None or entry.commit_offset != held.commit_offset:
        commit = None if entry is None else entry.commit_offset
        yield f"{task} is {held.state} for commit {held.commit_offset}; in force is {commit}"
        return
    target = state.target_state(task.connector)
    if target is not TargetState.STOPPED and held.target_told is not target:
        yield f"{task} is {held.state} and was told {held.target_told}; wanted is {target}"


def _is_idle(held: HeldTask) -> bool:
    return held.state is TaskState.IDLE and not held.revoked


def _is_unsettled(held: HeldTask) -> bool:
    return held.state is not TaskState.IDLE and held.state not in SETTLED


def _few(tasks: Collection[TaskId]) -> str:
    shown = [str(task) for task in sorted(tasks)[:5]]
    return ", ".join(shown) + ("..." if len(tasks) > len(shown) else "") or "none"


class Holder(Protocol):
    """A part of the herder that a call may wait for."""

    def has(self, ticket: int) -> bool: ...


def check_calls(
    calls: Mapping[int, OpenCall],
    by_token: Mapping[int, int],
    ctx: Context,
    rounds: Holder,
    changes: Holder,
    writes: Holder,
) -> Iterator[str]:
    """Yield, in words, which open calls wait for something that will not come.

    Args:
        calls: open calls by ticket.
        by_token: tickets of the calls that await an answer, by the token of the answer.
    """
    for token, ticket in by_token.items():
        found = calls.get(ticket)
        if found is None or found.token != token:
            yield f"answer {token} is awaited for call {ticket}, which does not wait for it"
    for ticket, found in calls.items():
        awaited = by_token.get(found.token) == ticket
        match found.stage:
            case Stage.VALIDATING | Stage.ELSEWHERE | Stage.READING_OFFSETS:
                comes = awaited
            case Stage.READING:
                comes = ctx.is_read(ForCall(ticket))
            case Stage.FENCING:
                comes = rounds.has(ticket)
            case Stage.CHANGING_OFFSETS:
                comes = changes.has(ticket)
            case Stage.WRITING:
                comes = awaited or writes.has(ticket)
            case Stage.NEW:
                comes = False
            case Stage.WAITING | Stage.RESTARTING:
                comes = True
            case _:
                assert_never(found.stage)
        if not comes or found.ticket != ticket:
            what = f"call {ticket} ({type(found.call).__name__})"
            yield f"{what} is {found.stage.value}, and nobody will end that"
