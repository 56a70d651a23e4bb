"""Guards of fencing rounds and of tasks that are released, each with what goes wrong without it."""

import pytest
from support.herder.world import HerderWorld

from headgate.herder.context import (
    Context,
    CountRecorded,
    ForRound,
    Resolved,
    TaskGone,
    Unplaced,
)
from headgate.herder.fencing_rounds import FencingRounds
from headgate.herder.messages import (
    CreateConnector,
    Effect,
    FenceProducers,
    PutConnectorConfig,
    StartTask,
    StopTaskBy,
    Success,
)
from headgate.herder.settings import HerderSettings, Plugin
from headgate.herder.statuses import Statuses
from headgate.herder.tasks import Tasks
from headgate.ids import TaskId
from headgate.task.messages import (
    TaskEnded,
    TaskKind,
    TaskOutcome,
    TaskReleased,
    TaskRunning,
)
from headgate.topics.config_events import ConfigEvent
from headgate.topics.config_records import (
    Record,
    decode,
    encode_commit,
    encode_connector,
    encode_task,
)
from headgate.topics.config_reducer import fold

SOURCE = {"connector.class": "Source", "tasks.max": "1"}
C0 = TaskId("c", 0)


def context() -> Context:
    """The context of a worker that may start work, and has read a connector with one task."""
    plugins = {"Source": Plugin(TaskKind.SOURCE)}
    ctx = Context(HerderSettings(worker_id="a", url="http://a/", plugins=plugins), 0)
    records: list[Record] = [
        encode_connector("c", SOURCE),
        encode_task(C0, {}),
        encode_commit("c", 1),
    ]
    events: list[ConfigEvent] = [
        decode(offset, key.encode(), value) for offset, (key, value) in enumerate(records)
    ]
    ctx.state = fold(ctx.state, events)
    ctx.membership.member_id = ctx.membership.leader = "a-1"
    ctx.membership.stable = ctx.membership.alive = True
    return ctx


def test_a_read_that_a_given_up_round_asked_for_begins_no_other() -> None:
    """The later round must see what the log holds after it was asked for, not before."""
    ctx = context()
    rounds = FencingRounds(ctx)
    rounds.join(1, "c")
    first = next(iter(ctx._reads.values()))
    assert isinstance(first, ForRound)
    rounds.give_up()
    rounds.join(2, "c")
    before = list(ctx.notes)
    rounds.on_read(first, None)
    assert list(ctx.notes) == before == [Unplaced(1)]
    assert rounds.pending == ["fencing c: reading"]


def test_the_count_that_a_given_up_round_wrote_ends_no_later_one() -> None:
    """The record of the task count may stand before the commit that the later round is about."""
    ctx = context()
    rounds = FencingRounds(ctx)
    rounds.join(1, "c")
    read = next(iter(ctx._reads.values()))
    assert isinstance(read, ForRound)
    rounds.on_read(read, None)
    assert rounds.pending == ["fencing c: recording"]
    ctx.notes.clear()
    rounds.on_recorded(CountRecorded("c", 1, None))
    assert not ctx.notes
    rounds.on_recorded(CountRecorded("c", 2, None))
    assert list(ctx.notes) == [Resolved(1, Success())]


def test_a_round_ends_with_the_leadership_it_was_begun_under() -> None:
    """Otherwise a caller in the next generation would join a round that may never end. Its answer
    went with the leadership, or it fenced producers that have started since."""
    world = HerderWorld()
    world.add("a", exactly_once=True)
    world.until_settled()
    created = world.call("a", CreateConnector("c", SOURCE))
    world.until_settled()
    assert isinstance(world.answers[created][0], Success)

    def first_of_all(_worker: object, effect: Effect) -> bool:
        return isinstance(effect, FenceProducers) and not world.held

    world.holds.append(first_of_all)
    world.call("a", PutConnectorConfig("c", {**SOURCE, "tasks.max": "2"}))
    world.run()
    assert len(world.held) == 1
    world.lose_coordinator("a")
    world.until_settled()
    assert world.running() == {"a": ["c-0", "c-1"]}


@pytest.mark.parametrize("given_back", [True, False])
def test_a_task_that_is_given_back_while_it_stops_is_started_anew(given_back: bool) -> None:
    ctx = context()
    tasks = Tasks(ctx, Statuses(ctx))
    tasks.assign([C0])
    tasks.membership_changed()
    tasks.start_some()
    (start,) = [effect for effect in ctx.effects if isinstance(effect, StartTask)]
    run = start.spec.run
    tasks.on_report(run, TaskRunning())
    tasks.revoke([C0])
    assert ctx.effects[-1] == StopTaskBy(run, ctx.settings.task_stop_timeout_ms)
    if given_back:
        tasks.assign([C0])
    ctx.effects.clear()
    tasks.start_some()
    assert not [effect for effect in ctx.effects if isinstance(effect, StartTask)]
    tasks.on_report(run, TaskEnded(TaskOutcome.STOPPED))
    tasks.on_report(run, TaskReleased())
    tasks.start_some()
    starts = [effect for effect in ctx.effects if isinstance(effect, StartTask)]
    assert [start.spec.task for start in starts] == ([C0] if given_back else [])
    assert (TaskGone(C0) in ctx.notes) is not given_back
