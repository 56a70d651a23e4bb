"""A sink task that keeps the values that it is given."""

from collections.abc import Sequence
from typing import Any

from headgate.connector.api import SinkRecord, SinkTask


class Values(SinkTask):
    """Its values are in `taken` of the class; a test empties it first."""

    taken: list[Any]

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.taken += [record.value for record in records]
