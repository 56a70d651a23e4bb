"""A source task's requests about its transactions (`transaction.boundary` = connector)."""

from collections.abc import Sequence
from dataclasses import replace

from headgate.connector.api import SourceRecord
from headgate.task.steps import Ask, Boundary, Polled


class TransactionContext:
    """Collects the connector's requests while it polls. Source: WorkerTransactionContext."""

    def __init__(self) -> None:
        self.asked: list[tuple[int | None, Ask]] = []
        """Requests, each with the id of its record, or None for the end of the batch."""

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        self.asked.append((None if record is None else id(record), Ask.COMMIT))

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        self.asked.append((None if record is None else id(record), Ask.ABORT))


class Boundaries:
    """A poll's requests, as positions among the records to send."""

    def __init__(self, transaction: TransactionContext | None) -> None:
        self._conflict = False
        """A commit and an abort were asked for in one place. (If the records between two places are
        dropped, both may meet at one position without a conflict. The second then ends nothing.)"""
        self.by_record: dict[int, list[Ask]] = {}
        self._at_end: list[Ask] = []
        self._found: list[Boundary] = []
        for record, ask in transaction.asked if transaction is not None else ():
            if record is None:
                self._at_end.append(ask)
            else:
                self.by_record.setdefault(record, []).append(ask)

    def reached(self, record: object, sendable: int) -> None:
        self._add(sendable, self.by_record.get(id(record), ()))

    def told(self, polled: Polled, *, whole: bool = True) -> Polled:
        """Return `polled` with its boundaries. If not `whole`, more of the batch follows."""
        if whole:
            self._add(polled.records, self._at_end)
        return replace(polled, boundaries=self._found, conflict=self._conflict)

    def _add(self, sendable: int, asked: Sequence[Ask]) -> None:
        self._conflict |= len(set(asked)) > 1
        for ask in asked:
            boundary = Boundary(sendable, ask)
            if not self._found or self._found[-1] != boundary:
                self._found.append(boundary)
