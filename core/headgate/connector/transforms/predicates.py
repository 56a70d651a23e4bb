"""Predicates, which decide whether a transform is applied to a record. Source: Connect's package
`predicates`."""

import re
from collections.abc import Mapping
from typing import Final, Protocol

from headgate.connector.api import SinkRecord, SourceRecord
from headgate.connector.config import ConfigDef, Type
from headgate.connector.validators import all_of, non_empty, regex


class Predicate(Protocol):
    """Decides whether a transform is applied to a record."""

    def configure(self, config: Mapping[str, str]) -> None: ...

    def test(self, record: SourceRecord | SinkRecord) -> bool: ...


class TopicNameMatches:
    """The whole topic matches `pattern`. Differs: the expression is Python's."""

    BY_TOPIC: Final = True
    CONFIG: Final = ConfigDef().define(
        "pattern",
        Type.STRING,
        validator=all_of(non_empty, regex),
        documentation="Expression that the whole name of a record's topic must match.",
    )

    def configure(self, config: Mapping[str, str]) -> None:
        self._pattern = re.compile(self.CONFIG.parse(config)["pattern"])

    def test(self, record: SourceRecord | SinkRecord) -> bool:
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey:
    """The record has a header of this name at least once."""

    BY_TOPIC: Final = True
    CONFIG: Final = ConfigDef().define(
        "name", Type.STRING, validator=non_empty, documentation="Name of the header."
    )

    def configure(self, config: Mapping[str, str]) -> None:
        self._name = self.CONFIG.parse(config)["name"]

    def test(self, record: SourceRecord | SinkRecord) -> bool:
        return any(key == self._name for key, _ in record.headers)


class RecordIsTombstone:
    """The record's value is null."""

    CONFIG: Final = ConfigDef()

    def configure(self, config: Mapping[str, str]) -> None:
        pass

    def test(self, record: SourceRecord | SinkRecord) -> bool:
        return record.value is None
