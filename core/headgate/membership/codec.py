"""The protocols that a worker can speak, by name. Java's `sessioned`, `compatible` and `default`
have their place here, each a module beside `codec_headgate`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headgate.membership.codec_headgate import HeadgateCodec
from headgate.membership.codec_model import Assignment, AssignmentError, Codec, Metadata

__all__ = ["CODECS", "PROTOCOL_TYPE", "Assignment", "AssignmentError", "Codec", "Metadata"]

PROTOCOL_TYPE: Final = "connect"

CODECS: Final[Mapping[str, Codec]] = MappingProxyType({"headgate": HeadgateCodec()})
"""Best first: the order in which they are offered."""
