"""Identifiers and words that several parts of the core use."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple


class TaskId(NamedTuple):
    """Identifier of a task: the connector's name and the task's number, counted from 0.

    It is a tuple, because one decision makes sets and dicts of 100,000 of them. Hashing and
    comparing a tuple costs a fifth of what a dataclass costs.
    """

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"

    @classmethod
    def parse(cls, text: str) -> "TaskId":
        """Return the task that `text` names: ``<connector>-<n>``, with the number after the last
        dash.

        Raises:
            ValueError: The part after the last dash is not a number of decimal digits.
        """
        connector, dash, tail = text.rpartition("-")
        if not dash or not (tail.isascii() and tail.isdecimal()):
            raise ValueError(f"{text!r} names no task: expected <connector>-<number>")
        return cls(connector, int(tail))


_MAKE: Final = partial(tuple.__new__, TaskId)  # pyright: ignore[reportUnknownMemberType]


def task_ids(connector: str, numbers: Iterable[int]) -> Iterator[TaskId]:
    """Return `TaskId(connector, number)` for each of `numbers`. It costs half as much as calling
    the class; one decision may make 100,000."""
    return map(_MAKE, zip(repeat(connector), numbers))


class TargetState(StrEnum):
    """Target state of a connector: what the user asked for. Source: KIP-52, KIP-875."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class State(StrEnum):
    """State in the status of a connector or task. Source: AbstractStatus.State."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


def utf16_key(text: str) -> bytes:
    """Return a sort key that orders strings as Java does, by UTF-16 code units (Python orders by
    code points)."""
    return text.encode("utf-16-be", "surrogatepass")
