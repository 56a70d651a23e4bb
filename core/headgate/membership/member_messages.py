"""Inputs and outputs of the member machine (`headgate.membership.member`).

In addition, a member receives every `GroupResponse` as an input.
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
    """State of a member. `headgate.membership.member` has the transitions."""

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
    """Settings of one worker's membership. Times are in milliseconds; defaults are Connect's."""

    group: str
    client_id: str
    url: str
    """Advertised url of this worker; opaque here."""
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 60_000
    """Time that a round waits for a member, and that revoked work may take to stop."""
    delay_ms_max: int = 300_000
    """``scheduled.rebalance.max.delay.ms``: time that lost work waits for its worker to return."""
    capacity: int = 1
    plugins: frozenset[str] | None = None
    config_topic: str = ""
    """Unique name of the config topic that this worker reads. Empty if it is not known; the worker
    then counts as a reader of any topic. Readers of two topics share no work."""
    grpc: str = ""
    """`Metadata.grpc`."""
    policy: str = "kip415"
    """Assignment policy for rounds of protocol `headgate`; Java's protocols have their own. Members
    keep their work while they join, so only policies in `COOPERATIVE` are allowed."""
    protocols: tuple[str, ...] = ("headgate",)
    """Protocols offered to the group, best first."""
    error_pause_ms: int = 1_000
    """Pause before joining again after a config mismatch, or after leaving because the config topic
    could not be read to its end."""
    other_topic_pause_ms: int = 30_000
    """Pause before joining again after leaving a group whose leader reads another config topic.
    Each join causes a rebalance for workers that have nothing to do with this one."""

    def __post_init__(self) -> None:
        """Check the settings. Raises ValueError for an unknown policy or protocol, or a policy that
        is not in `COOPERATIVE`."""
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
    """Snapshot of what the herder knows when an input is handled; consistent in itself."""

    assignment_offset: int
    """`ConfigState.assignment_offset` of the snapshot that `connectors` is taken from."""
    config_offset: int
    """`ConfigState.offset` of the same snapshot."""
    connectors: Mapping[str, int] = field(default_factory=lambda: dict[str, int]())
    """Configured connectors, and the number of tasks of each (0 while inconsistent)."""
    held_connectors: tuple[str, ...] = ()
    """Connectors that run here or are still stopping, assigned or not."""
    held_tasks: tuple[TaskId, ...] = ()


# -- inputs --


@dataclass(frozen=True, slots=True)
class Start:
    """Join the group for the first time, or again after `Leave` is done."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. It must be given no later than `Member.next_deadline_ms`."""


@dataclass(frozen=True, slots=True)
class RejoinRequested:
    """The herder read a record that changes what is to be assigned: a connector was created or
    deleted, or task configs were committed."""

    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """The coordinator could not be reached for a heartbeat interval."""

    reason: str


@dataclass(frozen=True, slots=True)
class WorkReleased:
    """All work that `Revoked` or `StopEverything` named has been stopped, killed or abandoned.

    It answers each of them, even if none of the work was running.
    """


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Answer to `CatchUp`. `error` says why the end of the config topic could not be reached in
    time."""

    error: str | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group for good. The member stops all its work first, if it holds any."""


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
    """A round is complete; this is all the work that the worker owns in it. Nothing new may be
    started before `StartAllowed`.

    `Revoked` or `StopEverything` has named all running work that is not in it.
    """

    generation: int
    protocol: str
    leader: str
    leader_url: str
    is_leader: bool
    connectors: tuple[str, ...]
    """New connectors first, then those held before, in the order of Connect's report."""
    tasks: tuple[TaskId, ...]
    config_offset: int
    """Config offset that the leader computed the round for, in the offset that members of
    `protocol` compare."""
    failed: bool
    """Whether the leader's snapshot was behind a member's (config mismatch). Running work
    continues, no new work starts, and another round follows."""
    grpc: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    """`Metadata.grpc` by url: that of the leader, or of all members where this member leads."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """Stop this work; it is not assigned any more. The member continues after `WorkReleased`, or
    when the rebalance timeout is over."""

    connectors: tuple[str, ...]
    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class StopEverything:
    """Stop all work: the membership may have ended, so the work may be assigned to others. Nothing
    is assigned any more.

    It is answered by `WorkReleased`.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Read the config topic to its end, then answer with `CaughtUp`. The topic must be read up to
    `offset` at least, in the offset that members of the round's protocol compare."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartAllowed:
    """Start the assigned work that is not running: the worker has read as far as the leader had.
    Work that is still stopping starts once it has stopped. This holds until the next `Assigned` or
    `StopEverything`."""


MemberOutput: TypeAlias = (
    GroupRequest | Assigned | Revoked | StopEverything | CatchUp | StartAllowed
)
