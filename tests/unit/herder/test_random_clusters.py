"""Random calls and troubles on three herders: every call is answered once, and what is configured
runs.

A failing seed is in the test's name. Whole clusters with faults on every message are in
`headgate.simulation`; here the herders are alone, with a reliable network.
"""

import random

import pytest
from support.herder.world import HerderWorld

from headgate.herder import messages as m
from headgate.ids import TargetState, TaskId
from headgate.task.messages import TaskEnded, TaskOutcome
from headgate.topics.config_state import ConfigState
from headgate.topics.status import StatusView, decode_status, fold_statuses

NAMES = ("a", "b", "c")
CONNECTORS = ("x", "y")
SHOWN = {
    TargetState.STARTED: "RUNNING",
    TargetState.PAUSED: "PAUSED",
    TargetState.STOPPED: "STOPPED",
}
QUIET_MS = 120_000
"""Longer than any call may take, and than session, delay and backoff together."""


class Story:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = HerderWorld()
        self.asked: dict[str, str] = {}
        self.born = 0
        self.protocols = self.random.choice(
            (("headgate",), ("headgate", "sessioned"), ("sessioned",), ("compatible",))
        )
        self.workers: dict[str, str] = {}
        """Host name of each place's present incarnation."""
        for place in NAMES:
            self.start(place)

    def start(self, place: str) -> None:
        self.born += 1
        name = f"{place}{self.born}"
        self.world.add(
            name,
            exactly_once=True,
            session_timeout_ms=6_000,
            session_keys=True,
            key_ttl_ms=30_000,
            protocols=self.protocols,
        )
        self.workers[place] = name

    def act(self) -> None:
        action = self.random.choices(
            (self.call, self.wait, self.restart_worker, self.freeze, self.leave, self.end_task),
            (10, 6, 1, 1, 0.5, 2),
        )[0]
        action()
        self.check_owners()

    def call(self) -> None:
        worker = self.workers[self.random.choice(NAMES)]
        if self.world.workers[worker].dead or self.world.workers[worker].herder.done:
            return
        self.asked[self.world.call(worker, self.some_call())] = worker
        if self.random.random() < 0.5:
            self.world.run()

    def some_call(self) -> m.Call:
        name = self.random.choice(CONNECTORS)
        config = {
            "connector.class": "Source",
            "tasks.max": str(self.random.randint(1, 3)),
            "v": str(self.random.randint(0, 2)),
        }
        calls: tuple[m.Call, ...] = (
            m.CreateConnector(name, config),
            m.CreateConnector(name, config, self.random.choice(list(TargetState))),
            m.PutConnectorConfig(name, config),
            m.PutConnectorConfig(name, config),
            m.DeleteConnector(name),
            m.SetTargetState(name, self.random.choice(list(TargetState))),
            m.RestartConnector(name),
            m.RestartTask(TaskId(name, self.random.randint(0, 2))),
            m.FenceConnector(name),
            m.RestartConnector(name, self.random.random() < 0.7, self.random.random() < 0.5),
            m.PatchConnectorConfig(name, {"v": str(self.random.randint(0, 2)), "w": None}),
            m.ResetOffsets(name),
            m.AlterOffsets(name, (({"n": 1}, {"m": 1}),)),
            m.ReadOffsets(name),
            m.DescribeConnector(name),
            m.ListConnectors(("status", "info")),
        )
        return self.random.choice(calls)

    def wait(self) -> None:
        self.world.advance(self.random.choice((1, 50, 400, 3_000, 8_000)))

    def restart_worker(self) -> None:
        place = self.random.choice(NAMES)
        self.world.kill(self.workers[place])
        self.start(place)

    def freeze(self) -> None:
        worker = self.world.workers[self.workers[self.random.choice(NAMES)]]
        worker.frozen = True
        self.world.advance(self.random.choice((500, 4_000, 20_000)))
        worker.frozen = False

    def leave(self) -> None:
        place = self.random.choice(NAMES)
        self.world.give(self.workers[place], m.Shutdown())
        self.world.advance(10_000)
        assert self.world.workers[self.workers[place]].herder.done
        self.start(place)

    def end_task(self) -> None:
        outcome = self.random.choice((TaskOutcome.LOST, TaskOutcome.FENCED))
        for name in self.workers.values():
            for spec in list(self.world.workers[name].runs.values())[:1]:
                self.world.end_task(name, spec.task, TaskEnded(outcome, "trouble"))

    def check_owners(self) -> None:
        """No task runs on two workers of which one has just heard from the coordinator.

        A worker that is frozen, or was frozen and has not had a turn yet, is the zombie for which
        fencing exists.
        """
        self.world.run()
        owners: dict[TaskId, str] = {}
        for worker in self.world.workers.values():
            if worker.dead or worker.frozen:
                continue
            for spec in worker.runs.values():
                other = owners.setdefault(spec.task, worker.name)
                assert other == worker.name, f"{spec.task} on {other} and {worker.name}"
            tasks = [spec.task for spec in worker.runs.values()]
            assert len(tasks) == len(set(tasks)), f"two runs of a task on {worker.name}"

    def finish(self) -> None:
        self.world.advance(QUIET_MS)
        self.world.until_settled()


