"""What workers tell each other inside the group protocol, whatever its bytes: metadata up,
assignments down.

Source: KIP-415; `IncrementalCooperativeConnectProtocol`. `Metadata.delay_left_ms`, `capacity`,
`plugins`, `config_topic` and `generation` are ours: Java's versions carry none of them, so they
have defaults; so has `last`, which only Java's carry.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from headgate.assignment.model import MemberAssignment
from headgate.ids import TaskId


class AssignmentError(IntEnum):
    """Source: `ConnectProtocol.Assignment`."""

    NONE = 0
    CONFIG_MISMATCH = 1


@dataclass(frozen=True, slots=True)
class Assignment:
    """One worker's part of a round."""

    error: AssignmentError
    leader: str
    leader_url: str
    config_offset: int
    """Config offset that the leader computed for; with `CONFIG_MISMATCH` the members' highest."""
    change: MemberAssignment = MemberAssignment()
    delay_ms: int = 0
    config_topic: str = ""
    """In a round whose members read different ones: the config topic whose readers have the group,
    with `CONFIG_MISMATCH`. Others have no part in it. Only protocol `headgate` can say it."""
    leader_grpc: str = ""
    """As `Metadata.grpc`, of the leader."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """One worker as it joins."""

    url: str
    config_offset: int
    """In protocol `headgate` the assignment offset: of the last record that changes what is to be
    assigned."""
    connectors: tuple[str, ...] = ()
    """What it holds or is still stopping, in its order."""
    tasks: tuple[TaskId, ...] = ()
    last_delay_ms: int = 0
    delay_left_ms: int | None = None
    capacity: int = 1
    plugins: frozenset[str] | None = None
    config_topic: str = ""
    """`MemberSettings.config_topic`."""
    generation: int = -1
    """Generation of its last completed round; -1 for none, or if it gave its membership up
    since."""
    grpc: str = ""
    """Address at which it takes calls of other workers by gRPC, ``host:port``; empty: by HTTP
    alone. Only protocol `headgate` can say it."""
    last: Assignment | None = None
    """The last assignment it got; None: none yet, or given up. Connect's protocols carry it, with
    what is held in place of what was assigned; ours does not."""


class Codec(Protocol):
    """The bytes of one protocol. Decoding raises `headgate.wire.WireError`."""

    def encode_metadata(self, metadata: Metadata, /) -> bytes: ...

    def decode_metadata(self, data: bytes, /) -> Metadata: ...

    def encode_assignment(self, assignment: Assignment, /) -> bytes: ...

    def decode_assignment(self, data: bytes, /) -> Assignment: ...
