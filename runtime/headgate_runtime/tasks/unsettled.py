"""Records of a source task whose `commit_record` is still to be called."""

from collections.abc import Sequence

from headgate.connector.api import SourceRecord
from headgate.ports import RecordMetadata


class UnsettledRecords:
    """Records as the task gave them, until the log has taken them or they are lost for good."""

    def __init__(self) -> None:
        self._sent: dict[int, SourceRecord] = {}
        """Records by the producer's number."""
        self._next = 0
        self.lost: list[SourceRecord] = []

    def sent(self, records: Sequence[SourceRecord]) -> None:
        self._sent.update(enumerate(records, self._next))
        self._next += len(records)

    def refused(self, first: int, last: int, *, lost: bool) -> None:
        refused = [self._sent.pop(number) for number in range(first, last + 1)]
        if lost:
            self.lost += refused

    def aborted(self) -> None:
        self.lost += self._sent.values()
        self._sent.clear()

    def settled(
        self, places: Sequence[tuple[int, RecordMetadata]]
    ) -> list[tuple[SourceRecord, RecordMetadata | None]]:
        """Each once."""
        lost, self.lost = self.lost, []
        return [
            *((self._sent.pop(number), place) for number, place in places),
            *((record, None) for record in lost),
        ]
