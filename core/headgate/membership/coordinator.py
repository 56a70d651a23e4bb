"""The group coordinator machine. Signatures first; the body follows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate.membership.messages import GroupError, GroupRequest, GroupResponse


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    initial_rebalance_delay_ms: int = 300
    """How long the first round of an empty group waits for more members to come."""


class Coordinator:
    """Serves many groups.

    A `JoinGroup` with an empty member id is answered at once by `JoinedGroup` with
    `MEMBER_ID_REQUIRED` and the id ``<client_id>-<new_id>``, with which the member joins
    (KIP-394): so a lost answer leaves no ghost in the group. A member whose answer does not come
    repeats its request as it was, every heartbeat interval: repeating is harmless and keeps it
    alive. A member that is silent for its session timeout is removed, also while it waits.
    """

    def __init__(self, settings: CoordinatorSettings = CoordinatorSettings()) -> None: ...

    def handle(self, now_ms: int, request: GroupRequest, new_id: str = "") -> list[GroupResponse]:
        """Responses to send, to the requester and to others, by their `group` and `member_id`."""
        ...

    def tick(self, now_ms: int) -> list[GroupResponse]:
        """Sessions and rounds whose time is over. `handle` does it too."""
        ...

    @property
    def next_deadline_ms(self) -> int | None: ...

    def generation(self, group: str) -> int:
        """0 for a group never heard of."""
        ...

    def members(self, group: str) -> tuple[str, ...]: ...

    def is_member(self, group: str, member_id: str) -> bool:
        """Guards the initialisation of producers: who was removed is shut out."""
        ...

    def check(self, group: str, member_id: str, generation: int) -> GroupError | None:
        """Guards offset commits: None when `member_id` may act in the name of `generation`."""
        ...

    def to_plain(self) -> dict[str, Any]:
        """All state as what JSON can carry."""
        ...

    @classmethod
    def from_plain(
        cls, plain: Mapping[str, Any], settings: CoordinatorSettings = CoordinatorSettings()
    ) -> "Coordinator": ...
