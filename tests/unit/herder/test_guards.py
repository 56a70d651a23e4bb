"""Guards of the herder, each with the story that goes wrong without it."""

import json
from collections.abc import Callable

import pytest
from support.herder.setups import C0, SOURCE, created, failure, one_worker, two_workers
from support.herder.world import HerderWorld

from headgate.herder import messages as m
from headgate.herder.calls import config_digest
from headgate.herder.requests import NOT_CLAIMED
from headgate.ids import TargetState, TaskId
from headgate.membership.messages import HeartbeatAnswered
from headgate.task.messages import (
    FencingRequested,
    ProducerInitialised,
    RecheckAnswered,
    TaskEnded,
    TaskOutcome,
    TaskReleased,
    TaskRunning,
)
from headgate.topics.config_records import (
    encode_commit,
    encode_connector,
    encode_target_state,
    encode_task,
)

STALE = (
    m.ConfigAppended(999, 10),
    m.ConfigEndRead(999),
    m.LeadershipClaimed(999),
    m.LeadershipClaimed(1, "too late"),
    m.PeerAnswered(999, m.Success()),
    m.ConfigValidated(999, ("wrong",)),
    m.ConnectorStarted("c", 77),
    m.ConnectorStopped("c", 77),
    m.ConnectorFailed("c", 77, "late", None),
    m.ConnectorStarted("gone", 1),
    m.TaskConfigsGenerated(999, "c", ({"task": "9"},)),
    m.TaskReconfigurationRequested("c", 77),
    m.ProducersFenced(999),
    m.TaskReported("a/0.77", FencingRequested()),
    m.TaskReported("a/0.77", TaskRunning()),
    m.TaskReported("a/0.77", TaskEnded(TaskOutcome.FAILED, "late")),
    m.TaskReported("a/0.77", TaskReleased()),
)


@pytest.mark.parametrize("command", STALE, ids=lambda c: type(c).__name__)
def test_a_stale_answer_changes_nothing(command: object) -> None:
    world = one_worker(exactly_once=True)
    created(world)
    before = world.workers["a"].herder.view()
    world.trace.clear()
    world.give("a", command)  # type: ignore[arg-type]
    world.run()
    assert world.trace == []
    assert world.workers["a"].herder.view() == before


def test_a_new_leader_decides_only_after_it_has_read_the_whole_log() -> None:
    """The leader before wrote the connector, and this worker has not read it yet. Without the read
    after the claim, the connector would be created twice."""
    world = one_worker()
    world.claimed_by = "its predecessor"
    world.log.append(encode_connector("c", SOURCE))
    call_id = world.call("a", m.CreateConnector("c", SOURCE))
    world.advance(1_000)
    assert failure(world, call_id).kind is m.ErrorKind.ALREADY_EXISTS
    assert [key for key, _ in world.log].count("connector-c") == 2  # the second with its commit


LACKS = "User:connect lacks Write on TransactionalId:connect-cluster-g"


def _never_claimed() -> HerderWorld:
    world = HerderWorld()
    world.claim_errors = [LACKS] * 3
    world.add("a")
    return world


def _overtaken() -> HerderWorld:
    world = one_worker()
    world.claim_errors = [LACKS] * 3
    world.claimed_by = "another worker"
    return world


@pytest.mark.parametrize(
    ("made", "kind"), [(_never_claimed, m.ErrorKind.CONFLICT), (_overtaken, m.ErrorKind.TIMEOUT)]
)
def test_a_call_to_a_leader_that_may_not_write_is_told_why(
    made: Callable[[], HerderWorld], kind: m.ErrorKind
) -> None:
    world = made()
    call_id = world.call("a", m.CreateConnector("c", SOURCE), deadline_ms=900)
    world.advance(900)
    failed = failure(world, call_id)
    assert failed.kind is kind
    assert NOT_CLAIMED.format(LACKS) in failed.message
    world.advance(60_000)
    call_id = world.call("a", m.CreateConnector("later", SOURCE))
    world.run()
    assert isinstance(world.answers[call_id][0], m.Success)


def test_two_calls_at_once_are_decided_one_after_the_other() -> None:
    world = one_worker()
    first = world.call("a", m.CreateConnector("c", SOURCE))
    second = world.call("a", m.CreateConnector("c", SOURCE))
    world.run()
    assert isinstance(world.answers[first][0], m.Success)
    assert failure(world, second).message == "Connector c already exists"


