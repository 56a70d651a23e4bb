"""Whole clusters in virtual time. A failure prints its seed; run that one alone with
``HEADGATE_SEED=<seed> pytest tests/simulation``."""

import os
from collections import Counter

import pytest
from support.depth import tries

from headgate.herder.tasks import Tasks
from headgate.simulation.checks import InvariantBroken
from headgate.simulation.cluster import simulate
from headgate.simulation.world import Options

SEEDS = tries(40, 400)
ONE = os.environ.get("HEADGATE_SEED")
BATCH = 20


FOUND = [1001, 1006, 1011, 1024, 1028, 1055, 2238]
"""Seeds that have found something beyond the first ones."""


def seeds() -> list[list[int]]:
    if ONE is not None:
        return [[int(ONE)]]
    return [*(list(range(first, first + BATCH)) for first in range(0, SEEDS, BATCH)), FOUND]


@pytest.mark.parametrize("batch", seeds(), ids=lambda batch: f"seeds {batch[0]} to {batch[-1]}")
def test_nothing_breaks_and_everything_settles(batch: list[int]) -> None:
    for seed in batch:
        try:
            report = simulate(Options(seed=seed))
        except Exception as error:
            error.add_note(f"this run alone: HEADGATE_SEED={seed} pytest tests/simulation")
            raise
        moved = min(report.records, report.delivered)
        assert moved > 0, f"seed {seed}: nothing was moved, so nothing was tested"


@pytest.mark.parametrize("seed", range(10))
def test_leaders_that_freeze_before_they_write(seed: int) -> None:
    assert simulate(Options(seed=seed, frozen_writers=0.2)).records > 0


@pytest.mark.parametrize("seed", range(5))
def test_threads_that_hang_while_others_go_on(seed: int) -> None:
    """No decision relies on more order than `headgate.host.work` keeps."""
    assert simulate(Options(seed=seed, slow_work=0.1)).records > 0


@pytest.mark.parametrize("seed", range(10))
def test_sink_tasks_that_freeze_before_they_commit(seed: int) -> None:
    assert simulate(Options(seed=seed, frozen_committers=0.1)).delivered > 0


@pytest.mark.parametrize("seed", range(5))
def test_tasks_that_fail_are_restarted_by_their_policy(seed: int) -> None:
    assert simulate(Options(seed=seed, failing_polls=0.3)).records > 0


SMALL_BUDGET_SEEDS = 8
SITUATIONS = (
    "automatic restart",
    "longest wait",
    "count begun anew after quiet",
    "count taken over",
    "error that is excluded",
    "budget used up",
    "user's restart when it was used up",
)


def test_the_restart_policy_keeps_to_its_contract_in_every_situation() -> None:
    met: Counter[str] = Counter()
    for seed in range(SMALL_BUDGET_SEEDS):
        met.update(simulate(Options(seed, failing_polls=0.25, small_budgets=True)).restarts_met)
    assert all(met[each] > 0 for each in SITUATIONS), met


@pytest.mark.parametrize("seed", range(3))
def test_connectors_that_fail_are_restarted_by_their_policy(seed: int) -> None:
    assert simulate(Options(seed=seed, failing_connectors=0.3)).records > 0


CONNECTOR_SITUATIONS = (*SITUATIONS, "no task configs", "count taken over by one that is paused")


def test_the_restart_policy_keeps_to_its_contract_for_connectors_too() -> None:
    met: Counter[str] = Counter()
    for seed in range(SMALL_BUDGET_SEEDS):
        options = Options(seed, failing_connectors=0.8, small_budgets=True)
        met.update(simulate(options).restarts_met)
    assert all(met[f"connector: {each}"] > 0 for each in CONNECTOR_SITUATIONS), met


def test_changes_with_an_etag_are_made_on_what_was_read_or_not_at_all() -> None:
    options = [Options(seed, etags=0.7, frozen_writers=0.1 * (seed % 2)) for seed in range(6)]
    reports = [simulate(each) for each in options]
    assert sum(report.etags_held for report in reports) > 5
    assert sum(report.etags_refused for report in reports) > 5


def test_what_a_deleted_connector_has_left_is_reset_while_there_is_none_of_its_name() -> None:
    options = [
        Options(seed, deleted_offsets=True, frozen_writers=0.1 * (seed % 2)) for seed in range(5)
    ]
    assert sum(simulate(each).left_reset for each in options) > 2


def test_without_restarts_what_failed_stays_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tasks, "restart_failed", lambda *_: None)
    with pytest.raises(InvariantBroken, match="is FAILED on"):
        simulate(Options(seed=8, failing_polls=0.3, settle_ms=20_000))


def test_a_seed_is_a_whole_run() -> None:
    assert simulate(Options(seed=11)) == simulate(Options(seed=11))
