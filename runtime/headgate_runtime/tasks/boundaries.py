"""What a source task asks of its transactions (`transaction.boundary` = connector)."""

from collections.abc import Sequence
from dataclasses import replace

from headgate.connector.api import SourceRecord
from headgate.task.steps import Ask, Boundary, Polled


class TransactionContext:
    """Collects what the connector asks while it polls. Source: WorkerTransactionContext."""

    def __init__(self) -> None:
        self.asked: list[tuple[int | None, Ask]] = []
        """id of a record, None for the end of the batch."""

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        self.asked.append((None if record is None else id(record), Ask.COMMIT))

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        self.asked.append((None if record is None else id(record), Ask.ABORT))


class Boundaries:
    """What the connector asked while it polled, as positions among the sendable records."""

    def __init__(self, transaction: TransactionContext | None) -> None:
        self._conflict = False
        """Both were asked for in one place. (At one position they may meet by the records between
        two places being dropped: then the second ends nothing.)"""
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
        """`polled` with its boundaries; not `whole`: more of the batch is to come."""
        if whole:
            self._add(polled.records, self._at_end)
        return replace(polled, boundaries=self._found, conflict=self._conflict)

    def _add(self, sendable: int, asked: Sequence[Ask]) -> None:
        self._conflict |= len(set(asked)) > 1
        for ask in asked:
            boundary = Boundary(sendable, ask)
            if not self._found or self._found[-1] != boundary:
                self._found.append(boundary)
