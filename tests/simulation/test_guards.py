"""Every check of the simulation can fail: without its guard, some seed breaks the invariant.

There is one test for each invariant of docs/know/architecture.md. The test's name says which guard
is removed.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from headgate.connector.restart_policy import RestartPolicy
from headgate.herder import connectors, fencing_rounds, herder, privileged
from headgate.herder.connectors import Connectors
from headgate.herder.context import LaneHeld
from headgate.herder.leadership import HoldLane, Leadership
from headgate.herder.messages import (
    Answer,
    ConfigEndRead,
)
from headgate.herder.offset_changes import OffsetChanges
from headgate.herder.requests import Requests
from headgate.herder.statuses import Statuses
from headgate.herder.tasks import Tasks
from headgate.herder.work import GroupWork
from headgate.host import work
from headgate.ids import State
from headgate.simulation.checks import Checks, InvariantBroken
from headgate.simulation.cluster import simulate
from headgate.simulation.memory_clients import MemoryConsumer, MemoryProducer
from headgate.simulation.memory_transport import MemoryConfigLog, MemoryFencer
from headgate.simulation.restart_checks import RestartChecks
from headgate.simulation.sink_body import SinkBody
from headgate.simulation.worker import SimulatedWorker
from headgate.simulation.world import Options
from headgate.task.sink import SinkMachine
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState

SEEDS_MAX = 200


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Herders that do not check their own tables: they would speak first."""
    monkeypatch.setattr(herder.Herder, "check", lambda _: None)


def broken_by(
    invariant: str, options: Callable[[int], Options] | None = None, *, begin: int = 0
) -> int:
    """The first seed from `begin` on that breaks `invariant`; what else breaks on the way is
    passed over. A `begin` where the guard is known to be missed saves the runs before it."""
    others: dict[str, int] = {}
    for seed in (*range(begin, SEEDS_MAX), *range(begin)):
        try:
            simulate(options(seed) if options else Options(seed=seed))
        except InvariantBroken as broken:
            name = str(broken).partition(":")[0]
            if name.startswith(invariant):
                return seed
            others[name] = others.get(name, 0) + 1
    pytest.fail(f"{SEEDS_MAX} seeds without breaking {invariant!r}; broke: {others}")


def quick(seed: int) -> Options:
    """Shorten runs for checks of liveness: a run that does not settle need not be awaited."""
    return Options(seed=seed, faults_ms=8_000, settle_ms=30_000)


def test_1_one_owner__work_is_given_up_before_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    revoke = GroupWork._revoke

    def at_once(self: GroupWork, connectors: Any, tasks: Any) -> None:
        revoke(self, connectors, tasks)
        self._releasing_connectors.clear()
        self._releasing_tasks.clear()

    def not_revoked(self: Tasks) -> Iterable[Any]:
        return iter([task for task in self._held if not self._held[task].revoked])

    monkeypatch.setattr(GroupWork, "_revoke", at_once)
    monkeypatch.setattr(Tasks, "held", property(not_revoked))
    broken_by("1 one owner")


@pytest.mark.exhaustive
def test_1_one_owner__a_connector_is_released_while_it_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    revoke = GroupWork._revoke

    def at_once(self: GroupWork, connectors: Any, tasks: Any) -> None:
        revoke(self, connectors, tasks)
        self._releasing_connectors.clear()

    def not_revoked(self: Connectors) -> Iterable[Any]:
        return iter([name for name, held in self._held.items() if not held.revoked])

    monkeypatch.setattr(GroupWork, "_revoke", at_once)
    monkeypatch.setattr(Connectors, "held", property(not_revoked))
    broken_by("1 one owner", begin=16)


def test_1_one_owner__a_host_that_keeps_no_order_in_a_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    lane_of = work.lane_of

    def unordered(effect: Any) -> Any:
        lane = lane_of(effect)
        return None if lane is None or lane[0] == "connector" else lane

    monkeypatch.setattr(work, "lane_of", unordered)
    broken_by("1 one owner", lambda seed: Options(seed=seed, slow_work=0.2), begin=10)


@pytest.mark.exhaustive
def test_2_fenced_before_sending__the_log_is_not_read_after_the_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_to_end = SimulatedWorker.read_to_end

    def unread(self: SimulatedWorker, token: int, *, statuses: bool) -> Any:
        if self._config_position > 0:
            return (ConfigEndRead(token),)
        return read_to_end(self, token, statuses=statuses)

    monkeypatch.setattr(SimulatedWorker, "read_to_end", unread)
    broken_by("2 fenced before sending", begin=6)


def test_3_no_zombie_writes__the_leader_counts_without_fencing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryFencer, "fence", lambda *_: None)
    broken_by("3 no zombie writes", begin=12)


