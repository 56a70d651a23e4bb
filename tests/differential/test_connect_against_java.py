"""Our policies `connect` and `eager` compute what Apache's assignors compute.

Random histories of a group are compared after every round: every byte of every assignment, and all
that the leader remembers. A failure names its seed: ``HEADGATE_SEED=<seed> pytest
tests/differential`` runs it alone.
"""

import os
import random

import pytest
from support.depth import tries
from support.java.assignors import JavaAssignors
from support.java.histories import History

from headgate.assignment import connect

ONE = os.environ.get("HEADGATE_SEED")
FIRST = int(ONE) if ONE else random.SystemRandom().randrange(10**9)
HISTORIES = 1 if ONE else tries(20, 130)
ROUNDS = 40

pytestmark = pytest.mark.slow


def test_rounds_are_javas_to_the_byte(java: JavaAssignors) -> None:
    rounds = 0
    for seed in range(FIRST, FIRST + HISTORIES):
        try:
            rounds += History(java, seed, ROUNDS).run()
        except AssertionError as error:
            raise AssertionError(f"HEADGATE_SEED={seed}: {error}") from None
    print(f"{rounds} rounds from HEADGATE_SEED={FIRST} on")
    assert ONE or rounds >= 38 * HISTORIES


def test_the_backoff_is_javas_for_whole_seconds_up_to_an_hour_and_elsewhere_within_1_ms(
    java: JavaAssignors,
) -> None:
    chance = random.Random(FIRST)
    exact = [0, 1, 2, 39, 40, 41, 123_456, *range(1_000, 3_601_000, 1_000)]
    attempts = [1, 2, 3, 4, 5, 6, 7, 100]
    for delay_ms_max in (*exact, *(chance.randrange(2**31) for _ in range(2_000))):
        ours = [connect.backoff(successive, delay_ms_max) for successive in attempts]
        javas = java.ask("backoff", delay_ms_max=delay_ms_max, attempts=attempts)["waits"]
        where = f"maximum {delay_ms_max}, HEADGATE_SEED={FIRST}"
        if delay_ms_max <= 3_600_000 and delay_ms_max in exact:
            assert javas == ours, where
        assert all(abs(a - b) <= 1 for a, b in zip(javas, ours, strict=True)), where
