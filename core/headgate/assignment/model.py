"""What every assignment policy takes and returns. A policy is `assign(round, memory) -> Round`, a
pure function.

Source: KIP-415; `IncrementalCooperativeAssignor`. Differs: what Java keeps in fields of an object
is a value here, taken and returned.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from headgate.ids import TaskId

Work: TypeAlias = str | TaskId
"""One thing to be owned: a connector (its name) or a task."""


@dataclass(frozen=True, slots=True)
class MemberWork:
    """One member as it joined the round."""

    member_id: str
    connectors: tuple[str, ...] = ()
    """Work it holds or is still stopping, in the order it reported it."""
    tasks: tuple[TaskId, ...] = ()
    last_delay_ms: int = 0
    """The delay of the last assignment it got."""
    delay_left_ms: int | None = None
    """How much of that delay had not passed when it joined. None: not said, as by Java's
    members."""
    capacity: int = 1
    plugins: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class RoundInput:
    members: tuple[MemberWork, ...]
    """In join order; at least one."""
    leader: str
    generation: int
    last_completed_generation: int
    """Generation of this leader's last successful sync, as leader or not; -1 before
    any."""
    connectors: Mapping[str, int]
    """Configured connectors and how many tasks each has (0 while inconsistent)."""
    delay_ms_max: int
    now_ms: int
    """Monotonic; only differences matter."""


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """For one member: what is new to it and what it must stop, each sorted. Disjoint."""

    assigned_connectors: tuple[str, ...] = ()
    assigned_tasks: tuple[TaskId, ...] = ()
    revoked_connectors: tuple[str, ...] = ()
    revoked_tasks: tuple[TaskId, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    members: Mapping[str, MemberAssignment]
    delay_ms: int
    """0, or how long until everybody should join again."""
    memory: object = field(repr=False)
    """To be given to the next round of the same leader."""


class Policy(Protocol):
    """How work is shared. `memory` is what the last `Round` returned, None for a new leader."""

    def __call__(self, round_input: RoundInput, memory: object | None, /) -> Round: ...
