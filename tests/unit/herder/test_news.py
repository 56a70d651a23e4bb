"""A worker tells a caller that asks again only what has changed since the caller's mark."""

import json
from dataclasses import replace

import pytest
from support.calls import counted
from support.herder.setups import SOURCE
from support.herder.world import HerderWorld

from headgate import wire
from headgate.herder import messages as m
from headgate.herder import news as news_module
from headgate.herder.held_task import HeldTasks
from headgate.herder.news import News
from headgate.ids import State, TargetState, TaskId
from headgate.task.messages import LongCall, TaskEnded, TaskOutcome, TaskProgress
from headgate.topics.config_records import encode_commit, encode_connector, encode_task

CONNECTORS = 200


def many(connectors: int = CONNECTORS, *, checked: bool = False) -> HerderWorld:
    """A worker alone in its group, with connectors of two tasks."""
    world = HerderWorld(checked=checked)
    for name in [f"c{number}" for number in range(connectors)]:
        world.log.append(encode_connector(name, {**SOURCE, "tasks.max": "2", "name": name}))
        for number in range(2):
            world.log.append(encode_task(TaskId(name, number), {"task": str(number), "v": ""}))
        world.log.append(encode_commit(name, 2))
    world.add("a")
    world.until_settled()
    return world


def told(world: HerderWorld, mark: str | None) -> m.WorkerView:
    """The worker's answer, as it travels."""
    call_id = world.call("a", m.DescribeWorker(mark))
    world.run()
    (answer,) = world.answers[call_id]
    assert isinstance(answer, m.Success)
    return wire.from_plain(m.WorkerView, json.loads(json.dumps(answer.value)))


def names(view: m.WorkerView) -> set[str]:
    return {*view.connectors, *(str(each.task) for each in view.tasks)}


def ask(world: HerderWorld, call: m.Call) -> None:
    call_id = world.call("a", call)
    world.run()
    assert isinstance(world.answers[call_id][0], m.Success)
    world.until_settled()


def test_who_asks_without_a_mark_is_told_all_and_gets_none() -> None:
    view = told(many(3), None)
    assert names(view) == {f"c{n}{task}" for n in range(3) for task in ("", "-0", "-1")}
    assert (view.mark, view.since) == ("", "")


def test_of_what_did_not_change_nothing_is_told() -> None:
    world = many()
    first = told(world, "")
    assert len(names(first)) == 3 * CONNECTORS
    again = told(world, first.mark)
    assert (names(again), again.gone_connectors, again.gone_tasks) == (set(), (), ())
    assert again.since == first.mark


def test_a_restart_is_told_of_the_connector_and_its_tasks_alone() -> None:
    world = many()
    mark = told(world, "").mark
    ask(world, m.RestartConnector("c7", include_tasks=True))
    view = told(world, mark)
    assert names(view) == {"c7", "c7-0", "c7-1"}
    assert {each.state for each in view.tasks} == {State.RUNNING}


def test_what_is_told_of_a_restart_costs_no_calls_for_others() -> None:
    """Counted in calls of Python functions, with few and with many connectors beside it."""

    def calls_of(connectors: int) -> int:
        world = many(connectors)
        mark = told(world, "").mark
        ask(world, m.RestartConnector("c7", include_tasks=True))
        herder, asked = world.workers["a"].herder, m.Called("x", m.DescribeWorker(mark))
        return counted(lambda: herder.handle(world.now_ms, asked))[0]

    assert calls_of(CONNECTORS) == calls_of(10)


def test_two_who_ask_are_told_the_same() -> None:
    world = many(3)
    one, two = told(world, "").mark, told(world, "").mark
    ask(world, m.SetTargetState("c1", TargetState.PAUSED))
    first = told(world, one)
    ask(world, m.SetTargetState("c2", TargetState.PAUSED))
    assert names(first) == {"c1", "c1-0", "c1-1"}
    assert names(told(world, first.mark)) == {"c2", "c2-0", "c2-1"}
    assert names(told(world, two)) == {"c1", "c1-0", "c1-1", "c2", "c2-0", "c2-1"}


def test_progress_is_told_once_and_the_same_progress_is_none() -> None:
    world = many(3)
    mark = told(world, "").mark
    run = next(run for run, spec in world.workers["a"].runs.items() if spec.task == ("c1", 0))
    world.report("a", run, TaskProgress(5, 0, True))
    world.run()
    view = told(world, mark)
    assert [(each.task, each.records) for each in view.tasks] == [(TaskId("c1", 0), 5)]
    world.report("a", run, TaskProgress(5, 0, True))
    world.run()
    assert names(told(world, view.mark)) == set()


