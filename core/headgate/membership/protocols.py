"""What the name of a protocol means for a member, beyond its bytes, which `codec` has.

A worker offers several names, best first. The coordinator chooses, for every round anew, one that
all members offer: a Java worker that joins brings the group from `headgate` to `sessioned`, and it
goes back when that worker leaves. So nothing here is a property of a worker, only of a round.
Source: `ConnectProtocolCompatibility`, KIP-415, KIP-507.
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
    """How a round of one protocol goes."""

    policy: str | None
    """None: the one that the worker is set to. Workers that are not ours know but one."""
    plain_offset: bool = True
    """Members compare the config offset. Else the assignment offset, which does not move for
    records that change nothing in what is to be assigned."""
    eager: bool = False
    """A member stops all its work before it joins and is told all that is its own, not what is
    new. What it still holds it cannot say."""
    signed: bool = False
    """Calls between workers are signed with the session key. Source: KIP-507."""


RULES: Final[Mapping[str, Rules]] = MappingProxyType(
    {
        HEADGATE: Rules(policy=None, plain_offset=False, signed=True),
        SESSIONED: Rules(policy="connect", signed=True),
        COMPATIBLE: Rules(policy="connect"),
        DEFAULT: Rules(policy="eager", eager=True),
    }
)
"""Protocols by name, best first."""


def policy_of(protocol: str, chosen: str) -> str:
    """Name of the policy that rounds of `protocol` go by; `chosen` where it leaves the choice."""
    return RULES[protocol].policy or chosen


def offset_read(protocol: str, view: WorkView) -> int:
    """How far the worker has read, as members of `protocol` count it."""
    return view.config_offset if RULES[protocol].plain_offset else view.assignment_offset