def test_success_means_read_back() -> None:
    world = one_worker()
    world.workers["a"].cut_off = True
    call_id = world.call("a", m.DeleteConnector("none"))
    world.run()
    world.workers["a"].cut_off = False
    world.holds.append(lambda _, effect: isinstance(effect, m.AppendConfig))
    call_id = world.call("a", m.CreateConnector("c", SOURCE))
    world.run()
    ((worker, append),) = world.held
    assert isinstance(append, m.AppendConfig)
    world.held.clear()
    worker.cut_off = True  # appended, but not read yet
    world.log.extend(append.records)
    world.give("a", m.ConfigAppended(append.token, len(world.log)))
    world.run()
    assert world.answers[call_id] == []
    worker.cut_off = False
    world.run()
    assert isinstance(world.answers[call_id][0], m.Success)


def test_task_configs_made_of_an_older_connector_config_are_refused() -> None:
    """They would be committed as if they were made of the present config, and the tasks would never
    get it (KAFKA-15575)."""
    world = one_worker()
    created(world)
    stale = m.PutTaskConfigs("c", ({"task": "0"},), made_of=config_digest({**SOURCE, "v": "old"}))
    call_id = world.call("a", stale)
    world.run()
    assert failure(world, call_id).kind is m.ErrorKind.CONFLICT


def test_task_configs_that_change_nothing_are_not_written() -> None:
    world = one_worker()
    created(world)
    length = len(world.log)
    entry = world.workers["a"].herder.state.entry("c")
    assert entry is not None
    call_id = world.call("a", m.PutTaskConfigs("c", (entry.tasks[0],)))
    world.run()
    assert isinstance(world.answers[call_id][0], m.Success)
    assert len(world.log) == length


def test_without_a_task_count_record_a_source_task_does_not_go_on() -> None:
    """A leader that says yes and has recorded nothing: older producers may be alive."""
    world = two_workers(exactly_once=True)
    created(world, {**SOURCE, "tasks.max": "2"})
    world.holds.append(lambda _, e: isinstance(e, m.FenceProducers))  # asked for by `a`'s own task
    world.holds.append(
        lambda _, e: isinstance(e, m.CallPeer) and isinstance(e.call, m.FenceConnector)
    )
    world.call("a", m.PutConnectorConfig("c", {**SOURCE, "tasks.max": "2", "file": "another"}))
    world.run()
    ((worker, call),) = [(w, e) for w, e in world.held if isinstance(e, m.CallPeer)]
    assert isinstance(call, m.CallPeer)
    sent: list[m.Effect] = []
    world.holds.append(lambda _, e: isinstance(e, m.SendTask) and sent.append(e) is not None)
    world.give(worker.name, m.PeerAnswered(call.token, m.Success()))
    world.run()
    answers = [e.command for e in sent if isinstance(e, m.SendTask)]
    rechecks = [c for c in answers if isinstance(c, RecheckAnswered)]
    assert rechecks
    assert all("no task count record" in (c.abandon or "") for c in rechecks)


def test_the_recheck_is_answered_only_when_the_log_was_read() -> None:
    world = one_worker(exactly_once=True)
    world.silent_bodies.add(C0)
    created_id = world.call("a", m.CreateConnector("c", SOURCE))
    world.run()
    assert isinstance(world.answers[created_id][0], m.Success)
    run = world.run_of("a", C0)
    world.report("a", run, FencingRequested())
    world.run()
    world.workers["a"].cut_off = True  # the read fails, and is tried again
    world.trace.clear()
    world.report("a", run, ProducerInitialised())
    world.advance(2_000)
    assert not [line for line in world.trace if "RecheckAnswered" in line]
    world.workers["a"].cut_off = False
    world.advance(300)
    assert "a: tell 1 RecheckAnswered(abandon=None)" in world.trace


