"""Transforms that tests of tasks share."""

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
"""A field `text` becomes a number; where it is none, the record becomes a dead letter."""


class Keeps:
    """Changes nothing, and takes no batch: with it, all goes record by record."""

    def configure(self, config: Mapping[str, str]) -> None: ...

    def apply_source(self, record: SourceRecord) -> SourceRecord:
        return record

    def apply_sink(self, record: SinkRecord) -> SinkRecord:
        return record
