"""Who runs what: one round's input and the last round's memory in, everybody's assignment out."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headgate.assignment import kip415
from headgate.assignment.model import Policy

POLICIES: Final[Mapping[str, Policy]] = MappingProxyType({"kip415": kip415.assign})
"""By the name that ``headgate.assignment.policy`` gives."""
