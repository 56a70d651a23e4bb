"""A herder whose tables contradict each other is found at the command that made them so.

Each row is one planted bug in one part. A story would show it much later, or never.
"""

from collections.abc import Callable
from typing import Any

import pytest
from support.herder.setups import SOURCE, created, one_worker, two_workers
from support.herder.world import HerderWorld

from headgate.herder import messages as m
from headgate.herder.check import InconsistentError
from headgate.herder.connectors import Connectors, Instance
from headgate.herder.context import Context
from headgate.herder.fencing_rounds import FencingRounds
from headgate.herder.held_task import HeldTask, HeldTasks
from headgate.herder.leadership import Leadership
from headgate.herder.news import News
from headgate.herder.requests import Requests
from headgate.herder.rows import KeptRows
from headgate.herder.statuses import Statuses
from headgate.herder.tasks import Tasks
from headgate.herder.work import GroupWork
from headgate.ids import TargetState, TaskId
from headgate.topics.config_records import encode_commit, encode_task


def nothing(*_: Any) -> None:
    pass


def keeps_idle(tasks: Tasks, held: HeldTask) -> None:
    drop(tasks, held)
    tasks._idle[held.task] = None


def forgets_run(tasks: Tasks, held: HeldTask) -> None:
    start(tasks, held)
    tasks._runs.pop(held.run, None)


def keeps_listed(held: HeldTasks, task: TaskId) -> None:
    del held._known[task]


def assigns_no_task(tasks: Tasks, _given: Any) -> None:
    assign(tasks, ())


def gives_back_at_once(work: GroupWork, connectors: Any, tasks: Any) -> None:
    revoke(work, connectors, tasks)
    work._awaiting_release = False


def awaits_another(requests: Requests, found: Any) -> None:
    await_token(requests, found)
    requests._by_token[found.token] += 1


def reads_for_nobody(ctx: Context, purpose: Any) -> None:
    read_to_end(ctx, purpose)
    if type(purpose).__name__ in ("ForCall", "ForRound"):
        ctx._reads.clear()


def generates_unnoticed(connectors: Connectors, instance: Instance) -> None:
    generate(connectors, instance)
    connectors._busy.clear()


drop, start, assign, generate = Tasks._drop, Tasks._start, Tasks.assign, Connectors._generate
revoke, await_token, read_to_end = GroupWork._revoke, Requests._await_token, Context.read_to_end


def runs(world: HerderWorld) -> None:
    """A connector is made, changed, paused, resumed and deleted, with fencing on the way."""
    created(world, {**SOURCE, "tasks.max": "2"})
    for call in (
        m.PutConnectorConfig("c", {**SOURCE, "tasks.max": "3"}),
        m.SetTargetState("c", TargetState.PAUSED),
        m.SetTargetState("c", TargetState.STARTED),
        m.RestartTask(TaskId("c", 0)),
        m.DescribeConnector("unknown"),
        m.SetTargetState("c", TargetState.STOPPED),
        m.ResetOffsets("c"),
        m.DeleteConnector("c"),
    ):
        world.call("b", call)
        world.advance(2_000)


def joins(world: HerderWorld) -> None:
    created(world, {**SOURCE, "tasks.max": "4"})
    world.add("third", exactly_once=True)
    world.advance(10_000)
    world.until_settled()


def commits(world: HerderWorld) -> None:
    """Other task configs, by a leader that this worker does not know of."""
    created(world)
    world.log.append(encode_task(TaskId("c", 0), {"task": "0", "v": "new"}))
    world.log.append(encode_commit("c", 1))
    world.run()


def loses_leadership(world: HerderWorld) -> None:
    """The worker loses leadership while a round of fencing is under way."""
    created(world)
    world.holds.append(lambda _, effect: isinstance(effect, m.FenceProducers))
    world.call("a", m.PutConnectorConfig("c", {**SOURCE, "tasks.max": "3"}))
    world.advance(5_000)
    world.lose_coordinator("a")
    world.advance(20_000)


BUGS: list[tuple[Any, str, Callable[..., None], Callable[[HerderWorld], None], str]] = [
    (Tasks, "_drop", keeps_idle, runs, "tasks said to be idle"),
    (Tasks, "_start", forgets_run, runs, "which is not said to be alive"),
    (HeldTasks, "remove", keeps_listed, runs, "tasks are listed by connector"),
    (Tasks, "on_commit", nothing, commits, "for commit"),
    (Tasks, "on_target_state", nothing, runs, "and was told STARTED; wanted is PAUSED"),
    (Tasks, "assign", assigns_no_task, runs, "tasks held"),
    (Connectors, "on_config", nothing, runs, "or not configured so"),
    (GroupWork, "_revoke", gives_back_at_once, joins, "are being released, and nobody waits"),
    (Requests, "_await_token", awaits_another, runs, "which does not wait for it"),
    (Leadership, "on_config_read", lambda p: p._read_back.clear(), runs, "not under way"),
    (FencingRounds, "give_up", nothing, loses_leadership, "on a worker that does not lead"),
    (Context, "read_to_end", reads_for_nobody, runs, "and nobody"),
    (KeptRows, "forget", nothing, runs, "the row of c is kept as"),
    (Leadership, "release", nothing, runs, "a lane is held for change of offsets"),
    (News, "changed", nothing, runs, "which is no news"),
    (News, "went", nothing, runs, "is gone is told otherwise"),
    (Connectors, "_generate", generates_unnoticed, runs, "which nobody would be told"),
]


@pytest.mark.parametrize(
    ("part", "name", "bug", "story", "words"), BUGS, ids=[f"{b[0].__name__}.{b[1]}" for b in BUGS]
)
def test_a_bug_is_found(
    monkeypatch: pytest.MonkeyPatch,
    part: Any,
    name: str,
    bug: Callable[..., None],
    story: Callable[[HerderWorld], None],
    words: str,
) -> None:
    story(two_workers(exactly_once=True))  # as it is nothing is found
    monkeypatch.setattr(part, name, bug)
    with pytest.raises(InconsistentError, match=words):
        story(two_workers(exactly_once=True))


def test_statuses_of_what_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    world = one_worker()
    created(world)
    statuses: Statuses = world.workers["a"].herder._statuses
    statuses._said_again.add("status-connector-gone")
    with pytest.raises(InconsistentError, match="said again of what is not said here"):
        world.workers["a"].herder.check()