def test_a_count_is_not_recorded_for_task_configs_that_came_while_it_waited_its_turn() -> None:
    """The round fenced for one commit; before its count is written, a newer commit is. The count
    would say of it that older producers are shut out, which nobody has done."""
    world = one_worker(exactly_once=True)
    created(world)
    world.holds.append(lambda _, e: type(e).__name__ == "FenceProducers")
    world.call("a", m.PutConnectorConfig("c", {**SOURCE, "tasks.max": "2"}))
    world.run()
    ((worker, fence),) = world.held
    world.holds = [lambda _, e: isinstance(e, m.AppendConfig)]
    world.held.clear()
    world.call("a", m.PutTaskConfigs("c", ({"task": "new"}, {"task": "newer"})))
    world.run()  # it is being written, and the round's count has to wait
    world.perform(worker, fence)
    world.run()
    length = len(world.log)
    world.silent_bodies.update((C0, TaskId("c", 1)))
    world.release()
    world.run()
    assert [key for key, _ in world.log[length:]] == [
        "connector-c",
        "task-c-0",
        "task-c-1",
        "commit-c",
    ]


def test_what_an_older_run_of_a_connector_says_is_not_taken_for_the_present_one() -> None:
    world = one_worker()
    created(world)
    world.holds.append(lambda _, e: type(e).__name__ in ("StopConnector", "StartConnector"))
    call_id = world.call("a", m.RestartConnector("c"))
    world.run()
    world.trace.clear()
    world.give("a", m.ConnectorStopped("c", 77))
    world.run()
    assert world.trace == []
    ((worker, stop),) = world.held
    world.held.clear()
    world.perform(worker, stop)
    world.run()
    world.trace.clear()
    world.give("a", m.ConnectorStarted("c", 1))
    world.run()
    assert world.trace == []
    world.release()
    world.run()
    assert isinstance(world.answers[call_id][0], m.Success)


def test_a_fenced_task_waits_for_the_log_and_for_an_answer_given_since() -> None:
    world = one_worker(exactly_once=True)
    created(world)
    world.advance(5_000)
    world.holds.append(lambda _, e: isinstance(e, m.SendGroup | m.ReadConfigToEnd))
    world.end_task("a", C0, TaskEnded(TaskOutcome.FENCED, "another producer"))
    world.run()
    herder = world.workers["a"].herder
    member, generation = herder.view().member_id, herder.view().generation

    def confirming() -> bool:
        return "confirming c-0" in herder.view().pending

    for sent_ms in (world.now_ms - 1, None, world.now_ms):
        if sent_ms is None:
            ((_, read),) = [(w, e) for w, e in world.held if isinstance(e, m.ReadConfigToEnd)]
            world.give("a", m.ConfigEndRead(read.token))
        else:
            answer = HeartbeatAnswered("headgate", member, generation, None, sent_ms)
            world.give("a", m.GroupAnswered(answer))
        assert confirming()
        world.run()
    assert not confirming()


def test_a_fenced_task_does_not_come_back_on_a_heartbeat_alone() -> None:
    world = one_worker(exactly_once=True)
    created(world)
    world.holds.append(lambda _, e: isinstance(e, m.ReadConfigToEnd))
    world.end_task("a", C0, TaskEnded(TaskOutcome.FENCED, "another producer"))
    world.advance(20_000)
    assert "confirming c-0" in world.workers["a"].herder.view().pending
    world.release()
    world.until_settled()
    assert world.running() == {"a": ["c-0"]}


def test_new_task_configs_wait_for_the_round_that_they_bring_about() -> None:
    """That holds also on a worker that is still stopping what an earlier round revoked."""
    world = one_worker()
    created(world, {**SOURCE, "tasks.max": "2"})
    world.add("b")
    revoked: list[str] = []

    def hold(_worker: object, effect: m.Effect) -> bool:
        if isinstance(effect, m.StopTaskBy) and not revoked:
            revoked.append(effect.run)
        return isinstance(effect, m.StopTaskBy) and effect.run in revoked

    world.holds.append(hold)
    world.advance(5_000)
    assert revoked
    world.trace.clear()
    world.log += [encode_task(TaskId("c", n), {"task": str(n), "v": "2"}) for n in range(2)] + [
        encode_commit("c", 2)
    ]
    world.run()
    assert any(line.startswith("a: stop run") for line in world.trace)
    assert not [line for line in world.trace if line.startswith("a: start task")]
    world.release()
    world.advance(10_000)
    world.until_settled()
    assert sorted(t for tasks in world.running().values() for t in tasks) == ["c-0", "c-1"]


