"""Records of a source task for which `commit_record` has still to be called."""

from collections.abc import Sequence

from headgate.connector.api import SkippedRecord, SourceRecord
from headgate.connector.batches import SourceBatch
from headgate.ports import RecordMetadata


class UnsettledRecords:
    """Records as the task returned them, until the log has taken them or they are lost for good."""

    def __init__(self) -> None:
        self._sent: dict[int, SourceRecord | None] = {}
        """Records by the producer's number. None: a dead letter of an item that was no record."""
        self._next = 0
        self.lost: list[SourceRecord] = []

    def sent(self, records: Sequence[SourceRecord | SkippedRecord | SourceBatch]) -> None:
        """Note records that were sent. They include no batches if the task is told of commits: see
        `SourceBatches`."""
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
        """Return the records that are settled since the last call, each once. A lost record has no
        metadata."""
        lost, self.lost = self.lost, []
        sent = ((self._sent.pop(number), place) for number, place in places)
        return [
            *((record, place) for record, place in sent if record is not None),
            *((record, None) for record in lost),
        ]
