"""Who runs what: one round's input and the last round's memory in, everybody's assignment out."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headgate.assignment import connect, eager, kip415
from headgate.assignment.model import Policy

POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {"connect": connect.assign, "eager": eager.assign, "kip415": kip415.assign}
)
"""Policies by their names in ``headgate.assignment.policy``. `eager` is for version 0 of the
protocol only: members there stop everything before they join."""
COOPERATIVE: Final = frozenset({"connect", "kip415"})
"""Policies that give nobody what another member says it has: for groups whose members keep their
work while they join."""
