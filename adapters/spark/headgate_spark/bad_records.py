"""Dead letters of a sink of planned batches.

Executors report the offsets of records that could not be written. The task reads these records
again and reports them, before the batch commits. So a kill between the two writes a letter twice,
and loses none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from headgate.connector.api import (
    DataError,
    ErrantRecordReporter,
    PlannedSinkTaskContext,
    Reported,
    RetriableError,
    SinkRecord,
)
from headgate.ports import ConsumerRecord, TopicPartition, TransportError

READ_MAX: Final = 2_000
"""Most offsets that are read at a time."""


class BadRecords:
    """Reports the records of batches that could not be written. For one thread."""

    def __init__(self, context: PlannedSinkTaskContext) -> None:
        self._log = context.log
        self._reporter: ErrantRecordReporter | None = context.errant_record_reporter()
        self._reported: dict[TopicPartition, set[int]] = {}
        """Offsets that were reported, and are not in a committed batch yet. A batch that is tried
        again does not report them a second time."""
        self._last: Reported | None = None
        """The last report whose letter may not be in the log yet."""

    @property
    def reports(self) -> bool:
        """Whether bad records are reported one by one."""
        return self._reporter is not None

    def report(self, place: TopicPartition, bad: Mapping[int, str]) -> None:
        """Report the records at the offsets of `bad`, and wait until their dead letters are in the
        log.

        Raises:
            DataError: `errors.tolerance` is none.
            RetriableError: the log could not be reached. Call again.
        """
        if self._reporter is None or not bad:
            return
        known = self._reported.setdefault(place, set())
        try:
            for raw in self._records(place, sorted(set(bad) - known)):
                self._last = self._reporter.report(_sink_record(raw), DataError(bad[raw.offset]))
                known.add(raw.offset)
            if self._last is not None:
                self._last.result()
                self._last = None
        except TransportError as error:
            raise RetriableError(f"dead letters could not be written: {error}") from error

    def failed(self, place: TopicPartition, bad: Mapping[int, str]) -> None:
        """Report a record for which the task fails."""
        with suppress(DataError):
            self.report(place, bad)

    def committed(self, place: TopicPartition, end: int) -> None:
        """Forget the records before `end`: they are not read again."""
        known = self._reported.get(place)
        if known:
            self._reported[place] = {offset for offset in known if offset >= end}

    def _records(self, place: TopicPartition, offsets: Sequence[int]) -> Iterator[ConsumerRecord]:
        for near in _near(offsets):
            wanted, start, end = set(near), near[0], near[-1] + 1
            while start < end:
                found = self._log.read(*place, start, end, READ_MAX)
                if not found:
                    break
                yield from (record for record in found if record.offset in wanted)
                start = found[-1].offset + 1


def _near(offsets: Iterable[int]) -> Iterator[list[int]]:
    """Yield the offsets in groups, each near enough for one read."""
    group: list[int] = []
    for offset in offsets:
        if group and offset - group[0] >= READ_MAX:
            yield group
            group = []
        group.append(offset)
    if group:
        yield group


def _sink_record(raw: ConsumerRecord) -> SinkRecord:
    return SinkRecord(
        *(raw.topic, raw.partition, raw.offset, raw.key, raw.value, raw.headers),
        *(raw.timestamp_ms, None, None, (), raw),
    )
