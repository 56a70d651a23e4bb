"""The member machine. Signatures first; the body follows."""

from collections.abc import Mapping
from enum import StrEnum

from headgate.assignment.model import Work
from headgate.ids import TaskId
from headgate.membership.member_messages import (
    MemberInput,
    MemberOutput,
    MemberSettings,
    WorkView,
)


class MemberState(StrEnum):
    OUTSIDE = "outside"
    JOINING = "joining"
    SYNCING = "syncing"
    RELEASING = "releasing"
    CATCHING_UP = "catching up"
    STEADY = "steady"
    PAUSING = "pausing"
    LEAVING = "leaving"


class Member:
    """One worker's membership."""

    def __init__(self, settings: MemberSettings) -> None: ...

    def handle(self, now_ms: int, input: MemberInput, view: WorkView) -> list[MemberOutput]:
        """What to do about `input`, in order."""
        ...

    @property
    def state(self) -> MemberState: ...

    @property
    def next_deadline_ms(self) -> int | None:
        """When to give `Tick` at the latest; None: not needed."""
        ...

    @property
    def generation(self) -> int:
        """Of the last successful sync; -1 before any, or after the membership was given up."""
        ...

    @property
    def member_id(self) -> str: ...

    @property
    def leader(self) -> str:
        """Member id of the leader of `generation`; empty while there is none."""
        ...

    @property
    def leader_url(self) -> str: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def connectors(self) -> tuple[str, ...]:
        """Assigned connectors."""
        ...

    @property
    def tasks(self) -> tuple[TaskId, ...]: ...

    @property
    def rebalances(self) -> int:
        """Rounds completed since construction."""
        ...

    @property
    def pending(self) -> tuple[str, ...]:
        """What is under way, in words; empty when settled (a running delay is pending too)."""
        ...

    @property
    def member_urls(self) -> Mapping[str, str]:
        """Leader only, else empty: url of every member of this generation, by member id."""
        ...

    def owner_url(self, work: Work) -> str | None:
        """Leader only: url of the member that owns `work` in this generation."""
        ...
