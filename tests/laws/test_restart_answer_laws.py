"""Laws of the answer to a restart, whatever happens to the workers meanwhile.

It comes once. After it, no reader of both topics takes the statuses of the run before for those of
the new run.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from support.depth import tries
from support.herder.world import HerderWorld, Worker

from headgate.herder import messages as m
from headgate.herder.restart_answers import STATUSES_MS
from headgate.herder.settled import THE_CONNECTOR, outdated
from headgate.ids import State, TargetState, TaskId
from headgate.task.messages import TaskEnded, TaskOutcome
from headgate.topics.config_records import decode
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate.topics.status import (
    Status,
    StatusView,
    connector_key,
    decode_status,
    fold_statuses,
    task_key,
)

WORKERS = ("a", "b", "c")
C = "c"
TASKS = (TaskId(C, 0), TaskId(C, 1))
Item: TypeAlias = str | TaskId
ITEMS: tuple[Item, ...] = (C, *TASKS)
ALL = m.RestartConnector(C, include_tasks=True)
CALLS: tuple[m.RestartConnector | m.RestartTask, ...] = (
    m.RestartConnector(C),
    *map(m.RestartTask, TASKS),
    ALL,
)
SOURCE = {"connector.class": "Source", "tasks.max": "2"}
ENDS = (TaskEnded(TaskOutcome.FAILED, "no", "trace: no"), TaskEnded(TaskOutcome.LOST, "gone"))
KINDS: tuple[tuple[type, ...], ...] = (
    (m.WriteStatus,),
    (m.StopTaskBy,),
    (m.StartConnector,),
    (m.StopConnector,),
    (m.CallPeer,),
    (m.AppendConfig,),
    (m.GenerateTaskConfigs,),
    (m.SendGroup,),
    (m.ReadConfigToEnd,),
)
CALL_MS = 20_000
"""Time limit of a call."""
PASSED_OVER = (State.UNASSIGNED, State.RESTARTING)
"""No wait ends with them."""


class Noted(list[m.Result]):
    """Answers to one call."""

    def __init__(self, world: "RestartWorld", call: m.RestartConnector | m.RestartTask) -> None:
        super().__init__()
        self._world = world
        self._call = call
        self._starts = world.starts(restarted(call)[0])

    def append(self, result: m.Result) -> None:
        assert not self, f"answered twice: {self[0]}, {result}"
        super().append(result)
        world, items = self._world, restarted(self._call)
        if isinstance(result, m.Failure):
            return
        if world.holds and world.now_ms - world.held_since >= STATUSES_MS:
            world.overdue += 1
            return
        if self._call is not ALL:
            begun = world.starts(items[0]) > self._starts
            assert begun or (items[0] == C and world.rested), "it was restarted"
        for item in items:
            world.check(item)


def restarted(call: m.RestartConnector | m.RestartTask) -> tuple[Item, ...]:
    if call is ALL:
        return ITEMS
    return (call.task,) if isinstance(call, m.RestartTask) else (call.name,)


class RestartWorld(HerderWorld):
    """Knows of each status in the topic whether it was said before the present run began."""

    def __init__(self) -> None:
        super().__init__()
        self.decided: dict[int, tuple[int, m.Effect]] = {}
        """Place of each status and start among all that was decided, by its identity."""
        self.started: dict[Item, list[int]] = {item: [] for item in ITEMS}
        self.places: list[int] = []
        """Place of each record of the status topic."""
        self.held_since = 0
        self.overdue = 0
        """Answers that could not wait any longer."""
        self.checked = 0

    def add(self, name: str, **settings_: object) -> Worker:
        worker = super().add(name, **settings_)
        ports: Any = worker.ports
        write = ports.write_statuses

        def noted(statuses: Sequence[m.WriteStatus]) -> None:
            self.places += [self.decided[id(each)][0] for each in statuses]
            write(statuses)

        ports.write_statuses = noted
        return worker

    def _traced(self, worker: Worker, effects: Iterable[m.Effect]) -> None:
        effects = list(effects)
        super()._traced(worker, effects)
        for effect in effects:
            place = len(self.decided)
            self.decided[id(effect)] = place, effect
            if isinstance(effect, m.StartTask):
                self.started[effect.spec.task].append(place)
            elif isinstance(effect, m.StartConnector):
                self.started[effect.connector].append(place)

    def starts(self, item: Item) -> int:
        return len(self.started[item])

    @property
    def rested(self) -> bool:
        """Return whether a user has asked for another target state at any time."""
        return any(key == f"target-state-{C}" for key, _ in self.log)

    def restart(self, worker: str, call: m.RestartConnector | m.RestartTask) -> None:
        asked = self.call(worker, call, CALL_MS)
        self.answers[asked] = Noted(self, call)

    # -- what a reader of both topics takes for the state --

    def read_all(self) -> tuple[ConfigState, StatusView]:
        events = [decode(n, key.encode(), value) for n, (key, value) in enumerate(self.log)]
        statuses = [decode_status(key, value) for key, value in self.statuses]
        return fold(ConfigState(), events), fold_statuses(StatusView(), statuses)

    def place_of(self, item: Item, shown: Status) -> int:
        """Return the offset of the newest record with the status that is shown."""
        key = connector_key(item) if isinstance(item, str) else task_key(item)
        for place, (found, value) in reversed(list(zip(self.places, self.statuses, strict=True))):
            if found == key and getattr(decode_status(key, value), "status", None) == shown:
                return place
        raise AssertionError(f"nothing says {shown} of {item}")

    def check(self, item: Item) -> None:
        """Check the law at an answer that reports a restart."""
        state, view = self.read_all()
        entry, tasks = state.entry(C), view.tasks.get(C, {})
        number = THE_CONNECTOR if isinstance(item, str) else item.task
        shown = view.connectors.get(C) if isinstance(item, str) else tasks.get(item.task)
        if entry is None or shown is None or shown.state in PASSED_OVER:
            return
        if number in outdated(entry, view, C) or state.target_state(C) is not TargetState.STARTED:
            return
        self.checked += 1
        since = self.started[item][-1]
        assert self.place_of(item, shown) > since, f"of the run before: {item} {shown}"


# -- what may happen --

WORKER = st.sampled_from(WORKERS)
RESTART = st.tuples(st.just("restart"), WORKER, st.sampled_from(CALLS))
TROUBLE = st.one_of(
    st.tuples(st.just("end"), st.sampled_from(TASKS), st.sampled_from(ENDS)),
    st.tuples(st.just("connector fails")),
    st.tuples(st.just("advance"), st.sampled_from((0, 1, 50, 400, 1_000, 4_000, 12_000))),
    st.tuples(st.just("hold"), st.sampled_from(KINDS)),
    st.tuples(st.just("release")),
    st.tuples(st.just("join"), WORKER),
    st.tuples(st.sampled_from(("kill", "shut down", "freeze", "cut", "lag", "lose")), WORKER),
    st.tuples(st.just("back")),
    st.tuples(st.just("put"), WORKER, st.integers(0, 3)),
    st.tuples(st.just("target"), WORKER, st.sampled_from(TargetState)),
    st.tuples(st.just("delete"), WORKER),
    st.tuples(st.just("away"), WORKER, st.sampled_from(CALLS)),
    st.tuples(st.just("away"), WORKER, st.sampled_from(CALLS)),
    st.tuples(st.just("speaking")),
)
ROUNDS = st.lists(
    st.tuples(
        st.lists(TROUBLE, max_size=2),
        st.lists(RESTART, min_size=1, max_size=2),
        st.lists(TROUBLE, max_size=3),
        st.booleans(),
        st.sets(st.sampled_from(TASKS)),
    ),
    min_size=1,
    max_size=5,
)
"""Troubles before and after restarts; whether nothing else happens between them; tasks whose new
runs say nothing."""


def hold(world: RestartWorld, whose: Worker | None, *kinds: type) -> None:
    if not world.holds:
        world.held_since = world.now_ms
    world.holds.append(lambda worker, effect: isinstance(effect, kinds) and whose in (None, worker))


def lives(worker: Worker | None) -> bool:
    return worker is not None and not worker.dead and not worker.herder.done


def others(world: RestartWorld, name: str) -> list[Worker]:
    return [each for each in world.workers.values() if lives(each) and each.name != name]


def ask(world: RestartWorld, name: str, call: m.Call) -> None:
    if lives(world.workers.get(name)):
        world.call(name, call, CALL_MS)


def act(world: RestartWorld, action: tuple[Any, ...]) -> None:
    match action:
        case ("restart", str(name), call):
            if lives(world.workers.get(name)):
                world.restart(name, call)
        case ("away", str(name), call):
            worker = world.workers.get(name)
            if worker is not None and lives(worker):
                hold(world, worker, m.SendGroup)
                world.lose_coordinator(name)
                world.run()  # what it has is stopped
                world.restart(name, call)
        case ("end", task, ended):
            for worker in world.workers.values():
                if any(spec.task == task for spec in worker.runs.values()):
                    world.end_task(worker.name, task, ended)
                    return
        case ("connector fails",):
            for worker in world.workers.values():
                for _, run in list(worker.configs) if lives(worker) else ():
                    world.give(worker.name, m.ConnectorFailed(C, run, "no", None))
        case ("advance", int(ms)):
            world.advance(ms)
        case ("hold", kinds):
            hold(world, None, *kinds)
        case ("release",):
            world.release()
        case ("join", str(name)) if name not in world.workers:
            world.add(name)
        case ("put", str(name), n):
            ask(world, name, m.PutConnectorConfig(C, {**SOURCE, "n": str(n)}))
        case ("target", str(name), target):
            ask(world, name, m.SetTargetState(C, target))
        case ("delete", str(name)):
            ask(world, name, m.DeleteConnector(C))
        case ("speaking",):
            world.silent_bodies.clear()
        case _:
            befall(world, action)


def befall(world: RestartWorld, action: tuple[Any, ...]) -> None:
    """Troubles of a worker; at least one other is left."""
    match action:
        case ("back",):
            for worker in world.workers.values():
                worker.frozen = worker.cut_off = worker.statuses_lag = False
        case (str(what), str(name)) if lives(world.workers.get(name)):
            worker = world.workers[name]
            if what == "kill" and others(world, name):
                world.kill(name)
            elif what == "shut down" and others(world, name):
                world.give(name, m.Shutdown())
                world.run()  # nobody asks one that has ended
            elif what == "freeze":
                worker.frozen = True
            elif what == "cut":
                worker.cut_off = True
            elif what == "lag":
                worker.statuses_lag = True
            elif what == "lose":
                world.lose_coordinator(name)
        case _:
            pass


def begun() -> RestartWorld:
    """`a` leads; `c` is to join."""
    world = RestartWorld()
    world.add("a")
    world.add("b")
    world.advance(15_000)
    world.call("a", m.CreateConnector(C, SOURCE))
    world.run()
    world.until_settled()
    return world


@settings(max_examples=tries(25, 1_000))
@given(ROUNDS)
def test_each_restart_is_answered_once_and_never_before_its_status(
    rounds: list[tuple[list[Any], list[Any], list[Any], bool, set[TaskId]]],
) -> None:
    world = begun()
    for before, restarts, after, at_once, silent in rounds:
        world.silent_bodies = silent
        for action in (*before, *restarts, *after):
            act(world, action)
            if not at_once:
                world.run()
    act(world, ("back",))
    world.release()
    world.run()
    world.advance(2 * CALL_MS)
    for worker in world.workers.values():
        if lives(worker):
            worker.herder.check()
    unanswered = [call for call, found in world.answers.items() if not found]
    assert not unanswered or any(worker.dead for worker in world.workers.values()), unanswered
