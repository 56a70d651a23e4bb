"""Names of things that more than one part of the core speaks of."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple


class TaskId(NamedTuple):
    """One unit of work of a connector. Tasks count from 0.

    A tuple, because sets and dicts of 100,000 of them are made in one decision: it is hashed and
    compared at a fifth of what a dataclass costs.
    """

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"

    @classmethod
    def parse(cls, text: str) -> "TaskId":
        """The task that `text` (``<connector>-<n>``, the number after the last dash) names.

        Raises:
            ValueError: the tail is not a number of decimal digits.
        """
        connector, dash, tail = text.rpartition("-")
        if not dash or not (tail.isascii() and tail.isdecimal()):
            raise ValueError(f"{text!r} names no task: expected <connector>-<number>")
        return cls(connector, int(tail))


_MAKE: Final = partial(tuple.__new__, TaskId)  # pyright: ignore[reportUnknownMemberType]


def task_ids(connector: str, numbers: Iterable[int]) -> Iterator[TaskId]:
    """`TaskId(connector, number)` for each of `numbers`, at half the price: one decision may make
    100,000."""
    return map(_MAKE, zip(repeat(connector), numbers))


class TargetState(StrEnum):
    """What the user asked a connector to do. Source: KIP-52, KIP-875."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class State(StrEnum):
    """What a connector or task reports: the state word of its status. Source:
    AbstractStatus.State."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


def utf16_key(text: str) -> bytes:
    """Sorts strings as Java does, by UTF-16 code units (not code points as Python does)."""
    return text.encode("utf-16-be", "surrogatepass")
