"""Transforms that several tests of tasks use."""

from collections.abc import Mapping
from typing import Final

from support.task.letters import HEADERS, LETTERS

from headgate.connector.api import SinkRecord, SourceRecord

CAST_TEXT: Final = {
    "transforms": "cast",
    "transforms.cast.type": "Cast$Value",
    "transforms.cast.spec": "text:int32",
    "errors.tolerance": "all",
    LETTERS: "letters",
    HEADERS: "true",
}
"""A transform that makes the field `text` a number. A record in which it is none becomes a dead
letter."""


class Keeps:
    """A transform that changes nothing and takes no batch, so that records pass one by one."""

    def configure(self, config: Mapping[str, str]) -> None: ...

    def apply_source(self, record: SourceRecord) -> SourceRecord:
        return record

    def apply_sink(self, record: SinkRecord) -> SinkRecord:
        return record
