"""A record that is too large for the embedded log is reported with its topic, place in the source,
size, and the setting.

`tests/e2e/test_kafka_dead_letters.py` has the same on Kafka.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.task.body_bench import BodyBench
from support.task.scripted_source import record, run_dry, scripted
from support.task.sink_records import committed, fill

from headgate.connector.api import SinkRecord, SinkTask
from headgate.task.messages import TaskKind, TaskOutcome, TaskSpec
from headgate_embedded import EmbeddedTransport, open_transport

TOLD = ("topic t", "1001 bytes", "at most 1000", "max.message.bytes", "{'file': 'a'}", "{'n': 2}")


def small(spec: TaskSpec) -> EmbeddedTransport:
    return open_transport({**spec.transport, "log.max.message.bytes": "1000"})


def bench(folder: Path, task: Any, config: dict[str, str], **more: Any) -> BodyBench:
    return BodyBench(folder, task, config, open_transport=small, **more)


def values(folder: Path) -> list[int]:
    """Return the lengths of the values in the topic."""
    with closing(open_transport({"path": str(folder)})) as transport:
        end = transport.record_log.end_offsets(["t"]).get(("t", 0), 0)
        return [len(r.value or b"") for r in transport.record_log.read("t", 0, 0, end, 100)]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_it_fails_the_task_with_its_place(tmp_path: Path, exactly_once: bool) -> None:
    given = [record(1), record(2, value="x" * 1_001), record(3)]
    ended = bench(tmp_path, scripted(given), {}, exactly_once=exactly_once).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert [part for part in TOLD if part not in ended.reason] == []
    assert 1_001 not in values(tmp_path)


def test_without_transactions_it_costs_itself_alone_where_that_is_tolerated(
    tmp_path: Path,
) -> None:
    given = [record(1), record(2, value="x" * 1_001), record(3)]
    made = bench(tmp_path, scripted(given), {"errors.tolerance": "all"}, exactly_once=False)
    run_dry(made)
    assert made.stop().outcome is TaskOutcome.STOPPED, made.reports
    assert values(tmp_path) == [1, 1]


class Refusing(SinkTask):
    """Reports each record."""

    def put(self, records: Any) -> None:
        reporter = self.context.errant_record_reporter()
        assert reporter is not None
        for one in records:
            assert isinstance(one, SinkRecord)
            reporter.report(one, ValueError("bad"))


def test_a_letter_that_is_too_large_for_its_queue_is_not_committed(tmp_path: Path) -> None:
    """The records were written while the log took more."""
    fill(tmp_path, [b"x" * 1_001])
    config = {
        "topics": "t",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    ended = bench(tmp_path, Refusing, config, kind=TaskKind.SINK).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    for part in ("queue letters", "1001 bytes", "at most 1000", "Their offsets are not committed"):
        assert part in ended.reason, part
    assert not any(committed(tmp_path).values())
