"""Studies of rebalances: what KIP-415 says comes out, and the same study and seed give the same."""

import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.depth import first, tries

from headgate.ids import TaskId
from headgate.simulation.study import Run, Study, Summary, read_study, run_study, summary_of
from headgate.simulation.study.facts import (
    Change,
    MemberGone,
    Rebalanced,
    Sent,
    TaskChanged,
    WorkerChanged,
)
from headgate_runtime.command.study_file import load_study

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "simulation"
SEEDS = range(1, 1 + tries(3, 20))
COOPERATIVE = ("compatible", "sessioned", "headgate")
CRASH_MS = 60_000


def example(name: str) -> Study:
    return load_study(str(EXAMPLES / f"{name}.toml"))


def runs(study: Study) -> list[tuple[Run, Summary]]:
    made = [run_study(study, seed) for seed in SEEDS]
    return [(run, summary_of(run)) for run in made]


def rebalances(run: Run, after_ms: int = CRASH_MS) -> list[Rebalanced]:
    return [f for f in run.facts if isinstance(f, Rebalanced) and f.at_ms >= after_ms]


def changes(run: Run, after_ms: int = CRASH_MS, *, runs: bool) -> list[TaskChanged]:
    found = [f for f in run.facts if isinstance(f, TaskChanged) and f.at_ms >= after_ms]
    return [change for change in found if change.runs is runs]


def owners(run: Run, before_ms: int) -> dict[TaskId, str]:
    """Workers that ran the tasks at a time."""
    found: dict[TaskId, str] = {}
    for fact in run.facts:
        if isinstance(fact, TaskChanged) and fact.at_ms < before_ms:
            if fact.runs:
                found[fact.task] = fact.worker
            elif found.get(fact.task) == fact.worker:
                del found[fact.task]
    return found


def cluster(protocol: str, delay: str, do: str, *, workers: int = 3, tasks: int = 9) -> Study:
    return read_study(
        {
            "cluster": {
                "workers": workers,
                "connect.protocol": protocol,
                "scheduled.rebalance.max.delay.ms": delay,
            },
            "connectors": {"orders": {"tasks": tasks}},
            "events": [{"at": "60s", "do": do}],
        }
    )


# -- the examples --


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.toml")))
def test_every_example_comes_to_rest_with_each_task_once(name: str) -> None:
    for run, summary in runs(example(name)):
        assert run.settled
        assert summary.balanced_ms is not None
        assert summary.twice_ms == 0
        assert summary.imbalance <= 1


def test_a_worker_that_is_back_within_the_delay_gets_its_own_tasks_and_no_other_moves() -> None:
    """KIP-415: the delay is for workers that come back."""
    for run, summary in runs(example("crash_and_back")):
        own = {task for task, worker in owners(run, CRASH_MS).items() if worker == "w2"}
        assert len(own) == 3
        assert {change.task for change in changes(run, runs=False)} == own
        assert {(change.task, change.worker) for change in changes(run, runs=True)} == {
            (task, "w2") for task in own
        }
        assert summary.moves == 0
        lost, back, over = rebalances(run)
        assert lost.delay_ms == 60_000
        assert set(lost.waiting_tasks) == set(back.waiting_tasks) == own
        assert 0 < back.delay_ms < 60_000
        assert over.delay_ms == 0
        assert abs(over.at_ms - lost.at_ms - 60_000) < 1_000
        assert not any(one.revoked_tasks for each in rebalances(run) for one in each.members)


def test_without_a_delay_lost_tasks_move_at_once_and_back_again() -> None:
    for run, summary in runs(example("crash_without_delay")):
        lost, revoking, giving = rebalances(run)
        gone_ms = next(f.at_ms for f in run.facts if isinstance(f, MemberGone))
        assert not lost.delay_ms
        assert not lost.waiting_tasks
        assert lost.at_ms - gone_ms < 4_000, "a heartbeat interval, and messages"
        assert sum(len(one.revoked_tasks) for one in revoking.members) == 3
        assert [len(one.new_tasks) for one in giving.members if one.worker == "w2"] == [3]
        assert summary.moves == 6


