"""Dead letters of planned batches while the log is away: none is lost, and none is written
twice."""

from collections.abc import Sequence
from typing import Any

import pytest

from headgate.connector.api import DataError, RetriableError, SinkRecord
from headgate.ports import ConsumerRecord, TransportError
from headgate_spark.bad_records import READ_MAX, BadRecords

PLACE = ("t", 0)
BAD = {3: "not JSON", 5: "not JSON", READ_MAX + 7: "not UTF-8"}


class Log:
    """Has a record at each offset, and gives two at a time."""

    def read(
        self, topic: str, partition: int, start: int, end: int, limit: int
    ) -> Sequence[ConsumerRecord]:
        assert limit == READ_MAX
        return [
            ConsumerRecord(topic, partition, offset, None, b"x", (), 0)
            for offset in range(start, min(start + 2, end))
        ]


class Context:
    """The context of a task, with a reporter whose log cannot be reached when `away` says so."""

    def __init__(self, *away: str) -> None:
        self.log = Log()
        self.away = list(away)
        self.sent: list[int] = []
        self.in_log = 0
        """How many of those that were sent are in the log for sure."""

    def errant_record_reporter(self) -> "Context":
        return self

    def report(self, record: SinkRecord, error: BaseException) -> "Context":
        self.meets("send")
        assert record.original is not None
        assert str(error) == BAD[record.offset]
        self.sent.append(record.offset)
        return self

    def result(self) -> None:
        self.meets("result")
        self.in_log = len(self.sent)

    def meets(self, step: str) -> None:
        if self.away and self.away[0] == step:
            self.away.pop(0)
            raise TransportError("brokers are away")


def subject(context: Any) -> BadRecords:
    return BadRecords(context)


@pytest.mark.parametrize("away", [(), ("send",), ("result",), ("send", "result", "result")])
def test_letters_are_in_the_log_once_before_the_batch_commits(away: tuple[str, ...]) -> None:
    context = Context(*away)
    bad = subject(context)
    for _ in away:
        with pytest.raises(RetriableError, match="brokers are away"):
            bad.report(PLACE, BAD)
    bad.report(PLACE, BAD)
    bad.report(PLACE, BAD)  # the batch is tried again
    assert context.sent == sorted(BAD)
    assert context.in_log == len(BAD)


def test_a_record_behind_a_commit_is_reported_when_it_comes_again() -> None:
    context = Context()
    bad = subject(context)
    bad.report(PLACE, BAD)
    bad.committed(PLACE, 5)
    bad.report(PLACE, {3: BAD[3], 5: BAD[5]})
    assert context.sent == [*sorted(BAD), 3]


def test_one_that_fails_the_task_has_its_letter() -> None:
    context = Context()

    def refuses(record: SinkRecord, error: BaseException) -> Context:
        context.sent.append(record.offset)
        raise DataError("Tolerance exceeded")

    context.report = refuses  # type: ignore[method-assign]
    subject(context).failed(PLACE, {3: BAD[3]})
    assert context.sent == [3]
