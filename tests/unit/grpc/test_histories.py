"""What tests/e2e/test_kafka_mixed_calls.py holds against the config topic: each fault is found."""

from typing import Any

import pytest
from support.kafka.histories import SHARED, Change, Told, check

from headgate.topics.config_events import ConfigEvent, ConnectorConfigured, ConnectorRemoved

DONE, REFUSED, UNKNOWN = Told.DONE, Told.REFUSED, Told.UNKNOWN


class Heard:
    """What one caller was told."""

    def __init__(self, changes: list[tuple[int | None, Told]], added: list[tuple[int, Told]]):
        self.changes = [Change("c", number, told) for number, told in changes]
        self.added = added


def events(numbers: list[int | None], shared: list[int]) -> list[ConfigEvent]:
    found: list[ConfigEvent] = []
    for name, each in [*((SHARED, n) for n in shared), *(("c", n) for n in numbers)]:
        if each is None:
            found.append(ConnectorRemoved(len(found), name))
        else:
            found.append(ConnectorConfigured(len(found), name, {"number": str(each)}))
    return found


def checked(
    told: list[tuple[int | None, Told]],
    made: list[int | None],
    added: list[tuple[int, Told]] | None = None,
    shared: list[int] | None = None,
) -> None:
    caller: Any = Heard(told, added or [])
    check([caller], events(made, shared or [0]))


def test_what_agrees_passes() -> None:
    checked([(1, DONE), (None, DONE), (2, UNKNOWN), (3, REFUSED)], [1, None, 2])
    checked([(1, DONE), (2, UNKNOWN), (3, DONE)], [1, 3, 2])
    checked([], [], [(1, DONE), (1, REFUSED), (2, UNKNOWN)], [0, 1, 2])


@pytest.mark.parametrize(
    ("told", "made", "fault"),
    [
        ([(1, DONE)], [], "1. were acknowledged"),
        ([(1, DONE)], [1, 1], "done twice"),
        ([(1, DONE), (2, REFUSED)], [1, 2], "were refused, and made"),
        ([(1, DONE), (2, DONE)], [2, 1], "ends as 1"),
        ([(1, DONE), (None, DONE)], [1], "0 deletions"),
        ([(1, DONE), (None, DONE)], [1, None, None], "2 deletions"),
        ([(1, DONE), (None, REFUSED)], [1, None], "1 deletions"),
    ],
)
def test_each_fault_is_found(
    told: list[tuple[int | None, Told]], made: list[int | None], fault: str
) -> None:
    with pytest.raises(AssertionError, match=fault):
        checked(told, made)


@pytest.mark.parametrize(
    ("added", "shared"),
    [
        ([(1, DONE)], [0]),
        ([(1, DONE)], [0, 1, 1]),
        ([(1, DONE), (1, DONE)], [0, 1]),
        ([(1, REFUSED)], [0, 1]),
        ([(2, DONE)], [0, 2]),
    ],
)
def test_steps_of_the_shared_number_are_made_once(
    added: list[tuple[int, Told]], shared: list[int]
) -> None:
    with pytest.raises(AssertionError):
        checked([], [], added, shared)
