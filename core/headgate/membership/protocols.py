"""What each protocol means for a member, apart from its bytes (see `codec`).

A worker offers several protocols, best first. For each round the coordinator chooses one that all
members offer: when a Java worker joins, the group changes from `headgate` to `sessioned`, and it
changes back when that worker leaves. So these rules belong to a round, not to a worker. Source:
`ConnectProtocolCompatibility`, KIP-415, KIP-507.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from headgate.membership.member_messages import WorkView

HEADGATE: Final = "headgate"
SESSIONED: Final = "sessioned"
COMPATIBLE: Final = "compatible"
DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for rounds of one protocol."""

    policy: str | None
    """Assignment policy; None means the worker's configured policy. Java's protocols have one
    policy each."""
    plain_offset: bool = True
    """Whether members compare the config offset. Otherwise they compare the assignment offset,
    which does not move for records that do not change what is to be assigned."""
    eager: bool = False
    """Whether a member stops all its work before it joins, and its assignment names all its work
    instead of the new work. A member cannot report work that it still holds."""
    signed: bool = False
    """Whether calls between workers are signed with the session key. Source: KIP-507."""


RULES: Final[Mapping[str, Rules]] = MappingProxyType(
    {
        HEADGATE: Rules(policy=None, plain_offset=False, signed=True),
        SESSIONED: Rules(policy="connect", signed=True),
        COMPATIBLE: Rules(policy="connect"),
        DEFAULT: Rules(policy="eager", eager=True),
    }
)
"""Rules by protocol name, best first."""


def policy_of(protocol: str, chosen: str) -> str:
    """Return the name of the policy for rounds of `protocol`; `chosen` if the protocol leaves the
    choice."""
    return RULES[protocol].policy or chosen


def offset_read(protocol: str, view: WorkView) -> int:
    """Return how far the worker has read the config topic, in the offset that members of `protocol`
    compare."""
    return view.config_offset if RULES[protocol].plain_offset else view.assignment_offset