@pytest.mark.parametrize("how", ["it returns", "the task fails"])
def test_a_call_that_does_not_return_is_told_until_it_does(how: str) -> None:
    world = many(1)
    mark, worker = told(world, "").mark, world.workers["a"]
    run = next(run for run, spec in worker.runs.items() if spec.task == ("c0", 0))
    world.report("a", run, LongCall("poll", 30_000))
    world.run()
    view = told(world, mark)
    (task,) = view.tasks
    assert (task.call, task.state) == ("poll", State.RUNNING)
    assert view.call_ms(task) == 30_000 + world.now_ms - view.now_ms
    failed = TaskEnded(TaskOutcome.FAILED, "boom")
    world.report("a", run, LongCall() if how == "it returns" else failed)
    world.run()
    last = told(world, view.mark)
    (task,) = last.tasks
    assert (task.call, last.call_ms(task)) == ("", None)


def test_what_is_gone_is_told() -> None:
    world = many(3)
    mark = told(world, "").mark
    ask(world, m.DeleteConnector("c1"))
    view = told(world, mark)
    assert (view.gone_connectors, set(view.gone_tasks)) == (("c1",), {("c1", 0), ("c1", 1)})
    assert names(view) == set()


@pytest.mark.parametrize("mark", ["", "x", "0.", "0.0", "0.9", "1.1", "0.-1", "0.²"])
def test_a_mark_that_is_not_known_is_told_all(mark: str) -> None:
    world = many(3)
    told(world, "")
    view = told(world, mark)
    assert (len(names(view)), view.since) == (9, "")


def test_a_view_that_is_put_together_is_the_whole_view() -> None:
    """The views are compared after each step of a story with a second worker, failures, and late
    questions."""
    world = many(4, checked=True)
    known = m.ViewOfWorker()
    steps: list[m.Call] = [
        m.RestartConnector("c1", include_tasks=True),
        m.SetTargetState("c2", TargetState.STOPPED),
        m.CreateConnector("b", {**SOURCE, "name": "b"}),
        m.DeleteConnector("c3"),
        m.CreateConnector("c3", {**SOURCE, "name": "c3", "tasks.max": "1"}),
        m.SetTargetState("c2", TargetState.STARTED),
        m.RestartTask(TaskId("c1", 1)),
        m.PutConnectorConfig("c0", {**SOURCE, "name": "c0", "tasks.max": "3"}),
    ]
    for number, call in enumerate(steps):
        ask(world, call)
        if number == 3:
            world.add("late")
            world.advance(10_000)
            world.until_settled()
        if number != 5:  # once it is not asked
            whole, view = told(world, None), known.take(told(world, known.mark))
            assert view == replace(whole, mark=view.mark, now_ms=view.now_ms)
            assert list(view.connectors) == sorted(view.connectors)


def test_a_view_keeps_what_it_was_and_shares_what_did_not_change() -> None:
    world = many(3)
    known = m.ViewOfWorker()
    first = known.take(told(world, known.mark))
    second = known.take(told(world, known.mark))
    assert second.tasks is first.tasks
    assert second.connectors is first.connectors
    ask(world, m.SetTargetState("c1", TargetState.PAUSED))
    third = known.take(told(world, known.mark))
    assert first.connectors["c1"] is State.RUNNING
    assert third.connectors["c1"] is State.PAUSED
    assert third.tasks is not first.tasks


class TestNews:
    def test_nothing_is_kept_before_somebody_asks(self) -> None:
        news = News(3)
        news.changed("a")
        news.came(["b"])
        news.went("c")
        assert (news._changed, news._gone) == ({}, {})

    def test_a_task_that_is_not_started_yet_is_news_as_it_comes_and_goes(self) -> None:
        news, task = News(3), TaskId("a", 0)
        held, mark = HeldTasks(news), news.asked()
        held.add([task])
        assert news.since(mark) == ([task], [])
        mark = news.asked()
        held.look(task)
        assert news.since(mark) == ([], [])
        held.remove(task)
        assert news.since(mark) == ([], [task])

    def test_what_went_and_came_again_is_not_gone(self) -> None:
        news = News(3)
        mark = news.asked()
        news.went("a")
        news.went(TaskId("a", 0))
        news.came(["a"])
        news.changed(TaskId("a", 0))
        assert news.since(mark) == ([TaskId("a", 0), "a"], [])

    def test_an_old_mark_is_not_known_once_something_gone_is_forgotten(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(news_module, "GONE_KEPT", 2)
        news = News(3)
        old, new = news.asked(), ""
        for number in range(4):
            news.went(f"c{number}")
            new = new or news.asked()
        assert news.since(old) is None
        assert news.since(new) is None, "c1 went after it"
        mark = news.asked()
        news.went("c9")
        assert news.since(mark) == ([], ["c9"])
        assert len(news._gone) == 2