def test_what_is_open_is_answered_when_the_worker_shuts_down_and_what_comes_later_too() -> None:
    world = one_worker()
    world.holds.append(lambda _, e: isinstance(e, m.AppendConfig))
    first = world.call("a", m.CreateConnector("c", SOURCE))
    world.run()
    world.give("a", m.Shutdown())
    second = world.call("a", m.RestartConnector("c"))
    world.workers["a"].host.inbox.rotate(1)  # the call comes first, before the worker is done
    world.run()
    assert failure(world, first).kind is m.ErrorKind.TIMEOUT, "it may have been written"
    assert len(world.answers[second]) == 1
    assert world.workers["a"].herder.done


def test_unassigned_is_not_written_over_what_a_later_owner_said() -> None:
    world = one_worker()
    created(world)
    key = "status-task-c-0"
    later = {"state": "RUNNING", "trace": None, "worker_id": "b", "generation": 99}
    world.statuses.append((key, json.dumps(later).encode()))
    world.run()
    world.trace.clear()
    world.call("a", m.SetTargetState("c", TargetState.STOPPED))
    world.run()
    assert not [line for line in world.trace if "task-c-0 UNASSIGNED" in line]


def test_failed_is_written_whatever_is_known() -> None:
    """In Java a status of a higher generation hides it."""
    world = one_worker()
    created(world)
    later = {"state": "RUNNING", "trace": None, "worker_id": "b", "generation": 99}
    world.statuses.append(("status-task-c-0", json.dumps(later).encode()))
    world.run()
    world.end_task("a", C0, TaskEnded(TaskOutcome.FAILED, "bad", "trace"))
    world.run()
    assert "a: status task-c-0 FAILED (trace)" in world.trace


def test_a_trace_of_any_length_makes_a_record_that_brokers_take() -> None:
    """Otherwise neither the status nor what waits with it would ever be written. Java writes the
    whole trace."""
    world = one_worker()
    created(world)
    trace = "the first line\n" + "\x01" * 3_000_000 + "\nthe last line"
    world.end_task("a", C0, TaskEnded(TaskOutcome.FAILED, "bad", trace))
    world.run()
    value = dict(world.statuses)["status-task-c-0"]
    assert value is not None and len(value) < 1_000_000
    shown = json.loads(value)["trace"]
    assert shown.startswith("the first line\n") and shown.endswith("\nthe last line")
    assert "2950029 characters left out" in shown


def test_a_body_that_leaves_out_the_recheck_is_stopped() -> None:
    world = one_worker(exactly_once=True)
    world.silent_bodies.add(C0)
    world.call("a", m.CreateConnector("c", SOURCE))
    world.run()
    world.report("a", world.run_of("a", C0), FencingRequested(), TaskRunning())
    world.run()
    assert "a: stop run 1 within 0 ms" in world.trace
    assert "status task-c-0 RUNNING" not in " ".join(world.trace)


def test_nothing_starts_before_the_assignment_was_caught_up_with() -> None:
    """A commit that was read on the way to the assignment makes it outdated."""
    world = two_workers()
    started: list[m.Effect] = []
    world.holds.append(lambda _, e: isinstance(e, m.StartTask) and started.append(e) is not None)
    world.workers["b"].cut_off = True  # of the log: below it is mended for the group alone
    world.call("a", m.CreateConnector("c", {**SOURCE, "tasks.max": "4"}))
    world.run()
    assert not [line for line in world.trace if line.startswith("b: start")]


def test_the_view_is_plain_data_and_comes_at_once_during_a_rebalance() -> None:
    world = HerderWorld()
    world.add("a")
    call_id = world.call("a", m.DescribeWorker())
    world.run()
    (answer,) = world.answers[call_id]
    assert isinstance(answer, m.Success)
    shown = json.loads(json.dumps(answer.value))
    assert shown["worker_id"] == "a"
    assert shown["settled"] is False


def test_settled_says_that_a_delay_is_running() -> None:
    world = two_workers(rebalance_delay_ms_max=20_000)
    created(world, {**SOURCE, "tasks.max": "2"})
    world.kill("b")
    world.advance(15_000)
    view = world.workers["a"].herder.view()
    assert not view.settled
    assert any("lost work waits" in words for words in view.pending)


