"""The checks of tests/e2e/test_kafka_mixed_calls.py find each fault in a config topic."""

from typing import Any

import pytest
from support.kafka.histories import SHARED, Change, Told, check
from support.kafka.other_calls import Asked, OtherCalls

from headgate.ids import TargetState
from headgate.topics.config_events import (
    ConfigEvent,
    ConnectorConfigured,
    ConnectorRemoved,
    RestartRequested,
    TargetStateChanged,
    TargetStateRemoved,
)

DONE, REFUSED, UNKNOWN = Told.DONE, Told.REFUSED, Told.UNKNOWN


class Heard:
    """The answers that one caller got."""

    def __init__(self, changes: list[tuple[int | None, Told]], added: list[tuple[int, Told]]):
        self.changes = [Change("c", number, told) for number, told in changes]
        self.added = added
        self.other = OtherCalls("file")


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
    check([caller], events(made, shared or [0]), [])


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


STOP, PAUSE, GONE = "STOPPED", "PAUSED", None
StateTold = list[tuple[str | None, Told]]


def checked_others(
    states: StateTold,
    made: list[str | None],
    restarts: tuple[list[Told], int] = ([], 0),
    offsets: tuple[list[tuple[int | None, Told]], list[int | None]] = ([], []),
) -> None:
    """Target states as they were told and as they stand in the topic, then restarts, offsets."""
    calls = OtherCalls("file")
    calls.target_states = [Asked("c", state, told, writes=state != STOP) for state, told in states]
    calls.restarts = [Asked("c", "", told) for told in restarts[0]]
    calls.offsets = [Asked("c", position, told) for position, told in offsets[0]]
    found: list[ConfigEvent] = [
        TargetStateRemoved(n, "c")
        if state is None
        else TargetStateChanged(n, "c", TargetState(state))
        for n, state in enumerate(made)
    ]
    found += [RestartRequested(100 + n, "c", True, False) for n in range(restarts[1])]
    calls.check(found, [("c", position) for position in offsets[1]])


def test_other_calls_that_agree_pass() -> None:
    checked_others([(STOP, DONE), (PAUSE, UNKNOWN), (GONE, DONE)], [STOP, GONE])
    checked_others([(STOP, DONE), (PAUSE, UNKNOWN), (GONE, DONE)], [STOP, GONE, PAUSE])
    checked_others([(STOP, DONE), (PAUSE, REFUSED)], [STOP], ([DONE, UNKNOWN], 2))
    checked_others([(STOP, DONE), (STOP, DONE), (PAUSE, DONE)], [STOP, PAUSE])
    checked_others([], [], offsets=([(1, DONE), (2, REFUSED), (None, DONE)], [1, None]))
    checked_others([], [], offsets=([(None, DONE), (1, UNKNOWN)], []))


@pytest.mark.parametrize(
    ("states", "made"),
    [
        ([(STOP, DONE)], []),
        ([(STOP, DONE)], [STOP, STOP]),
        ([(STOP, DONE), (PAUSE, REFUSED)], [STOP, PAUSE]),
        ([(STOP, DONE), (PAUSE, DONE)], [PAUSE, STOP]),
        ([(PAUSE, DONE), (STOP, DONE), (PAUSE, DONE)], [PAUSE, PAUSE]),
        ([(STOP, DONE), (GONE, DONE)], [STOP]),
    ],
)
def test_each_fault_of_target_states_is_found(states: StateTold, made: list[str | None]) -> None:
    with pytest.raises(AssertionError, match="c: target state"):
        checked_others(states, made)


@pytest.mark.parametrize("restarts", [([DONE], 0), ([DONE], 2), ([REFUSED], 1)])
def test_each_fault_of_restarts_is_found(restarts: tuple[list[Told], int]) -> None:
    with pytest.raises(AssertionError, match="c: restarts"):
        checked_others([], [], restarts)


@pytest.mark.parametrize(
    "offsets",
    [
        ([(1, DONE)], []),
        ([(1, DONE)], [1, 1]),
        ([(1, REFUSED)], [1]),
        ([(1, DONE), (2, DONE)], [2, 1]),
        ([(1, DONE), (None, DONE)], [1]),
        ([(1, DONE), (None, REFUSED)], [1, None]),
    ],
)
def test_each_fault_of_offsets_is_found(
    offsets: tuple[list[tuple[int | None, Told]], list[int | None]],
) -> None:
    with pytest.raises(AssertionError, match="c: offset"):
        checked_others([], [], offsets=offsets)