FOUND = (67, 71, 75, 142, 263, 351, 757, 1876)
"""Seeds that have found something."""


@pytest.mark.parametrize("seed", [*range(25), *FOUND])
def test_every_call_is_answered_once_and_all_comes_to_rest(seed: int) -> None:
    story = Story(seed)
    for _ in range(70):
        story.act()
    story.finish()
    for call_id, worker in story.asked.items():
        answers = story.world.answers[call_id]
        gone = story.world.workers[worker].dead
        assert len(answers) == 1 or (gone and not answers), f"{call_id}: {answers}"
    herder = story.world.workers[story.workers["a"]].herder
    expected = sorted(
        str(task) for name in herder.state.connector_names() for task in herder.state.tasks(name)
    )
    running = [t for tasks in story.world.running().values() for t in tasks]
    assert sorted(running) == expected
    for name in herder.state.connector_names():
        target, tasks = herder.state.target_state(name), herder.state.tasks(name)
        entry = herder.state.entry(name)
        assert entry is not None
        # Created PAUSED it has no tasks; paused later it keeps them, fenced or not.
        if target is not TargetState.PAUSED:
            assert bool(tasks) is (target is TargetState.STARTED)
            assert not (tasks and entry.fencing_pending)
    check_statuses(story.world, herder.state)
    check_nothing_is_kept(story)
    check_offsets_may_be_changed(story)


def check_nothing_is_kept(story: Story) -> None:
    """Check that no worker holds work that is not configured. Connect's own policy can forget to
    revoke it."""
    for name in story.workers.values():
        herder = story.world.workers[name].herder
        assert set(herder.view().connectors) <= set(herder.state.connector_names())
        for task in herder.view().tasks:
            assert herder.state.task_config(task.task) is not None, task


def check_offsets_may_be_changed(story: Story) -> None:
    """Any worker accepts a change of a stopped connector's offsets."""
    for name in story.workers.values():
        state = story.world.workers[name].herder.state
        for connector in state.connector_names():
            if state.target_state(connector) is TargetState.STOPPED:
                call_id = story.world.call(name, m.ResetOffsets(connector))
                story.world.advance(QUIET_MS)
                assert isinstance(story.world.answers[call_id][0], m.Success)


def check_statuses(world: HerderWorld, state: ConfigState) -> None:
    """Check the statuses at rest: each configured connector and task has its owner and state, and
    there are no others.

    A reader that gets what a compaction would leave must see the same.
    """
    compacted = {key: (key, value) for key, value in world.statuses}
    for records in (world.statuses, list(compacted.values())):
        view = fold_statuses(StatusView(), (decode_status(*record) for record in records))
        assert set(view.connectors) == set(state.connector_names())
        for name, status in view.connectors.items():
            assert set(view.tasks.get(name, {})) == {task.task for task in state.tasks(name)}
            for said in (status, *view.tasks.get(name, {}).values()):
                assert said.state.value == SHOWN[state.target_state(name)]
        for owner, tasks in world.running().items():
            for task in tasks:
                name, _, number = task.rpartition("-")
                assert view.tasks[name][int(number)].worker_id == owner
