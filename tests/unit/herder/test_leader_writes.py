"""The leader writes session keys, patches, restarts, task counts, and task configs that Java can
read."""

import pytest
from support.herder.setups import C0, SOURCE, created, failure, one_worker, two_workers
from support.herder.world import HerderWorld

from headgate.herder import messages as m
from headgate.herder.context import Context
from headgate.herder.restarts import Restarts
from headgate.herder.session_keys import KeyRing
from headgate.herder.settings import HerderSettings
from headgate.herder.statuses import Statuses
from headgate.ids import TaskId
from headgate.task.messages import TaskEnded, TaskOutcome, TaskReleased
from headgate.topics.config_events import RestartRequested
from headgate.topics.config_records import encode_commit, encode_task, encode_task_count

TWO = {**SOURCE, "tasks.max": "2"}


def appends(world: HerderWorld) -> list[str]:
    return [line for line in world.trace if "append" in line]


# -- session keys --


@pytest.mark.parametrize(
    ("settings", "made"),
    [
        ({}, ["a: make a session key: HmacSHA256, 256 bits"]),
        ({"key_algorithm": "HmacSHA512"}, ["a: make a session key: HmacSHA512, 512 bits"]),
        ({"key_size": 128}, ["a: make a session key: HmacSHA256, 128 bits"]),
        ({"protocols": ("sessioned",)}, ["a: make a session key: HmacSHA256, 256 bits"]),
        ({"protocols": ("compatible",)}, []),
        ({"session_keys": False}, []),
    ],
)
def test_a_key_is_made_where_calls_are_signed(settings: dict[str, object], made: list[str]) -> None:
    world = one_worker(**{"session_keys": True, **settings})
    assert [line for line in world.trace if "session key" in line] == made
    assert (world.workers["a"].herder.state.session_key is not None) == bool(made)


def test_a_follower_makes_no_key() -> None:
    world = one_worker()
    world.add("b", session_keys=True)
    world.advance(10_000)
    world.until_settled()
    assert not [line for line in world.trace if "session key" in line]


@pytest.mark.parametrize("settings", [{"key_ttl_ms": 0}, {"key_size": 100}])
def test_a_key_that_will_do_is_the_last_one_that_is_made(settings: dict[str, object]) -> None:
    """The next one was made as soon as one was written, for ever."""
    world = one_worker(session_keys=True, **settings)
    world.advance(600_000)
    assert len([line for line in world.trace if "make a session key" in line]) == 1


@pytest.mark.parametrize("ahead_ms", [-7_200_000, 0, 7_200_000])
def test_how_old_an_own_key_is_does_not_hang_on_the_date(ahead_ms: int) -> None:
    """The date is set right, or the machine has slept, by more than a key's life."""
    world = HerderWorld()
    world.add("a", session_keys=True)
    world.holds.append(lambda _, e: isinstance(e, m.MakeSessionKey))
    world.advance(1_000)
    for life in range(1, 4):
        (_, asked), *more = world.held
        assert isinstance(asked, m.MakeSessionKey) and not more
        world.held.clear()
        made = m.SessionKeyMade(asked.token, b"%d" % life * 32, world.now_ms + ahead_ms)
        world.give("a", made)
        world.advance(3_590_000)
        assert not world.held, "another one before an hour was over"
        world.advance(20_000)


def test_a_key_that_nobody_waits_for_is_not_written() -> None:
    world = one_worker(session_keys=True)
    length = len(world.log)
    world.give("a", m.SessionKeyMade(999, b"k" * 32, 5))
    world.run()
    assert len(world.log) == length


@pytest.mark.parametrize("fenced", [False, True])
def test_a_key_that_could_not_be_written_is_made_again(fenced: bool) -> None:
    world = HerderWorld()
    world.add("a", session_keys=True)
    world.holds.append(lambda _, e: isinstance(e, m.AppendConfig))
    world.advance(1_000)
    ((_, append),) = world.held
    assert isinstance(append, m.AppendConfig)
    world.holds.clear()
    world.held.clear()
    world.give("a", m.ConfigAppendFailed(append.token, "no answer", fenced))
    world.advance(1_000)
    assert world.workers["a"].herder.state.session_key is not None


