"""Offsets that a deleted connector has left, while a connector of its name is created.

In a model, a create comes at each moment of a reset. At every moment, the offsets are written while
no connector has the name, and the new connector's tasks start after that.
"""

from typing import Any

import pytest
from support.herder.setups import SOURCE, failure
from support.herder.world import HerderWorld, Worker

from headgate.herder import messages as m
from headgate.ids import TaskId
from headgate.task.messages import TaskKind
from headgate.topics.config_records import (
    encode_commit,
    encode_connector,
    encode_connector_tombstone,
    encode_task,
    encode_task_count,
)

RESET = m.ResetDeletedOffsets("c", TaskKind.SOURCE)


def deleted(workers: str = "a", *, run: bool = True, **settings: object) -> HerderWorld:
    """`a` leads; connector c with two tasks was deleted."""
    world = HerderWorld()
    for name in workers:
        world.add(name, **settings)
        world.advance(10_000)
        world.until_settled()
    world.call("a", m.CreateConnector("c", {**SOURCE, "tasks.max": "2"}))
    world.until_settled()
    world.call("a", m.DeleteConnector("c"))
    if run:
        world.until_settled()
        world.trace.clear()
    return world


def answer(world: HerderWorld, call_id: str) -> m.Result:
    (found,) = world.answers[call_id]
    return found


class Moments:
    """Performs one effect after the other, and does something before the effect of a number."""

    def __init__(self, world: HerderWorld, at: int, act: Any) -> None:
        self.begun: list[m.Effect] = []
        self.order: list[str] = []
        self._perform = world.perform
        self._world, self._at, self._act = world, at, act
        world.perform = self.perform  # type: ignore[method-assign]

    def perform(self, worker: Worker, effect: m.Effect) -> None:
        if len(self.begun) == self._at:
            self._act()
        self.begun.append(effect)
        match effect:
            case m.AlterConnectorOffsets():
                entry = worker.herder.state.entry("c")
                configured = any(key == "connector-c" and value for key, value in self._tail())
                self.order.append("written")
                assert entry is None and not configured, "there is a connector of the name"
            case m.AppendConfig(records=records) if ("connector-c", True) in {
                (key, value is not None) for key, value in records
            }:
                self.order.append("created")
            case m.StartTask():
                self.order.append("started")
        self._perform(worker, effect)

    def _tail(self) -> list[tuple[str, Any]]:
        """Records of the log since the last tombstone of the connector."""
        found: list[tuple[str, Any]] = []
        for key, value in self._world.log:
            if key == "connector-c" and value is None:
                found = []
            found.append((key, value))
        return found


def run_with_create_at(at: int, settings: dict[str, object], *, settled: bool) -> "Moments | None":
    """Run a reset with a create at this moment. Return None if the reset was over before it."""
    world = deleted(run=settled, **settings)
    created: list[str] = []

    def create() -> None:
        created.append(world.call("a", m.CreateConnector("c", {**SOURCE, "tasks.max": "1"})))

    moments = Moments(world, at, create)
    reset = world.call("a", RESET, deadline_ms=200_000)
    world.run()
    world.advance(20_000)
    world.until_settled()
    if not created:
        return None
    assert isinstance(answer(world, created[0]), m.Success)
    assert world.running()["a"] == ["c-0"], "the new one runs"
    said = answer(world, reset)
    if "written" in moments.order:
        assert isinstance(said, m.Success), said
        assert moments.order.index("written") < moments.order.index("created")
    else:
        assert isinstance(said, m.Failure) and said.kind is m.ErrorKind.ALREADY_EXISTS, said
    return moments


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_create_at_each_moment_of_a_reset(exactly_once: bool, settled: bool) -> None:
    seen = set()
    for at in range(200):
        moments = run_with_create_at(at, {"exactly_once": exactly_once}, settled=settled)
        if moments is None:
            break
        seen.add("written" in moments.order)
    else:
        pytest.fail("no end")
    # A create is validated first: it seldom overtakes.
    assert True in seen and (False in seen or not exactly_once)