def test_4_one_log_writer__the_log_takes_privileged_records_from_anyone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append = MemoryConfigLog.append

    def unguarded(self: MemoryConfigLog, records: Any, *, privileged: bool) -> int:
        return append(self, records, privileged=False)

    monkeypatch.setattr(MemoryConfigLog, "append", unguarded)
    broken_by("4 one log writer", lambda seed: Options(seed=seed, frozen_writers=0.2))


def test_9_etags_hold__nobody_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileged, "etag_refusal", lambda *_: None)
    broken_by("9 etags hold", lambda seed: Options(seed=seed, etags=0.9))


def test_5_atomic_progress__offsets_run_ahead_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = MemoryProducer.commit

    def torn(self: MemoryProducer, offsets: Any) -> None:
        del self._open[-1:]
        commit(self, offsets)

    monkeypatch.setattr(MemoryProducer, "commit", torn)
    broken_by("5 atomic progress")


def test_6_nothing_twice__the_log_takes_commits_of_zombies(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = MemoryProducer.commit

    def unguarded(self: MemoryProducer, offsets: Any) -> None:
        if self._transactional_id is not None and self._epoch is not None:
            self._epoch = self._cluster.producers[self._transactional_id]
        commit(self, offsets)

    monkeypatch.setattr(MemoryProducer, "commit", unguarded)
    monkeypatch.setattr(Checks, "_no_zombie_writes", lambda *_: None)  # it would speak first
    broken_by("6 nothing lost, nothing twice", begin=44)


def test_7_the_log_decides__a_reader_that_skips_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def skipping(state: ConfigState, events: Any) -> ConfigState:
        kept = [event for event in events if not (event.offset % 7 == 3 and len(events) == 1)]
        return fold(state, kept)

    monkeypatch.setattr(herder, "fold", skipping)
    broken_by("7 the log decides", quick)


@pytest.mark.exhaustive
def test_8_stopped_is_empty__task_configs_for_stopped_connectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Blind:
        STOPPED = None

    put = privileged._put_task_configs

    def unguarded(*given: Any, **named: Any) -> Any:
        with monkeypatch.context() as context:
            context.setattr(privileged, "TargetState", Blind)
            return put(*given, **named)

    monkeypatch.setattr(privileged, "_put_task_configs", unguarded)
    broken_by("8 stopped is empty", begin=6)


def test_8_stopped_is_empty__offsets_change_while_tasks_still_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OffsetChanges, "_settled", lambda *_: True)
    broken_by("8 stopped is empty", begin=167)


def test_8_stopped_is_empty__offsets_change_and_nothing_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit = Leadership.submit

    def unheld(self: Leadership, job: Any) -> None:
        if isinstance(job, HoldLane):
            self._ctx.note(LaneHeld(job.ticket, job.subject))
        else:
            submit(self, job)

    monkeypatch.setattr(Leadership, "submit", unheld)
    broken_by("8 stopped is empty", begin=40)


def test_9_persistent_intent__acknowledged_without_being_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append = SimulatedWorker.append

    def forgetful(self: SimulatedWorker, records: Any, *, privileged: bool) -> int:
        return append(self, records, privileged=True) if privileged else self._config_position

    monkeypatch.setattr(SimulatedWorker, "append", forgetful)
    broken_by("9 persistent intent", quick)


def test_10_everything_is_owned__lost_tasks_are_not_started_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Tasks, "_back_off", lambda *_: None)
    broken_by("10 to 13", quick)


def test_11_target_states_are_reached__running_tasks_are_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Tasks, "on_target_state", lambda *_: None)
    broken_by("10 to 13", quick)


def test_12_every_call_is_answered_once__answered_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = Requests.resolve

    def twice(self: Requests, ticket: int, result: Any) -> None:
        resolve(self, ticket, result)
        last = self._ctx.effects[-1] if self._ctx.effects else None
        if isinstance(last, Answer):
            self._ctx.emit(last)

    monkeypatch.setattr(Requests, "resolve", twice)
    broken_by("12 every call", quick)


def test_12_every_call_is_answered__a_fencing_round_that_forgets_its_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fencing_rounds.FencingRounds, "on_recorded", lambda *_: None)
    broken_by("10 to 13", quick)


def test_13_the_last_record_arrives__a_commit_that_does_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryProducer, "commit", lambda *_: None)
    monkeypatch.setattr("headgate.simulation.checks.Checks.data_committed", lambda *_: None)
    broken_by("10 to 13", quick)