def test_a_restart_during_a_rebalance_waits_for_its_end() -> None:
    world = one_worker()
    created(world)
    world.end_task("a", C0, TaskEnded(TaskOutcome.FAILED, "bad"))
    world.run()
    world.holds.append(lambda _, e: isinstance(e, m.SendGroup))
    world.log.append(encode_connector("d", SOURCE))  # brings a rebalance about
    world.run()
    world.trace.clear()
    call_id = world.call("a", m.RestartTask(C0))
    world.run()
    assert world.trace == ["a: status task-c-0 RESTARTING"]
    world.release()
    world.until_settled()
    assert isinstance(world.answers[call_id][0], m.Success)


def test_a_worker_that_was_frozen_looks_at_the_clock_before_anything_else() -> None:
    """Commands that waited while its session expired must not start work that another worker owns
    by now."""
    world = one_worker()
    created(world)
    world.holds.append(lambda _, e: type(e).__name__ == "StopConnector")
    world.call("a", m.RestartConnector("c"))
    world.run()
    worker = world.workers["a"]
    worker.frozen = True
    world.advance(20_000)
    ((_, stop),) = world.held
    world.held.clear()
    world.holds = [lambda _, e: isinstance(e, m.SendGroup)]
    world.perform(worker, stop)
    world.trace.clear()
    worker.frozen = False
    world.run()
    assert not [line for line in world.trace if "start connector" in line]


def test_an_unknown_connector_is_looked_for_in_the_log_first() -> None:
    """Another worker may have created it a moment ago."""
    world = two_workers()
    world.workers["b"].host.post(m.Called("pause", m.SetTargetState("c", TargetState.PAUSED)))
    world.answers["pause"] = []
    world.log.append(encode_connector("c", SOURCE))
    world.run()
    assert isinstance(world.answers["pause"][0], m.Success)


def test_the_leader_removes_a_status_of_what_is_not_configured_when_it_reads_it() -> None:
    """A worker that was slow to stop says UNASSIGNED after the clean-up."""
    world = one_worker()
    late = {"state": "UNASSIGNED", "trace": None, "worker_id": "b", "generation": 1}
    world.statuses.append(("status-task-gone-0", json.dumps(late).encode()))
    world.run()
    assert "a: status -task-gone-0" in world.trace


def test_a_large_assignment_is_started_in_pieces() -> None:
    world = one_worker()
    sizes: list[int] = []
    herder = world.workers["a"].herder
    handle = herder.handle

    def counted(now_ms: int, command: object) -> list[m.Effect]:
        effects = handle(now_ms, command)  # type: ignore[arg-type]
        sizes.append(sum(isinstance(e, m.StartTask) for e in effects))
        return effects

    herder.handle = counted  # type: ignore[method-assign]
    world.silent_bodies.update(TaskId("c", n) for n in range(450))  # nothing else wakes it
    world.call("a", m.CreateConnector("c", {**SOURCE, "tasks.max": "450"}))
    world.run()
    assert sum(sizes) == 450
    assert max(sizes) == 200


def test_put_creates_and_says_so() -> None:
    world = one_worker()
    first = world.call("a", m.PutConnectorConfig("c", SOURCE))
    world.until_settled()
    second = world.call("a", m.PutConnectorConfig("c", {**SOURCE, "v": "2"}))
    world.run()
    values = [world.answers[call_id][0] for call_id in (first, second)]
    assert [v.value["created"] for v in values] == [True, False]  # type: ignore[union-attr,index]
    assert values[1].value["tasks"] == [{"connector": "c", "task": 0}]  # type: ignore[union-attr,index]


def test_a_connector_stopped_and_resumed_in_one_read_gets_its_tasks_again() -> None:
    """The owner never saw the connector stopped, so nothing starts it again, but its tasks are
    gone."""
    world = one_worker()
    world.call("a", m.CreateConnector("c", SOURCE))
    world.until_settled()
    records = (
        encode_commit("c", 0),
        encode_target_state("c", TargetState.STOPPED),
        encode_target_state("c", TargetState.STARTED),
    )
    for record in records:
        world.log.append(record)
    world.until_settled()
    assert world.running() == {"a": ["c-0"]}
