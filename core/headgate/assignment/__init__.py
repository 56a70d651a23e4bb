"""Assignment policies: functions that compute all members' assignments from one round's input and
the memory of the last round."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headgate.assignment import connect, eager, kip415
from headgate.assignment.model import Policy

POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {"connect": connect.assign, "eager": eager.assign, "kip415": kip415.assign}
)
"""Policies by their names in ``headgate.assignment.policy``. `eager` is only for version 0 of the
protocol, in which members stop all their work before they join."""
COOPERATIVE: Final = frozenset({"connect", "kip415"})
"""Policies that assign no work that another member reports as held. They suit groups whose members
keep their work while they join."""
