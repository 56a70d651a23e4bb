"""Codecs of the protocols that a worker can speak, by name: ours, then Connect's from version 2
down to 0."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headgate.membership.codec_connect import ConnectCodec
from headgate.membership.codec_headgate import HeadgateCodec
from headgate.membership.codec_model import Assignment, AssignmentError, Codec, Metadata

__all__ = ["CODECS", "PROTOCOL_TYPE", "Assignment", "AssignmentError", "Codec", "Metadata"]

PROTOCOL_TYPE: Final = "connect"

CODECS: Final[Mapping[str, Codec]] = MappingProxyType(
    {
        "headgate": HeadgateCodec(),
        "sessioned": ConnectCodec(2),
        "compatible": ConnectCodec(1),
        "default": ConnectCodec(0),
    }
)
"""Codecs by protocol name, best first. Protocols are offered in this order."""
