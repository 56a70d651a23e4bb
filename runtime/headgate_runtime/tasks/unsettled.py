"""Records of a source task whose `commit_record` is still to be called."""

from collections.abc import Sequence

from headgate.connector.api import SkippedRecord, SourceRecord
from headgate.connector.batches import SourceBatch
from headgate.ports import RecordMetadata


class UnsettledRecords:
    """Records as the task gave them, until the log has taken them or they are lost for good."""

    def __init__(self) -> None:
        self._sent: dict[int, SourceRecord | None] = {}
        """Records by the producer's number; None: a dead letter of what was no record."""
        self._next = 0
        self.lost: list[SourceRecord] = []

    def sent(self, records: Sequence[SourceRecord | SkippedRecord | SourceBatch]) -> None:
        """`records` have no batch where any is to be told of: see `SourceBatches`."""
        self._sent.update(
            (number, record if isinstance(record, SourceRecord) else None)
            for number, record in enumerate(records, self._next)
        )
        self._next += len(records)

    def refused(self, first: int, last: int, *, lost: bool) -> None:
        refused = [self._sent.pop(number) for number in range(first, last + 1)]
        if lost:
            self.lost += filter(None, refused)

    def aborted(self) -> None:
        self.lost += filter(None, self._sent.values())
        self._sent.clear()

    def settled(
        self, places: Sequence[tuple[int, RecordMetadata]]
    ) -> list[tuple[SourceRecord, RecordMetadata | None]]:
        """Each once."""
        lost, self.lost = self.lost, []
        sent = ((self._sent.pop(number), place) for number, place in places)
        return [
            *((record, place) for record, place in sent if record is not None),
            *((record, None) for record in lost),
        ]
