"""Who runs what: one round's input and the last round's memory in, everybody's assignment out."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headgate.assignment import connect, eager, kip415
from headgate.assignment.model import Policy

POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {"connect": connect.assign, "eager": eager.assign, "kip415": kip415.assign}
)
"""By the name that ``headgate.assignment.policy`` gives. `eager` is for groups at version 0 of the
protocol only: its members have stopped everything before they join."""
COOPERATIVE: Final = frozenset({"connect", "kip415"})
"""Policies that give nobody what another member says it has: for groups whose members keep their
work while they join."""