def test_6_at_least_once__offsets_that_are_committed_before_put(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consume = SinkBody._consume

    def committed_at_once(self: SinkBody, paused: bool) -> Any:
        consumed = consume(self, paused)
        for record in self._batch:
            self._delivered[record.topic, record.partition] = (record.offset + 1, 1)
        self._commit(set(self._delivered))
        return consumed

    monkeypatch.setattr(SinkBody, "_consume", committed_at_once)
    broken_by("6 at least once")


def test_6_offsets_of_the_generation__a_group_that_takes_them_from_anybody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unchecked(self: MemoryConsumer, offsets: Any) -> None:
        self._cluster.set_committed(self._member.group, offsets)

    monkeypatch.setattr(MemoryConsumer, "commit", unchecked)
    broken_by("6 offsets of the generation", lambda seed: Options(seed=seed, frozen_committers=0.1))


def test_13_the_sink_reaches_the_end__a_machine_that_never_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SinkMachine, "_commit", lambda self: SinkMachine._run(self, 0))
    broken_by("10 to 13", quick)


def small_budgets(seed: int) -> Options:
    return Options(seed, failing_polls=0.15, small_budgets=True)


def test_14_budget__restarts_that_are_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    delay_ms = RestartPolicy.delay_ms

    def unlimited(self: RestartPolicy, restarts: int, error: str) -> int | None:
        return delay_ms(replace(self, restarts_max=1_000), restarts, error)

    monkeypatch.setattr(RestartPolicy, "delay_ms", unlimited)
    monkeypatch.setattr(RestartChecks, "_check_note", lambda *_: None)  # it would speak first
    broken_by("14 budget", small_budgets)


def test_14_budget__a_new_owner_that_begins_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Statuses, "restarts_of", lambda *_: 0)
    broken_by("14 budget", small_budgets)


def test_14_budget__a_restart_that_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    restart_failed = Tasks.restart_failed

    def uncounted(self: Tasks, task: Any, run: str) -> None:
        if (held := self._held.get(task)) is not None:
            held.restarts -= 1
        restart_failed(self, task, run)

    monkeypatch.setattr(Tasks, "restart_failed", uncounted)
    broken_by("14 budget", small_budgets)


def test_14_backoff__every_wait_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    delay_ms = RestartPolicy.delay_ms

    def short(self: RestartPolicy, restarts: int, error: str) -> int | None:
        return None if delay_ms(self, restarts, error) is None else 2 * self.backoff_ms

    monkeypatch.setattr(RestartPolicy, "delay_ms", short)
    broken_by("14 backoff", small_budgets)


def test_14_backoff__waits_grow_in_a_straight_line(monkeypatch: pytest.MonkeyPatch) -> None:
    delay_ms = RestartPolicy.delay_ms

    def straight(self: RestartPolicy, restarts: int, error: str) -> int | None:
        wait = 2 * (restarts + 1) * self.backoff_ms
        return None if delay_ms(self, restarts, error) is None else wait

    monkeypatch.setattr(RestartPolicy, "delay_ms", straight)
    broken_by("14 backoff", small_budgets)


def test_14_excluded_errors__any_error_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    delay_ms = RestartPolicy.delay_ms

    def any_error(self: RestartPolicy, restarts: int, error: str) -> int | None:
        return delay_ms(replace(self, errors=()), restarts, error)

    monkeypatch.setattr(RestartPolicy, "delay_ms", any_error)
    broken_by("14 excluded errors", small_budgets)


def test_14_quiet__a_count_that_never_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Tasks._policy
    monkeypatch.setattr(
        Tasks, "_policy", lambda self, held: replace(policy(self, held), quiet_ms=1_000_000)
    )
    broken_by("14 quiet", small_budgets)


def test_14_fresh_budget__a_user_s_restart_that_leaves_the_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = Tasks._stop

    def counted(restart: Callable[..., None]) -> Callable[..., None]:
        def kept(self: Tasks, *given: Any, **named: Any) -> None:
            counts = {task: self._held[task].restarts for task in self._held}

            def counting(self: Tasks, held: Any, grace_ms: int | None) -> None:
                held.restarts = counts[held.task]
                stop(self, held, grace_ms)

            with monkeypatch.context() as context:
                context.setattr(Tasks, "_stop", counting)
                restart(self, *given, **named)

        return kept

    monkeypatch.setattr(Tasks, "restart", counted(Tasks.restart))
    monkeypatch.setattr(Tasks, "restart_planned", counted(Tasks.restart_planned))
    broken_by("14 fresh budget", small_budgets)


def test_14_attempts_left__a_status_that_tells_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    announced = RestartPolicy.announced

    def more(self: RestartPolicy, trace: str, restarts: int, delay_ms: int | None) -> str:
        return announced(
            replace(self, restarts_max=self.restarts_max + 1), trace, restarts, delay_ms
        )

    monkeypatch.setattr(RestartPolicy, "announced", more)
    broken_by("14 attempts left", small_budgets)