@pytest.mark.parametrize("fenced", [False, True])
def test_a_task_count_that_could_not_be_written_is_written_after_another_claim(
    fenced: bool,
) -> None:
    world = one_worker(exactly_once=True)
    created(world, TWO)
    world.holds.append(
        lambda _, e: isinstance(e, m.AppendConfig) and e.records[0][0] == "tasks-fencing-c"
    )
    world.call("a", m.PutConnectorConfig("c", {**TWO, "v": "2"}))
    world.advance(5_000)
    ((_, append),) = world.held
    assert isinstance(append, m.AppendConfig)
    world.holds.clear()
    world.held.clear()
    world.trace.clear()
    world.give("a", m.ConfigAppendFailed(append.token, "no answer", fenced))
    world.until_settled()
    written = [n for n, line in enumerate(world.trace) if "append tasks-fencing-c" in line]
    claims = [n for n, line in enumerate(world.trace) if "claim leadership" in line]
    assert claims and written and claims[0] < written[0]
    entry = world.workers["a"].herder.state.entry("c")
    assert entry is not None and not entry.fencing_pending
    assert {"c-0", "c-1"} <= set(world.running()["a"])


def test_a_key_that_was_made_for_a_former_leader_is_forgotten() -> None:
    world = HerderWorld()
    world.add("a", session_keys=True)
    world.holds.append(lambda w, e: type(e).__name__ == "MakeSessionKey" and w.name == "a")
    world.advance(1_000)
    world.add("b", session_keys=True)
    world.advance(10_000)
    world.workers["a"].frozen = True
    world.advance(20_000)
    world.workers["a"].frozen = False
    world.advance(20_000)
    key = world.workers["b"].herder.state.session_key
    assert key is not None
    world.release()
    world.advance(1_000)
    assert world.workers["a"].herder.view().settled
    assert world.workers["b"].herder.state.session_key == key


def test_a_key_that_others_may_read_first_or_later_is_taken_besides_the_current_one() -> None:
    """A task of a Java worker that asked to be fenced at a turn of the key had failed for good."""
    world = one_worker(session_keys=True, key_ttl_ms=300_000)
    a = world.workers["a"].herder
    first = a.session_keys.current
    assert first is not None
    world.advance(65_000)
    assert a.session_keys == KeyRing(first)  # its making was long enough ago
    world.holds.append(lambda _, e: isinstance(e, m.ReadConfigToEnd | m.AppendConfig))
    world.advance(236_000)
    ((_, append),) = world.held
    assert isinstance(append, m.AppendConfig)
    (made,) = a.session_keys.also
    assert a.session_keys == KeyRing(first, (made,)) and made != first.key
    world.holds.clear()
    world.release()
    world.advance(100)
    second = a.session_keys.current
    assert second is not None and second.key == made
    assert a.session_keys.also == (made, first.key)
    world.advance(59_300)  # its own time began when it was made
    assert a.session_keys == KeyRing(second, (first.key,))
    world.advance(1_000)
    assert a.session_keys == KeyRing(second)
    world.advance(241_000)
    assert second.key in a.session_keys.also
    world.add("b", session_keys=True)  # was not there: nothing that it read was signed before
    world.advance(1_000)
    b = world.workers["b"].herder
    assert b.session_keys == KeyRing(a.session_keys.current) and b.session_keys.current is not None


def test_a_key_that_is_replaced_while_it_is_taken_is_taken_for_longer() -> None:
    world = one_worker(session_keys=True, key_ttl_ms=40_000)
    a = world.workers["a"].herder
    first = a.session_keys.current
    assert first is not None
    world.advance(59_000)  # replaced after 40 s, so taken until 100 s
    assert a.session_keys.current != first
    world.advance(40_000)
    assert first.key in a.session_keys.also
    world.advance(5_000)
    assert first.key not in a.session_keys.also


# -- no answer --


def test_a_write_without_an_answer_is_followed_by_a_claim_before_anything_is_decided() -> None:
    """The write may have left an open transaction. Only a claim ends it, and until then no reader
    gets past it."""
    world = one_worker()
    created(world)
    world.trace.clear()
    world.holds.append(lambda _, e: isinstance(e, m.AppendConfig))
    lost = world.call("a", m.PutConnectorConfig("c", {**SOURCE, "v": "1"}))
    world.run()
    ((_, append),) = world.held
    assert isinstance(append, m.AppendConfig)
    world.holds.clear()
    world.held.clear()
    world.give("a", m.ConfigAppendFailed(append.token, "no answer", fenced=False))
    world.run()
    assert failure(world, lost).kind is m.ErrorKind.INTERNAL
    world.call("a", m.PutConnectorConfig("c", {**SOURCE, "v": "2"}))
    world.until_settled()
    found = [
        line.partition(" of ")[0] for line in world.trace if "claim" in line or "append" in line
    ]
    assert found[:3] == ["a: append connector-c", "a: claim leadership", "a: append connector-c"]


