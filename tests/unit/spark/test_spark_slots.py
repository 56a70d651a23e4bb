import pytest

from headgate_spark.slots import (
    Plan,
    SlotsError,
    most_at_once,
    most_of_some,
    plan,
    slots_wanted,
    too_few,
)


def test_slots_are_two_per_worker_and_one_per_task() -> None:
    assert slots_wanted(3, [2, 1, 4]) == 13
    # Tasks that share a slot: each worker has one that is not full, and one for suspects.
    assert slots_wanted(3, [2, 1, 4], per_process=5) == 14


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local[2]", Plan("local[12]", 12, 2, executors=False)),
        ("local[*]", Plan("local[12]", 12, 4, executors=False)),
        ("local", Plan("local[12]", 12, 1, executors=False)),
        ("local[20]", Plan("local[20]", 20, 20, executors=False)),
        # One executor must hold all tasks while the other is gone.
        ("local-cluster[2,1,1024]", Plan("local-cluster[2,12,1024]", 24, 2, True, 1024)),
        ("local-cluster[3,2,512]", Plan("local-cluster[3,6,512]", 18, 6, True, 512)),
        ("local-cluster[1,1,512]", Plan("local-cluster[1,12,512]", 12, 1, True, 512)),
        ("spark://host:7077", Plan("spark://host:7077", 12, 4, executors=True)),
    ],
)
def test_masters_get_slots_and_keep_their_cores(master: str, expected: Plan) -> None:
    assert plan(master, 12, 4) == expected


@pytest.mark.parametrize("master", ["local[x]", "local-cluster[2,1]", "local-cluster[0,1,512]"])
def test_a_local_master_that_spark_would_not_take_is_refused(master: str) -> None:
    with pytest.raises(SlotsError, match="expected"):
        plan(master, 4, 2)


def test_overlapping_spans_are_counted() -> None:
    assert most_at_once([]) == 0
    assert most_at_once([(0, 5), (1, 6), (5, 9), (5, 7)]) == 3


def test_too_few_slots_are_refused_with_the_numbers() -> None:
    assert too_few("sc://h:1", 8, 2, [4]) is None
    packed = too_few("sc://h:1", 8, 2, [4], per_process=4)
    assert packed is not None and "9 are needed: one for every 4 of 4 tasks" in packed
    text = too_few("sc://h:1", 7, 2, [4])
    assert text is not None
    assert "sc://h:1 has 7 free slots, but 8 are needed: one for each of 4 tasks" in text
    assert "two for each of 2 workers" in text


@pytest.mark.parametrize(
    ("measures", "found", "asked"),
    [
        ([21], 21, 1),
        ([13, 16, 16], 16, 3),
        ([16, 13], 16, 2),
        ([13, 21], 21, 2),
        ([0], 0, 1),
    ],
)
def test_slots_are_measured_again_while_that_finds_more(
    measures: list[int], found: int, asked: int
) -> None:
    """A Spark that is slow to hand out tasks has more slots than overlap."""
    left = iter(measures)
    assert most_of_some(lambda: next(left), 21) == found
    assert len(measures) - len(list(left)) == asked