def test_scaling_out_takes_two_rebalances_and_moves_no_more_than_must() -> None:
    """KIP-415: what is revoked in one rebalance is assigned in the next one."""
    for run, summary in runs(example("scale_out")):
        revoking, giving = rebalances(run)
        had = Counter(owners(run, CRASH_MS).values())
        least = sum(max(count - 20 // 5, 0) for count in had.values())
        revoked = {task for one in revoking.members for task in one.revoked_tasks}
        assert len(revoked) == least
        assert not any(one.new_tasks for one in revoking.members)
        assert {task for one in giving.members for task in one.new_tasks} == revoked
        assert summary.moves == least
        assert {change.task for change in changes(run, runs=False)} == revoked, "others go on"
        assert Counter(owners(run, run.ended_ms).values()) == dict.fromkeys(
            ("w1", "w2", "w3", "w4", "w5"), 4
        )


def test_a_rolling_restart_stops_only_the_tasks_of_the_worker_that_stops_and_those_it_gets() -> (
    None
):
    eager = read_study(_document("rolling_restart", protocol="eager"))
    for (_, cooperative), (_, stopping) in zip(
        runs(example("rolling_restart")), runs(eager), strict=True
    ):
        assert cooperative.twice_ms == stopping.twice_ms == 0
        assert stopping.moves + stopping.restarts == 16 * stopping.rebalances, "the world stops"
        assert cooperative.moves + cooperative.restarts < 16 * 4


def _document(name: str, *, protocol: str) -> dict[str, Any]:
    document = tomllib.loads((EXAMPLES / f"{name}.toml").read_text(encoding="utf-8"))
    document["cluster"]["connect"] = {"protocol": protocol}
    return document


def test_a_slow_worker_holds_up_only_what_is_revoked_from_it_and_a_short_freeze_nothing() -> None:
    for run, summary in runs(example("slow_worker")):
        joins, short, long = summary.events
        assert joins.moves == 2
        assert joins.longest_ms > 3_000
        assert (short.rebalances, short.moves, short.restarts) == (0, 0, 0)
        assert short.longest_ms == 4_000
        assert (long.moves, long.restarts) == (0, 3), "it is back within the delay"
        assert long.rebalances == 3
        gone = [f for f in run.facts if isinstance(f, MemberGone)]
        assert [f.worker for f in gone] == ["w2"]


# -- KIP-415's stories, in each protocol --


@pytest.mark.parametrize("protocol", COOPERATIVE)
def test_the_table_worker_bounces(protocol: str) -> None:
    """Rows of the table: the delay d, what is left of it when W2 is back, and W2's work for W2."""
    study = read_study(
        {
            "cluster": {"connect.protocol": protocol, "scheduled.rebalance.max.delay.ms": "300s"},
            "connectors": {"A": {"tasks": 2}, "B": {"tasks": 1}},
            "events": [{"at": "60s", "do": "stop w2 for 100s"}],
        }
    )
    for run, _ in runs(study):
        before = {one.worker: (one.connectors, one.tasks) for one in _last(run, CRASH_MS).members}
        assert sorted(len(c) + len(t) for c, t in before.values()) == [1, 2, 2]
        lost, back, over = rebalances(run)
        assert lost.delay_ms == 300_000
        assert abs(back.delay_ms - (300_000 - (back.at_ms - lost.at_ms))) < 1_000
        for row in (lost, back):
            assert (row.waiting_connectors, row.waiting_tasks) == before["w2"]
            has = {one.worker: (one.connectors, one.tasks) for one in row.members}
            assert {w: has[w] for w in ("w1", "w3")} == {w: before[w] for w in ("w1", "w3")}
        assert {one.worker: (one.connectors, one.tasks) for one in over.members} == before
        assert over.delay_ms == 0


@pytest.mark.parametrize("protocol", COOPERATIVE)
def test_the_table_worker_leaves(protocol: str) -> None:
    """After the delay the others share what is lost; nothing else moves."""
    for run, summary in runs(cluster(protocol, "30s", "stop w2")):
        kept = {t: w for t, w in owners(run, CRASH_MS).items() if w != "w2"}
        lost, over = rebalances(run)
        assert lost.delay_ms == 30_000
        assert over.delay_ms == 0
        assert kept.items() <= owners(run, run.ended_ms).items()
        assert summary.moves == 9 - len(kept)
        assert summary.restarts == 0


def _last(run: Run, before_ms: int) -> Rebalanced:
    return [f for f in run.facts if isinstance(f, Rebalanced) and f.at_ms < before_ms][-1]


def test_an_eager_rebalance_stops_every_task() -> None:
    """What KIP-415 is against: all stop, though one worker joins."""
    for run, summary in runs(cluster("eager", "60s", "start w4")):
        assert {change.task for change in changes(run, runs=False)} == set(owners(run, CRASH_MS))
        assert summary.moves + summary.restarts == 9
        assert summary.rebalances == 1


@pytest.mark.parametrize("protocol", ["eager", *COOPERATIVE])
def test_a_freeze_past_the_session_costs_the_worker_its_place(protocol: str) -> None:
    """Its tasks may run elsewhere for an instant before it stops its own."""
    for run, summary in runs(cluster(protocol, "0s", "freeze w2 for 40s")):
        gone = next(f for f in run.facts if isinstance(f, MemberGone))
        assert gone.worker == "w2"
        assert 7_000 <= gone.at_ms - CRASH_MS <= 10_100
        assert run.settled
        assert summary.twice_ms < 3 * 100


# -- other events --


@pytest.mark.parametrize(
    ("do", "tasks"),
    [
        ("scale orders to 14 tasks", 14),
        ("scale orders to 2 tasks", 2),
        ("delete orders", 0),
        ("pause orders", 0),
        ("stop orders", 0),
        ("restart orders", 9),
        ("restart orders-3", 9),
    ],
)
def test_what_is_done_to_a_connector(do: str, tasks: int) -> None:
    run = run_study(cluster("sessioned", "60s", do))
    assert run.settled
    assert len(owners(run, run.ended_ms)) == tasks


def test_a_connector_is_created_paused_and_resumed_when_the_study_says() -> None:
    study = read_study(
        {
            "connectors": {"a": {"tasks": 3}, "b": {"tasks": 4}},
            "events": [
                {"at": "30s", "do": "create b"},
                {"at": "60s", "do": "pause a"},
                {"at": "90s", "do": "resume a"},
            ],
        }
    )
    run = run_study(study)
    assert {t.connector for t in owners(run, 29_000)} == {"a"}
    assert Counter(t.connector for t in owners(run, 59_000)) == {"a": 3, "b": 4}
    assert {t.connector for t in owners(run, 89_000)} == {"b"}
    assert Counter(t.connector for t in owners(run, run.ended_ms)) == {"a": 3, "b": 4}


def test_a_task_that_does_not_stop_in_time_is_killed() -> None:
    document = {
        "cluster": {"task.stop.ms": "1h", "task.shutdown.graceful.timeout.ms": "2s"},
        "connectors": {"orders": {"tasks": 9}},
        "events": [{"at": "60s", "do": "start w4"}],
    }
    run = run_study(read_study(document))
    assert run.settled
    assert summary_of(run).moves == 2


def test_a_crash_of_a_worker_that_a_rolling_restart_has_stopped_has_no_effect() -> None:
    study = read_study(
        {
            "connectors": {"orders": {"tasks": 9}},
            "events": [
                {"at": "60s", "do": "roll for 20s every 60s"},
                {"at": "65s", "do": "crash w1"},
            ],
        }
    )
    refused = [f for f in run_study(study).facts if type(f).__name__ == "Refused"]
    assert [(f.at_ms, f.why) for f in refused] == [(65_000, "w1 is down")]  # type: ignore[union-attr]


def test_a_cluster_without_workers_comes_to_an_end() -> None:
    run = run_study(cluster("sessioned", "60s", "crash w1", workers=1))
    assert not run.settled
    assert summary_of(run).balanced_ms is None
    ends = [f for f in run.facts if isinstance(f, WorkerChanged) and f.change is Change.CRASHED]
    assert len(ends) == 1


def test_duration_ends_it() -> None:
    document = {"duration": "40s", "connectors": {"orders": {"tasks": 2}}}
    assert run_study(read_study(document)).ended_ms == 40_000


def test_a_trace_has_each_message_and_changes_nothing() -> None:
    study = example("crash_and_back")
    plain, traced = run_study(study), run_study(study, trace=True)
    assert [f for f in traced.facts if not isinstance(f, Sent)] == plain.facts
    texts = {fact.text.partition(" ")[0] for fact in traced.facts if isinstance(fact, Sent)}
    assert texts == {"JoinGroup", "SyncGroup", "Heartbeat"}


# -- determinism --


@pytest.mark.parametrize(
    "options", first(1, [["--trace"], ["--runs", "3"], ["-o", "json", "--seed", "7"]])
)
def test_the_same_study_and_seed_print_the_same_to_the_byte(options: list[str]) -> None:
    printed = {_printed(options, hash_seed) for hash_seed in ("0", "1", "random")}
    assert len(printed) == 1


def test_another_seed_is_another_run() -> None:
    assert _printed(["--seed", "1"], "0") != _printed(["--seed", "2"], "0")


def _printed(options: list[str], hash_seed: str) -> bytes:
    study = str(EXAMPLES / "slow_worker.toml")
    done = subprocess.run(
        [sys.executable, "-m", "headgate_runtime.cli", "simulate", study, *options],
        env={"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    )
    return done.stdout
