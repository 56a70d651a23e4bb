"""Names of things that more than one part of the core speaks of."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """One unit of work of a connector. Tasks count from 0."""

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