def test_what_is_there_is_refused_by_name() -> None:
    world = HerderWorld()
    world.add("a")
    world.advance(10_000)
    world.call("a", m.CreateConnector("c", SOURCE))
    world.until_settled()
    for call in (
        RESET,
        m.ResetDeletedOffsets("c", TaskKind.SOURCE, dry_run=True),
        m.ReadDeletedOffsets("c", TaskKind.SINK),
    ):
        call_id = world.call("a", call)
        world.run()
        refused = failure(world, call_id)
        assert refused.kind is m.ErrorKind.ALREADY_EXISTS
        assert "Connector c exists" in refused.message
        assert "/connectors/c/offsets" in refused.message


def test_a_connector_created_elsewhere_is_seen_at_the_end_of_the_log() -> None:
    world = deleted()
    world.log.append(encode_connector("c", SOURCE))
    call_id = world.call("a", m.ReadDeletedOffsets("c", TaskKind.SOURCE))
    world.run()
    assert failure(world, call_id).kind is m.ErrorKind.ALREADY_EXISTS


def test_producers_that_the_log_has_recorded_are_shut_out_first() -> None:
    world = deleted(exactly_once=True)
    effects: list[m.Effect] = []
    perform = world.perform

    def noted(worker: Worker, effect: m.Effect) -> None:
        effects.append(effect)
        perform(worker, effect)

    world.perform = noted  # type: ignore[method-assign]
    call_id = world.call("a", RESET)
    world.run()
    assert isinstance(answer(world, call_id), m.Success)
    (fence,) = [each for each in effects if isinstance(each, m.FenceProducers)]
    (alter,) = [each for each in effects if isinstance(each, m.AlterConnectorOffsets)]
    assert effects.index(fence) < effects.index(alter)
    group = world.workers["a"].herder._ctx.settings.group
    assert fence.transactional_ids == (f"{group}-c-0", f"{group}-c-1")
    assert alter.transactional_id == f"{group}-c-0" and alter.deleted and not alter.config
    assert not any(isinstance(each, m.AppendConfig) for each in effects), "no count is recorded"


def test_a_fencing_that_fails_is_told_and_nothing_is_written() -> None:
    world = deleted(exactly_once=True)
    world.holds.append(lambda _, e: isinstance(e, m.FenceProducers))
    call_id = world.call("a", RESET)
    world.run()
    ((_, fence),) = world.held
    assert isinstance(fence, m.FenceProducers)
    world.held.clear()
    world.give("a", m.ProducersFenced(fence.token, "no rights"))
    world.run()
    assert "no rights" in failure(world, call_id).message
    assert not any("alter offsets" in line for line in world.trace)


@pytest.mark.parametrize("step", ["settling", "checking"])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_namesake_that_came_and_went_is_fenced_for_too(exactly_once: bool, step: str) -> None:
    """Another leader has created such a connector, which is in the log by now."""
    world = deleted(run=step == "checking", exactly_once=exactly_once)
    came: list[m.Effect] = []
    perform = world.perform

    def noted(worker: Worker, effect: m.Effect) -> None:
        if not came and f"offsets of c: {step}" in worker.herder.view().pending:
            came.append(effect)
            task = encode_task(TaskId("c", 0), {})
            world.log.extend([encode_connector("c", SOURCE), task, encode_commit("c", 1)])
            world.log.extend([encode_task_count("c", 1), encode_connector_tombstone("c")])
            if step == "settling":
                worker.host.post(world.read(worker))
        if came and isinstance(effect, m.FenceProducers | m.AlterConnectorOffsets):
            came.append(effect)
        perform(worker, effect)

    world.perform = noted  # type: ignore[method-assign]
    call_id = world.call("a", RESET, deadline_ms=200_000)
    world.run()
    world.advance(20_000)
    world.run()
    assert isinstance(answer(world, call_id), m.Success)
    kinds = [type(each) for each in came[1:]]
    assert kinds == [*([m.FenceProducers] * exactly_once), m.AlterConnectorOffsets]


def test_a_reset_that_outlives_its_leader_is_not_called_done_when_one_was_created() -> None:
    world = deleted("ab")
    world.holds.append(lambda _, e: isinstance(e, m.AlterConnectorOffsets))
    call_id = world.call("a", RESET, deadline_ms=200_000)
    world.run()
    world.workers["a"].frozen = True
    world.advance(20_000)
    world.workers["a"].frozen = False
    world.advance(20_000)
    world.call("b", m.CreateConnector("c", SOURCE))
    world.advance(10_000)
    world.release()
    world.run()
    refused = failure(world, call_id)
    assert refused.kind is m.ErrorKind.CONFLICT
    assert "a connector of that name was created" in refused.message
