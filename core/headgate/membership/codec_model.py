"""Messages inside the group protocol, independent of their bytes: metadata from a worker to the
leader, assignments from the leader to a worker.

Source: KIP-415; `IncrementalCooperativeConnectProtocol`. `Metadata.delay_left_ms`, `capacity`,
`plugins`, `config_topic` and `generation` are ours. Java's protocols carry none of them, so they
have defaults. `last` has a default because only Java's protocols carry it.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from headgate.assignment.model import MemberAssignment
from headgate.ids import TaskId


class AssignmentError(IntEnum):
    """Error of an assignment. Source: `ConnectProtocol.Assignment`."""

    NONE = 0
    CONFIG_MISMATCH = 1


@dataclass(frozen=True, slots=True)
class Assignment:
    """Assignment of one worker in a round."""

    error: AssignmentError
    leader: str
    leader_url: str
    config_offset: int
    """Config offset that the leader computed the round for; with `CONFIG_MISMATCH`, the highest
    offset of any member."""
    change: MemberAssignment = MemberAssignment()
    delay_ms: int = 0
    config_topic: str = ""
    """Config topic of the group, if members of the round read different ones; set with
    `CONFIG_MISMATCH`. Readers of other topics take no part in the group. Only protocol `headgate`
    carries it."""
    leader_grpc: str = ""
    """The leader's `Metadata.grpc`."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """State that one worker reports when it joins."""

    url: str
    config_offset: int
    """Config offset up to which the worker has read. In protocol `headgate` it is the assignment
    offset: that of the last record that changes what is to be assigned."""
    connectors: tuple[str, ...] = ()
    """Connectors that the worker holds or is still stopping, in its own order."""
    tasks: tuple[TaskId, ...] = ()
    last_delay_ms: int = 0
    delay_left_ms: int | None = None
    capacity: int = 1
    plugins: frozenset[str] | None = None
    config_topic: str = ""
    """`MemberSettings.config_topic`."""
    generation: int = -1
    """Generation of the worker's last completed round; -1 if there was none, or it has given its
    membership up since."""
    grpc: str = ""
    """Address for gRPC calls from other workers, ``host:port``; empty if the worker takes calls
    only by HTTP. Only protocol `headgate` carries it."""
    last: Assignment | None = None
    """The last assignment that the worker received; None if there was none or it was given up.
    Connect's protocols carry it, with the held work in place of the assigned work; ours does
    not."""


class Codec(Protocol):
    """Encodes and decodes the messages of one protocol. Decoding raises
    `headgate.wire.WireError`."""

    def encode_metadata(self, metadata: Metadata, /) -> bytes: ...

    def decode_metadata(self, data: bytes, /) -> Metadata: ...

    def encode_assignment(self, assignment: Assignment, /) -> bytes: ...

    def decode_assignment(self, data: bytes, /) -> Assignment: ...
