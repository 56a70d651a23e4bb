"""What a run of a study tells: facts in the order in which they happened, at virtual times.

A timeline and every number of a summary are made of these alone.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from headgate.ids import TaskId


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of the study was begun."""

    at_ms: int
    event: int
    """Number of the event by time, from 0; -1 for the start."""
    text: str


class Change(StrEnum):
    """What becomes of a worker's process."""

    STARTED = "starts"
    CRASHED = "has crashed"
    STOPPING = "begins to stop"
    STOPPED = "has stopped"
    FROZEN = "is frozen"
    AWAKE = "is awake again"


@dataclass(frozen=True, slots=True)
class WorkerChanged:
    """A worker's process was started, ended, or stands still."""

    at_ms: int
    worker: str
    change: Change


@dataclass(frozen=True, slots=True)
class MemberGone:
    """The coordinator has removed a member from the group."""

    at_ms: int
    worker: str
    why: str


@dataclass(frozen=True, slots=True)
class MemberRound:
    """One member's part of a rebalance: what it said it has, was given, and has to give up."""

    worker: str
    connectors: tuple[str, ...]
    """It has these after the rebalance, as `tasks`."""
    tasks: tuple[TaskId, ...]
    new_connectors: tuple[str, ...] = ()
    new_tasks: tuple[TaskId, ...] = ()
    revoked_connectors: tuple[str, ...] = ()
    revoked_tasks: tuple[TaskId, ...] = ()


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """A rebalance was completed: the leader's assignments have reached the coordinator."""

    at_ms: int
    began_ms: int
    """When the first member asked for it, or the coordinator removed one."""
    why: str
    generation: int
    protocol: str
    leader: str
    members: tuple[MemberRound, ...]
    """In join order."""
    waiting_connectors: tuple[str, ...]
    """Configured, and no member has them after it, nor stops them."""
    waiting_tasks: tuple[TaskId, ...]
    """Likewise."""
    delay_ms: int
    """The scheduled delay that it announces; 0: none."""
    failed: bool = False
    """The leader had read less of the config topic than another member: nobody is given
    anything."""


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """A task began to run on a worker, or does not run there any more."""

    at_ms: int
    task: TaskId
    worker: str
    runs: bool
    run: str
    """Names the start of the task: another one is a start anew."""


@dataclass(frozen=True, slots=True)
class Configured:
    """The config topic has changed which tasks there are, or which of them are to run."""

    at_ms: int
    tasks: tuple[TaskId, ...]
    """All that are to run: of connectors with target state STARTED."""
    paused: tuple[TaskId, ...]
    """All others."""


@dataclass(frozen=True, slots=True)
class Refused:
    """What an event wants could not be done: a worker refused the call, or the worker is down."""

    at_ms: int
    what: str
    """The call, or the event."""
    why: str
    again: bool
    """The user asks again."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of the group protocol arrives: only in a trace."""

    at_ms: int
    source: str
    target: str
    text: str


Fact: TypeAlias = (
    Happened | WorkerChanged | MemberGone | Rebalanced | TaskChanged | Configured | Refused | Sent
)