def test_a_config_that_is_too_large_for_the_topic_is_the_callers_fault() -> None:
    world = one_worker()
    created(world)
    world.holds.append(lambda _, e: isinstance(e, m.AppendConfig))
    large = world.call("a", m.PutConnectorConfig("c", {**SOURCE, "v": "1"}))
    world.run()
    ((_, append),) = world.held
    assert isinstance(append, m.AppendConfig)
    world.holds.clear()
    world.held.clear()
    world.give("a", m.ConfigAppendFailed(append.token, "2 MB", fenced=False, too_large=True))
    world.run()
    told = failure(world, large)
    assert told.kind is m.ErrorKind.BAD_REQUEST
    assert told.message.endswith("(2 MB)")


def test_a_config_that_nobody_could_read_back_is_not_written() -> None:
    """Readers take no name of more than 50,000 bytes: its caller waited for ever."""
    world = one_worker()
    created(world)
    for call in (
        m.CreateConnector("d", {**SOURCE, "k" * 50_001: "v"}),
        m.PutConnectorConfig("c", {**SOURCE, "k" * 50_001: "v"}),
    ):
        before = list(world.log)
        call_id = world.call("a", call)
        world.run()
        told = failure(world, call_id)
        assert told.kind is m.ErrorKind.BAD_REQUEST
        assert "could not be read back: not JSON at byte" in told.message
        assert "a name longer than 50000 bytes" in told.message
        assert world.log == before
    fits = world.call("a", m.PutConnectorConfig("c", {**SOURCE, "k" * 50_000: "v" * 100_000}))
    world.run()
    assert isinstance(world.answers[fits][0], m.Success)


def test_task_configs_that_nobody_could_read_back_are_told() -> None:
    world = one_worker()
    world.holds.append(lambda _, e: isinstance(e, m.GenerateTaskConfigs))
    world.call("a", m.CreateConnector("c", SOURCE))
    world.run()
    ((_, asked),) = world.held
    assert isinstance(asked, m.GenerateTaskConfigs)
    given = ({"k" * 50_001: "v"},)
    world.give("a", m.TaskConfigsGenerated(asked.token, "c", given))
    world.run()
    assert any("FAILED" in line and "could not be read back" in line for line in world.trace)


# -- patches --


def test_of_many_patches_at_once_none_is_lost() -> None:
    world = one_worker()
    created(world)
    calls = [world.call("a", m.PatchConnectorConfig("c", {f"k{n}": str(n)})) for n in range(5)]
    world.until_settled()
    assert all(isinstance(world.answers[call][0], m.Success) for call in calls)
    info = world.call("a", m.DescribeConnector("c"))
    world.run()
    (answer,) = world.answers[info]
    assert isinstance(answer, m.Success)
    config = answer.value["config"]  # type: ignore[index]
    assert {key: value for key, value in config.items() if key.startswith("k")} == {
        f"k{n}": str(n) for n in range(5)
    }


def test_a_patch_of_what_was_deleted_while_it_was_validated_finds_nothing() -> None:
    world = one_worker()
    created(world)
    world.holds.append(lambda _, e: type(e).__name__ == "ValidateConfig")
    call_id = world.call("a", m.PatchConnectorConfig("c", {"v": "2"}))
    world.run()
    world.log += [("connector-c", None), ("target-state-c", None)]
    world.run()
    world.release()
    world.run()
    assert world.answers[call_id] == [m.Failure(m.ErrorKind.NOT_FOUND, "Connector c not found")]


# -- restarts --


def test_a_restart_without_a_status_to_plan_with_is_not_written() -> None:
    world = one_worker()
    world.holds.append(lambda _, e: type(e).__name__ in ("StartConnector", "WriteStatus"))
    world.call("a", m.CreateConnector("c", SOURCE))
    world.run()
    length = len(world.log)
    call_id = world.call("a", m.RestartConnector("c", include_tasks=True))
    world.run()
    text = "Status for connector c not found"
    assert world.answers[call_id] == [m.Failure(m.ErrorKind.NOT_FOUND, text)]
    assert len(world.log) == length


