"""A sink task that keeps the values that it is given."""

from collections.abc import Sequence
from typing import Any

from headgate.connector.api import SinkRecord, SinkTask


class Values(SinkTask):
    """The task. Its class has the values in `taken`, which a test empties first."""

    taken: list[Any]

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.taken += [record.value for record in records]
