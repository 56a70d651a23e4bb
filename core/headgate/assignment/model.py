"""Input and output of an assignment policy. A policy is a pure function `assign(round, memory) ->
Round`.

Source: KIP-415; `IncrementalCooperativeAssignor`. Differs: state that Java keeps in the fields of
an object is a value here, passed in and returned.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from headgate.ids import TaskId

Work: TypeAlias = str | TaskId
"""One unit to be assigned: a connector (its name) or a task."""


@dataclass(frozen=True, slots=True)
class MemberWork:
    """One member as it joined the round."""

    member_id: str
    connectors: tuple[str, ...] = ()
    """Connectors that the member holds or is still stopping, in the order it reported them. The
    same holds for `tasks`."""
    tasks: tuple[TaskId, ...] = ()
    last_delay_ms: int = 0
    """Delay in the last assignment that the member received."""
    delay_left_ms: int | None = None
    """How much of that delay was left when the member joined. None if it did not say, like Java's
    members."""
    capacity: int = 1
    plugins: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class RoundInput:
    members: tuple[MemberWork, ...]
    """Members in join order; at least one."""
    leader: str
    generation: int
    last_completed_generation: int
    """Generation of this leader's last successful sync, whether it led that round or not; -1 before
    any."""
    connectors: Mapping[str, int]
    """Configured connectors, and the number of tasks of each (0 while inconsistent)."""
    delay_ms_max: int
    now_ms: int
    """Monotonic time; only differences matter."""


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """Change for one member: new work and revoked work. Each is sorted, and they are disjoint."""

    assigned_connectors: tuple[str, ...] = ()
    assigned_tasks: tuple[TaskId, ...] = ()
    revoked_connectors: tuple[str, ...] = ()
    revoked_tasks: tuple[TaskId, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    members: Mapping[str, MemberAssignment]
    delay_ms: int
    """Time after which all members should join again, or 0."""
    memory: object = field(repr=False)
    """Passed to the next round of the same leader."""


class Policy(Protocol):
    """An assignment policy. `memory` is that of the last `Round`; None for a new leader."""

    def __call__(self, round_input: RoundInput, memory: object | None, /) -> Round: ...