def test_a_task_that_has_failed_and_is_not_released_yet_is_restarted_when_it_is() -> None:
    world = one_worker()
    created(world)
    run = world.run_of("a", C0)
    world.workers["a"].runs.pop(run)
    world.give("a", m.TaskReported(run, TaskEnded(TaskOutcome.FAILED, "bad")))
    world.run()
    world.call("a", m.RestartConnector("c", include_tasks=True, only_failed=True))
    world.run()
    assert world.running() == {"a": []}
    world.give("a", m.TaskReported(run, TaskReleased()))
    world.run()
    assert world.running() == {"a": ["c-0"]}


def test_a_restart_of_what_has_failed_leaves_alone_what_was_told_to_stop() -> None:
    world = one_worker()
    created(world)
    world.trace.clear()
    world.call("a", m.RestartConnector("c", include_tasks=True, only_failed=True))
    world.run()
    assert [line for line in world.trace if "start" in line and "append" not in line] == []


def test_what_is_taken_away_while_it_is_restarted_is_not_called_restarting() -> None:
    world = one_worker()
    created(world)
    world.holds.append(lambda _, e: type(e).__name__ == "StopConnector")
    world.call("a", m.RestartConnector("c", include_tasks=True))
    world.run()
    world.trace.clear()
    world.lose_coordinator("a")
    world.holds.append(lambda _, e: type(e).__name__ == "SendGroup")
    world.run()
    ((_, stop), *_) = world.held
    world.held.clear()
    world.perform(world.workers["a"], stop)
    world.run()
    assert [line for line in world.trace if "connector-c" in line] == [
        "a: status connector-c UNASSIGNED"
    ]


def test_a_task_that_fails_on_its_way_out_has_not_failed() -> None:
    world = one_worker()
    created(world)
    run = world.run_of("a", C0)
    world.holds.append(lambda _, e: type(e).__name__ == "StopTaskBy")
    world.call("a", m.PutConnectorConfig("c", {**SOURCE, "file": "another"}))
    world.run()
    world.workers["a"].runs.pop(run)
    world.give("a", m.TaskReported(run, TaskEnded(TaskOutcome.FAILED, "while it stopped")))
    world.run()
    world.call("a", m.RestartConnector("c", include_tasks=True, only_failed=True))
    world.run()
    world.give("a", m.TaskReported(run, TaskReleased()))
    world.run()
    assert world.running() == {"a": ["c-0"]}
    assert not [line for line in world.trace if "RESTARTING" in line]


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        # (include tasks, only failed), from the least to the most that is restarted
        ((False, True), (True, True), 1),
        ((True, True), (False, False), 1),
        ((False, False), (True, False), 1),
        ((True, False), (False, False), 0),
        ((False, False), (True, True), 0),
        ((True, True), (True, True), 0),
    ],
)
def test_of_requests_that_wait_the_one_that_restarts_more_counts(
    first: tuple[bool, bool], second: tuple[bool, bool], kept: int
) -> None:
    ctx = Context(HerderSettings("w", "u"), 0)
    restarts = Restarts(ctx, None, None, Statuses(ctx))  # type: ignore[arg-type]
    requests = [RestartRequested(n, "c", *flags) for n, flags in enumerate((first, second))]
    for request in requests:
        restarts.on_requested(request)
    assert restarts._waiting == {"c": requests[kept]}


def test_a_restart_that_waits_is_carried_out_once() -> None:
    world = one_worker()
    created(world)
    restart = ("restart-connector-c", b'{"include-tasks":true,"only-failed":false}')
    world.log += [("connector-d", b'{"properties":{"connector.class":"Source"}}'), restart]
    world.until_settled()
    assert len([line for line in world.trace if "status task-c-0 RESTARTING" in line]) == 1
    assert not world.workers["a"].herder.view().pending


# -- task counts --

COUNT = "tasks-fencing-c"


def count_written(world: HerderWorld, config: dict[str, str]) -> str:
    """Return the append that writes the task count after a connector's new config."""
    world.holds.append(lambda _, e: isinstance(e, m.StartTask))  # no task asks for anything
    world.trace.clear()
    world.call("a", m.PutConnectorConfig("c", config))
    world.advance(5_000)
    return next((line for line in appends(world) if COUNT in line), "")


