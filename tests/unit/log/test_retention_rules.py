"""A pass of retention may delete some batches of a partition, and must keep the others."""

import pytest

from headgate.log.retention import (
    MARKS_PER_PERIOD,
    AgeMark,
    SinkReads,
    StoredBatch,
    allowed,
    deletion_step,
    expired,
    is_mark_due,
)

PERIOD = 10 * MARKS_PER_PERIOD


@pytest.mark.parametrize(
    ("sizes", "count"), [([], 0), ([100], 1), ([4, 6, 1], 2), ([4, 7], 1), ([11, 1], 1)]
)
def test_one_transaction_deletes_batches_up_to_a_size_and_at_least_one(
    sizes: list[int], count: int
) -> None:
    batches = [StoredBatch(at, 1, size) for at, size in enumerate(sizes)]
    assert deletion_step(batches, 10) == batches[:count]


@pytest.mark.parametrize(
    ("at_ms", "due"), [([], True), ([90], True), ([91], False), ([100], False), ([101], True)]
)
def test_a_mark_is_due_a_part_of_the_period_after_the_last(at_ms: list[int], due: bool) -> None:
    """A mark of the future, from before the clock was set back, does not hold up another."""
    assert is_mark_due([AgeMark(5, at) for at in at_ms], 100, PERIOD) is due


def test_records_below_a_mark_of_a_whole_period_ago_are_expired() -> None:
    marks = [AgeMark(5, 0), AgeMark(9, 1), AgeMark(7, 2)]
    assert [expired(marks, PERIOD + past, PERIOD) for past in (-1, 0, 1, 2)] == [0, 5, 9, 9]


def test_the_sink_that_has_read_least_holds_back_the_rest() -> None:
    def sink(name: str, topic: str) -> SinkReads:
        return SinkReads(name, f"connect-{name}", topic.__eq__)

    ahead, behind, other = sink("ahead", "t"), sink("behind", "t"), sink("other", "u")
    offsets = {"connect-ahead": 50, "connect-behind": 20, "connect-other": 0}
    assert allowed([ahead, behind, other], "t", offsets.__getitem__, 40) == (20, behind)
    assert allowed([ahead, other], "t", offsets.__getitem__, 40) == (40, None)
