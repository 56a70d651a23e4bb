"""A task logs once a minute whether its records move."""

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.task.body_bench import BodyBench
from support.task.sink_records import fill

from headgate.connector.api import SinkRecord, SinkTask, SourceRecord, SourceTask
from headgate.task.messages import TaskKind

OFTEN = {"headgate.log.progress.ms": "20"}
SENT = " more sent, not committed yet"
LINE = re.compile(r"c-0: ([\d,]+) records and ([\d,]+) commits in \d+ s; ([\d,]+) records since .*")


class Source(SourceTask):
    """Gives three records, then nothing."""

    def start(self, config: Mapping[str, str]) -> None:
        self.left = 3

    def poll(self) -> Sequence[SourceRecord]:
        if not self.left:
            return ()
        self.left -= 1
        return [SourceRecord({"p": 1}, {"n": self.left}, "t", "x")]


class Busy(SourceTask):
    """Always has one more record."""

    def poll(self) -> Sequence[SourceRecord]:
        return [SourceRecord({"p": 1}, {"n": 1}, "t", "x")]


class Sink(SinkTask):
    """Takes everything, and lets offsets be committed up to `safe`."""

    safe = 2

    def put(self, records: Sequence[SinkRecord]) -> None: ...

    def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        return {place: min(end, self.safe) for place, end in offsets.items()}


def found(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int, int, str]]:
    lines = [LINE.fullmatch(record.getMessage()) for record in caplog.records]
    return [(int(m[1]), int(m[2]), int(m[3]), m[0]) for m in lines if m is not None]


def test_a_source_tells_records_and_commits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate.task")
    bench = BodyBench(tmp_path, Source, {}, settings=OFTEN).start()
    bench.until(lambda: found(caplog) and found(caplog)[-1][2] == 3)
    bench.until(lambda: found(caplog)[-1][:3] == (0, 0, 3))  # and nothing since
    bench.stop()
    told = found(caplog)
    assert sum(line[0] for line in told) == 3
    assert sum(line[1] for line in told) >= 1
    assert "lag" not in told[-1][3]


def test_a_sink_tells_its_lag(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headgate.task")
    fill(tmp_path, [b"1", b"2", b"3"])
    bench = BodyBench(tmp_path, Sink, {"topics": "t"}, kind=TaskKind.SINK, settings=OFTEN).start()
    bench.until(lambda: found(caplog) and found(caplog)[-1][3].endswith("; lag 1"))
    bench.stop()


def test_a_source_tells_what_no_commit_covers_yet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without exactly-once a busy source commits once a minute, but its records move all the
    time."""
    caplog.set_level(logging.INFO, "headgate.task")
    bench = BodyBench(tmp_path, Busy, {}, settings=OFTEN, exactly_once=False).start()
    bench.until(lambda: any(SENT in record.getMessage() for record in caplog.records))
    bench.stop()
    assert found(caplog)[-1][2] == 0


@pytest.mark.parametrize("every", ["0", "60000"])
def test_it_is_told_no_more_often_than_asked(
    every: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate.task")
    settings = {"headgate.log.progress.ms": every}
    bench = BodyBench(tmp_path, Source, {}, settings=settings).start()
    bench.until(lambda: bench.progress.idle)
    bench.stop()
    assert found(caplog) == []
