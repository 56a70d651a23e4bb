from itertools import pairwise

from headgate_spark.batches import FIRST, SLICE_MIN, WANTED_S, BatchSize, Range, cut, next_batch


def test_shares_are_even_and_what_one_does_not_need_the_others_get() -> None:
    starts = {("t", 0): 0, ("t", 1): 10, ("u", 0): 0}
    ends = {("t", 0): 100, ("t", 1): 15, ("u", 0): 1000}
    assert next_batch(starts, ends, 105) == [
        Range("t", 0, 0, 50),
        Range("t", 1, 10, 15),
        Range("u", 0, 0, 50),
    ]


def test_partitions_without_records_or_unknown_are_left_out() -> None:
    assert next_batch({("t", 0): 5, ("t", 1): 0}, {("t", 0): 5}, 10) == []


def test_a_batch_is_never_larger_than_its_limit() -> None:
    starts = {("t", number): 0 for number in range(5)}
    ranges = next_batch(starts, dict.fromkeys(starts, 100), 3)
    assert sum(one.count for one in ranges) == 3


def test_large_ranges_are_cut_small_ones_are_not() -> None:
    large, small = Range("t", 0, 7, 7 + 4 * SLICE_MIN), Range("t", 1, 0, 10)
    parts, whole = cut([large, small], 4)
    assert whole == [small]
    assert len(parts) == 3
    assert parts[0].start == 7
    assert parts[-1].end == large.end
    assert all(one.end == two.start for one, two in pairwise(parts))


def test_batches_grow_to_what_is_written_in_time_and_at_most_twofold() -> None:
    size = BatchSize(10 * FIRST)
    assert size.now == FIRST
    size.took(FIRST, WANTED_S / 3)
    assert size.now == 2 * FIRST
    size.took(2 * FIRST, WANTED_S / 1.5)
    assert size.now == 3 * FIRST
    size.took(3 * FIRST, WANTED_S * 2)
    assert size.now == 3 * FIRST // 2
    size.took(3 * FIRST // 2, WANTED_S * 100)
    assert size.now == FIRST


def test_batches_do_not_grow_over_what_the_user_allows() -> None:
    small, large = BatchSize(7), BatchSize(FIRST + 1)
    for _ in range(3):
        small.took(small.now, 0.0)
        large.took(large.now, 0.0)
    assert (small.now, large.now) == (7, FIRST + 1)


def test_a_batch_that_is_not_full_says_nothing_of_the_rate() -> None:
    size = BatchSize(10 * FIRST)
    size.took(FIRST - 1, 0.001)
    assert size.now == FIRST
