"""Inputs and outputs of the member machine (`headgate.membership.member`).

Besides these a member is given every `GroupResponse` as it arrives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from headgate.assignment import COOPERATIVE
from headgate.ids import TaskId
from headgate.membership.codec import CODECS
from headgate.membership.messages import GroupRequest, GroupResponse


class MemberState(StrEnum):
    """Where a member is; the ways between are in `headgate.membership.member`."""

    OUTSIDE = "outside"
    JOINING = "joining"
    SYNCING = "syncing"
    RELEASING = "releasing"
    CATCHING_UP = "catching up"
    STEADY = "steady"
    PAUSING = "pausing"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What one worker brings into its group. Times are milliseconds; defaults are Connect's."""

    group: str
    client_id: str
    url: str
    """How other workers reach this one; opaque here."""
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 60_000
    """How long a round waits for a member, and how long revoked work may take to stop."""
    delay_ms_max: int = 300_000
    """``scheduled.rebalance.max.delay.ms``: how long lost work waits for its worker to come
    back."""
    capacity: int = 1
    plugins: frozenset[str] | None = None
    config_topic: str = ""
    """Which config topic this worker reads, in words that no other topic has; empty: not known, so
    it is taken for everybody's. Members of two topics have no work in common."""
    grpc: str = ""
    """`Metadata.grpc`."""
    policy: str = "kip415"
    """For rounds of the protocol `headgate`; Java's have their own. Its members keep their work
    while they join, so only a policy that leaves it to them will do (`COOPERATIVE`)."""
    protocols: tuple[str, ...] = ("headgate",)
    """Offered to the group, best first."""
    error_pause_ms: int = 1_000
    """Pause before joining again after a config mismatch or after leaving for failing to catch
    up."""
    other_topic_pause_ms: int = 30_000
    """The same after leaving a group whose leader reads another config topic: each join is a round
    for workers that have nothing to do with this one."""

    def __post_init__(self) -> None:
        """Raises ValueError for a policy or a protocol that is not there, or would do harm."""
        if self.policy not in COOPERATIVE:
            why = (
                " ('eager' deals out what other members still run; rounds of the protocol "
                "'default' go by it)"
                if self.policy == "eager"
                else ""
            )
            raise ValueError(
                f"assignment policy {self.policy!r}, expected one of "
                f"{', '.join(sorted(COOPERATIVE))}{why}"
            )
        if not self.protocols or not set(self.protocols) <= set(CODECS):
            raise ValueError(
                f"protocols {', '.join(self.protocols) or '(none)'}, expected some of "
                f"{', '.join(CODECS)}"
            )


@dataclass(frozen=True, slots=True)
class WorkView:
    """What the herder knows at the moment of an input: one consistent snapshot."""

    assignment_offset: int
    """`ConfigState.assignment_offset` of the snapshot that `connectors` is taken from."""
    config_offset: int
    """`ConfigState.offset` of the same."""
    connectors: Mapping[str, int] = field(default_factory=lambda: dict[str, int]())
    """Configured connectors and how many tasks each has (0 while inconsistent)."""
    held_connectors: tuple[str, ...] = ()
    """What runs here or is still stopping, assigned or not."""
    held_tasks: tuple[TaskId, ...] = ()


# -- inputs --


@dataclass(frozen=True, slots=True)
class Start:
    """Join the group for the first time, or again after `Leave` is done."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. To be given no later than `Member.next_deadline_ms`."""


@dataclass(frozen=True, slots=True)
class RejoinRequested:
    """The herder read something that changes what is to be assigned: a connector appeared or went,
    or a commit."""

    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """The coordinator could not be reached for a heartbeat interval."""

    reason: str


@dataclass(frozen=True, slots=True)
class WorkReleased:
    """All that `Revoked` or `StopEverything` named has been stopped, killed or abandoned.

    Answers each of them, also when nothing of it was running.
    """


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Answers `CatchUp`. `error`: the end of the config topic could not be reached in time."""

    error: str | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group for good: stops everything first if something is held."""


MemberInput: TypeAlias = (
    Start
    | Tick
    | GroupResponse
    | RejoinRequested
    | CoordinatorLost
    | WorkReleased
    | CaughtUp
    | Leave
)


# -- outputs, to be carried out in list order. Group requests are outputs as they are --


@dataclass(frozen=True, slots=True)
class Assigned:
    """A round is complete: this is everything the worker owns in it. Nothing new may be started
    before `StartAllowed`.

    What runs and is not in it was named by `Revoked` or `StopEverything`.
    """

    generation: int
    protocol: str
    leader: str
    leader_url: str
    is_leader: bool
    connectors: tuple[str, ...]
    """New ones first, then those held before, as Connect orders them in its report."""
    tasks: tuple[TaskId, ...]
    config_offset: int
    """Config offset that the leader computed for, as members of `protocol` count it."""
    failed: bool
    """The leader's snapshot was behind a member's (config mismatch): work goes on, nothing new
    starts, another round follows."""
    grpc: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    """`Metadata.grpc` by url: of the leader; of all, where this member leads."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """Stop these: they are not assigned any more. The member goes on after `WorkReleased` or when
    the rebalance timeout is over."""

    connectors: tuple[str, ...]
    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class StopEverything:
    """The membership may have ended, so others may be given the work: stop all of it. Nothing is
    assigned any more.

    Answered by `WorkReleased`.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Read the config topic to its end, then `CaughtUp`; `offset`, as members of the round's
    protocol count it, is needed at least."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartAllowed:
    """The worker has read what the leader had read: start what is assigned and does not run; what
    of it is still stopping, when it has stopped. Holds until the next `Assigned` or
    `StopEverything`."""


MemberOutput: TypeAlias = (
    GroupRequest | Assigned | Revoked | StopEverything | CatchUp | StartAllowed
)
