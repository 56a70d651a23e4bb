"""A record of the log, as a test of a connector gives it to a sink or gets it from a source."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate.connector.api import Headers, Value
from headgate.connector.schema import Schema


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes of a key or a value that no converter wrote: bad input."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """One record of a topic. Key, value and headers are those that a sink is given."""

    value: Value
    key: Value = None
    topic: str = "topic"
    partition: int = 0
    headers: Headers = ()
    timestamp_ms: int = 0
    """Timestamp in milliseconds since 1970."""
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    offset: int = -1
    """Consumer offset in its topic partition. -1: the record is not in the log yet."""
    source_partition: Mapping[str, Any] | None = None
    source_offset: Mapping[str, Any] | None = None
    """Source offset that came with the record. None: no source wrote it."""

    @property
    def shown(self) -> str:
        """The record in a line of a failure: value and place."""
        text = repr(self.value)
        text = text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
        if self.source_partition is not None:
            offset = dict(self.source_offset or {})
            return f"{text} (source partition {dict(self.source_partition)}, offset {offset})"
        return f"{text} ({self.topic}-{self.partition}, offset {self.offset})"