def small_connector_budgets(seed: int) -> Options:
    return Options(seed, failing_connectors=0.8, small_budgets=True)


def test_14_budget__restarts_of_connectors_that_are_not_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delay_ms = RestartPolicy.delay_ms

    def unlimited(self: RestartPolicy, restarts: int, error: str) -> int | None:
        return delay_ms(replace(self, restarts_max=1_000), restarts, error)

    monkeypatch.setattr(RestartPolicy, "delay_ms", unlimited)
    monkeypatch.setattr(RestartChecks, "_check_note", lambda *_: None)  # it would speak first
    broken_by("14 budget", small_connector_budgets)


def test_14_budget__a_connector_that_is_given_up_without_its_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = Statuses.write_connector

    def forgotten(self: Statuses, name: str, state: State, *given: Any, **named: Any) -> None:
        if state is State.UNASSIGNED:
            named["restarts"] = 0
        write(self, name, state, *given, **named)

    monkeypatch.setattr(Statuses, "write_connector", forgotten)
    broken_by("14 budget", small_connector_budgets)


def test_14_budget__a_new_owner_of_a_connector_that_begins_to_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Statuses, "restarts_of", lambda *_: 0)
    broken_by("14 budget", small_connector_budgets, begin=44)


def test_14_budget__a_new_owner_that_pauses_a_connector_without_its_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rest = Connectors._rest

    def uncounted(self: Connectors, instance: Any, target: Any) -> None:
        instance.counted = True
        rest(self, instance, target)

    monkeypatch.setattr(Connectors, "_rest", uncounted)
    seed = broken_by("14 budget", small_connector_budgets, begin=1)
    with pytest.raises(InvariantBroken, match="as its status PAUSED says"):
        simulate(small_connector_budgets(seed))


def test_14_budget__a_restart_of_a_connector_that_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restart_failed = Connectors.restart_failed

    def uncounted(self: Connectors, name: str, run: int) -> None:
        if (held := self._held.get(name)) is not None:
            held.restarts -= 1
        restart_failed(self, name, run)

    monkeypatch.setattr(Connectors, "restart_failed", uncounted)
    broken_by("14 budget", small_connector_budgets)


def test_14_budget__a_connector_that_is_started_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(self: Connectors, name: str, run: int) -> None:
        held = self._held.get(name)
        if held is not None and held.run == run:
            held.failed = False
            self._reconcile(held)

    monkeypatch.setattr(Connectors, "restart_failed", silent)
    broken_by("14 budget", small_connector_budgets)


@pytest.mark.parametrize("squared", [False, True])
def test_14_backoff__waits_of_connectors_that_are_too_short(
    monkeypatch: pytest.MonkeyPatch, squared: bool
) -> None:
    """All like the first, or in a straight line from it."""
    delay_ms = RestartPolicy.delay_ms

    def short(self: RestartPolicy, restarts: int, error: str) -> int | None:
        wait = 2 * (restarts + 1 if squared else 1) * self.backoff_ms
        return None if delay_ms(self, restarts, error) is None else wait

    monkeypatch.setattr(RestartPolicy, "delay_ms", short)
    broken_by("14 backoff", small_connector_budgets)


def test_14_excluded_errors__any_error_of_a_connector_will_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delay_ms = RestartPolicy.delay_ms

    def any_error(self: RestartPolicy, restarts: int, error: str) -> int | None:
        return delay_ms(replace(self, errors=()), restarts, error)

    monkeypatch.setattr(RestartPolicy, "delay_ms", any_error)
    broken_by("14 excluded errors", small_connector_budgets)


def test_14_quiet__a_count_of_a_connector_that_never_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = Connectors._policy
    monkeypatch.setattr(
        Connectors, "_policy", lambda self, held: replace(policy(self, held), quiet_ms=1_000_000)
    )
    broken_by("14 quiet", small_connector_budgets)


def test_14_fresh_budget__a_user_s_restart_of_a_connector_that_leaves_the_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kept(instance: Any) -> None:
        instance.failed, instance.error_text = False, ""

    monkeypatch.setattr(connectors, "_forget_failure", kept)
    broken_by("14 fresh budget", small_connector_budgets)


def test_14_attempts_left__a_status_of_a_connector_that_tells_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    announced = RestartPolicy.announced

    def more(self: RestartPolicy, trace: str, restarts: int, delay_ms: int | None) -> str:
        return announced(
            replace(self, restarts_max=self.restarts_max + 1), trace, restarts, delay_ms
        )

    monkeypatch.setattr(RestartPolicy, "announced", more)
    broken_by("14 attempts left", small_connector_budgets)
