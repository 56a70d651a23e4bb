"""Thousands of interleavings of drivers that freeze, thaw and die, and of the processes that watch
and use them.

Without any one of the rules, a run must go wrong, or the model would prove nothing of the rule.
"""

from collections import Counter

import pytest
from support.depth import tries
from support.spark.driver_model import DriverWorld, Rules, first_wrong

from headgate_spark.driver_watch import LOOKS, Silence

SEEDS = range(400)


def test_a_frozen_driver_is_ended_and_one_that_answers_is_not() -> None:
    assert first_wrong(Rules(), range(tries(300, 5_000))) is None


def test_the_model_comes_by_what_it_is_about() -> None:
    counts: Counter[str] = Counter()
    for seed in range(60):
        world = DriverWorld(seed, Rules())
        world.run()
        counts += world.counts
    met = ("ended", "ended after it went on", "died", "zombies", "refused")
    assert min(counts[one] for one in met) > 5, counts


class _CountsItsOwnStandstill(Silence):
    def looked(self, since_s: float, answered: bool) -> bool:
        self._silent_s = 0.0 if answered else self._silent_s + since_s
        return self._silent_s >= self._limit_s


class _HeedsNoAnswer(Silence):
    def looked(self, since_s: float, answered: bool) -> bool:
        return super().looked(since_s, False)


class _NeverTells(Silence):
    def looked(self, since_s: float, answered: bool) -> bool:
        super().looked(since_s, answered)
        return False


@pytest.mark.parametrize(
    ("rules", "wrong"),
    [
        (Rules(silence=_CountsItsOwnStandstill), "a driver that answers is found frozen"),
        (Rules(silence=_HeedsNoAnswer), "a driver that answers is found frozen"),
        (Rules(silence=_NeverTells), "a task does not go on"),
        (Rules(ends_its_own=False), "another driver is ended"),
        (Rules(awaits_the_end=False), "two drivers at a time"),
        (Rules(compares_offsets=False), "a batch is there twice"),
    ],
)
def test_a_rule_that_is_taken_out_is_missed(rules: Rules, wrong: str) -> None:
    found = first_wrong(rules, SEEDS)
    assert found is not None and wrong in found[1]


def test_silence_is_counted_from_the_last_answer() -> None:
    silence = Silence(60.0)
    assert silence.look_s == 60 / LOOKS == 5
    assert not any(silence.looked(5, False) for _ in range(11))
    assert not silence.looked(5, True)
    assert [silence.looked(5, False) for _ in range(12)] == [False] * 11 + [True]


def test_who_stood_still_itself_begins_to_count_anew() -> None:
    silence = Silence(60.0)
    assert not any(silence.looked(5, False) for _ in range(11))
    assert not silence.looked(90, False)
    assert not any(silence.looked(5, False) for _ in range(11))
    assert silence.looked(9.9, False), "a look that is a bit late is none that was held back"