@pytest.mark.parametrize("protocol", ["headgate", "sessioned"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_the_count_of_the_first_tasks_goes_with_their_commit(protocol: str, tasks: int) -> None:
    world = one_worker(exactly_once=True, protocols=(protocol,))
    written = count_written(world, {**SOURCE, "tasks.max": str(tasks)})
    assert written.endswith(f"commit-c, {COUNT}")
    entry = world.workers["a"].herder.state.entry("c")
    assert entry is not None
    assert (entry.fencing_count, entry.fencing_pending) == (tasks, False)


@pytest.mark.parametrize(
    ("before", "after", "at_once"), [(1, 1, True), (1, 2, False), (2, 1, False), (2, 2, False)]
)
def test_a_count_waits_for_the_producers_that_have_to_be_shut_out(
    before: int, after: int, at_once: bool
) -> None:
    world = one_worker(exactly_once=True)
    created(world, {**SOURCE, "tasks.max": str(before)})
    changed = {**SOURCE, "tasks.max": str(after), "file": "another"}
    assert bool(count_written(world, changed)) is at_once


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({"exactly_once": True}, {"connector.class": "Sink", "tasks.max": "1", "topics": "t"}),
        ({"exactly_once": True}, {**SOURCE, "tasks": "0"}),
        ({"exactly_once_support": "preparing"}, SOURCE),
        ({}, SOURCE),
    ],
)
def test_no_count_is_written_where_no_task_is_transactional(
    settings: dict[str, object], config: dict[str, str]
) -> None:
    world = one_worker(**settings)
    assert count_written(world, config) == ""
    assert [line for line in appends(world) if "commit-c" in line]


def test_what_the_log_has_of_a_fence_is_not_asked_of_the_leader() -> None:
    world = two_workers(exactly_once=True)
    world.trace.clear()
    created(world, {**SOURCE, "tasks.max": "4"})
    world.call("b", m.RestartTask(TaskId("c", 3)))
    world.until_settled()
    assert sum(map(len, world.running().values())) == 4
    assert not [line for line in world.trace if "FenceConnector" in line]


# -- where Java reads along --


def test_task_configs_and_commit_are_decided_anew_when_the_leader_is_fenced_between_them() -> None:
    world = one_worker(protocols=("sessioned",))

    def is_commit(_: object, effect: m.Effect) -> bool:
        return isinstance(effect, m.AppendConfig) and "commit-c" in dict(effect.records)

    world.holds.append(is_commit)
    world.call("a", m.CreateConnector("c", {**SOURCE, "tasks.max": "2"}))
    world.run()
    ((_, append),) = world.held
    assert isinstance(append, m.AppendConfig)
    world.holds.clear()
    world.held.clear()
    world.trace.clear()
    world.claimed_by = "somebody else"
    world.give("a", m.ConfigAppendFailed(append.token, "fenced", fenced=True))
    world.until_settled()
    assert appends(world) == ["a: append task-c-0, task-c-1", "a: append commit-c"]
    assert world.running() == {"a": ["c-0", "c-1"]}


def task_configs_not_read_back(**settings: object) -> HerderWorld:
    """One worker has appended the task configs of a new connector, and cannot read now."""
    world = one_worker(protocols=("sessioned",), **settings)
    world.call("a", m.CreateConnector("c", SOURCE))
    world.holds.append(lambda _, e: isinstance(e, m.AppendConfig) and "task-c-0" in dict(e.records))
    world.run()
    world.workers["a"].cut_off = True
    world.release()
    world.run()
    assert world.log[-1][0] == "task-c-0"
    return world


def test_the_commit_waits_until_the_task_configs_were_read_back() -> None:
    world = task_configs_not_read_back()
    assert not [line for line in world.trace if "commit-c" in line]
    world.workers["a"].cut_off = False
    world.until_settled()
    assert "a: append commit-c" in world.trace


def test_a_commit_is_decided_anew_where_another_may_have_led_since() -> None:
    """Read past its task configs only after another leader's term, it would name them as the whole
    of what that one has written, and count one task where three run."""
    world = task_configs_not_read_back(exactly_once=True)
    tasks = [encode_task(TaskId("c", n), {"task": str(n)}) for n in range(3)]
    world.log += [*tasks, encode_commit("c", 3), encode_task_count("c", 3)]
    world.give("a", m.CoordinatorLost("away"))  # leads again, by a claim of its own
    world.advance(1_000)
    world.trace.clear()
    world.workers["a"].cut_off = False
    world.until_settled()
    assert appends(world) == [
        "a: append task-c-0",
        "a: append commit-c",
        "a: append tasks-fencing-c",
    ]
    assert any("fence" in line and "c-2" in line for line in world.trace)
    assert world.running() == {"a": ["c-0"]}
