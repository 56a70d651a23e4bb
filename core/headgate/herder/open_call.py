"""A call from its arrival to its answer, as `headgate.herder.requests` keeps it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from headgate.herder.context import Origin
from headgate.herder.messages import (
    AlterOffsets,
    Call,
    CreateConnector,
    DeleteConnector,
    ErrorKind,
    Failure,
    PatchConnectorConfig,
    PutConnectorConfig,
    PutTaskConfigs,
    ResetDeletedOffsets,
    ResetOffsets,
    SetTargetState,
    ShowConnector,
)
from headgate.ids import TargetState
from headgate.topics.config_events import Config


class Stage(StrEnum):
    """What a call waits for. A caller whose time is over is told this."""

    NEW = "looking at the request"
    VALIDATING = "validating the connector's config"
    READING = "reading to the end of the config topic"
    WAITING = "waiting for a leader or an owner"
    ELSEWHERE = "waiting for another worker's answer"
    WRITING = "writing to the config topic"
    FENCING = "performing a round of zombie fencing"
    RESTARTING = "restarting"
    READING_OFFSETS = "reading offsets of the connector"
    CHANGING_OFFSETS = "modifying offsets of the connector"


_CHANGES = (
    CreateConnector,
    PutConnectorConfig,
    PatchConnectorConfig,
    DeleteConnector,
    PutTaskConfigs,
    AlterOffsets,
    ResetOffsets,
    ResetDeletedOffsets,
)
SHUTTING_DOWN: Final = "The worker is shutting down; ask another one"
SHUT_DOWN_WHILE: Final = (
    "The worker was shut down while it was {}: look whether it was done before you ask another one"
)
BEGUN: Final = frozenset({Stage.ELSEWHERE, Stage.WRITING, Stage.RESTARTING, Stage.CHANGING_OFFSETS})
"""Stages in which a call may still be executed after its caller was answered."""


@dataclass(slots=True)
class OpenCall:
    ticket: int
    origin: Origin
    call: Call
    hops: int
    deadline_ms: int
    stage: Stage = Stage.NEW
    validated: bool = False
    merged: Config | None = None
    """Whole config with a patch merged in, as it was given to be validated."""
    log_read: bool = False
    token: int = 0
    """Token of the answer that the call awaits."""
    asked_leader: str = ""
    """Member id of the leader that the call was forwarded to."""
    asked_url: str = ""
    """URL of the worker that the call was last forwarded to and that has not answered."""
    tried_since_ms: int = 0
    """When the call was forwarded to `asked_url` for the first time."""
    unreached: str = ""
    """Why no connection to `asked_url` could be made at the last try."""
    terms: int = 0
    """`Leadership.terms` when the call came."""
    failures: int = 0

    @property
    def has_etag(self) -> bool:
        """Whether the call has an etag. It must not be asked twice: once executed it changes the
        etag, and would be refused."""
        return getattr(self.call, "etag", None) is not None

    @property
    def to_end(self) -> bool:
        """Whether both topics must be read to their ends before the call is answered."""
        return isinstance(self.call, ShowConnector) and self.call.to_end

    def shut_down(self) -> Failure:
        """Return the answer to a call of a worker that shuts down. A call that has begun may still
        be executed. Another worker that is asked the same would then answer that the connector
        exists already, or is gone."""
        if self.stage in BEGUN:
            return Failure(ErrorKind.TIMEOUT, SHUT_DOWN_WHILE.format(self.stage.value))
        return Failure(ErrorKind.NOT_READY, SHUTTING_DOWN)

    @property
    def changes_as_leader(self) -> bool:
        """Whether only a leader makes the change. Made late, it would undo what was done since."""
        call = self.call
        if isinstance(call, SetTargetState):
            return call.target_state is TargetState.STOPPED or self.has_etag
        return isinstance(call, _CHANGES)
