"""Records that a sink task cannot use become dead letters with Connect's headers, also by the
errant record reporter.

Offsets are committed once the letters are in the log.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.task.body_bench import BodyBench, visible
from support.task.letters import HEADERS, LETTERS, HeldLog, headers_of, records_of
from support.task.sink_records import committed, fill
from support.task.value_sink import Values

from headgate.connector.api import SinkRecord
from headgate.connector.transforms import make_transforms
from headgate.task.messages import TaskKind, TaskOutcome

JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
QUEUE = {LETTERS: "letters", HEADERS: "true", "errors.tolerance": "all"}


def sink(folder: Path, task: type[Values], config: Mapping[str, str], **more: Any) -> BodyBench:
    task.taken = []
    given = {"topics": "t", **config}
    return BodyBench(folder, task, given, kind=TaskKind.SINK, **more)


def test_bad_records_go_to_the_queue_as_they_were_and_the_rest_to_the_task(tmp_path: Path) -> None:
    fill(tmp_path, [b"1", b"{", b"3", b"oops"], headers=(("h", b"own"), ("none", None)))
    bench = sink(tmp_path, Values, {**JSON, **QUEUE})
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 4})
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert Values.taken == [1, 3]
    assert (bench.progress.records, bench.progress.skipped) == (4, 2)
    first, second = records_of(tmp_path, "letters")
    assert (first.key, first.value, second.value) == (None, b"{", b"oops")
    assert first.headers[:2] == (("h", b"own"), ("none", None))
    told = dict(headers_of(first))
    trace = told.pop("__connect.errors.exception.stacktrace") or ""
    assert trace.startswith("Traceback (most recent call last)")
    message = told.pop("__connect.errors.exception.message") or ""
    assert message.startswith(
        "Converting byte[] to Kafka Connect data failed due to serialization error"
    )
    assert told == {
        "h": "own",
        "none": None,
        "__connect.errors.topic": "t",
        "__connect.errors.partition": "0",
        "__connect.errors.offset": "1",
        "__connect.errors.connector.name": "c",
        "__connect.errors.task.id": "0",
        "__connect.errors.stage": "VALUE_CONVERTER",
        "__connect.errors.class.name": "org.apache.kafka.connect.json.JsonConverter",
        "__connect.errors.exception.class.name": "org.apache.kafka.connect.errors.DataException",
    }
    assert [name for name, _ in first.headers[2:]] == [
        f"__connect.errors.{name}"
        for name in (
            *("topic", "partition", "offset", "connector.name", "task.id", "stage", "class.name"),
            *("exception.class.name", "exception.message", "exception.stacktrace"),
        )
    ]


@pytest.mark.exhaustive
def test_without_context_headers_a_letter_is_the_record(tmp_path: Path) -> None:
    fill(tmp_path, [b"{"], headers=(("h", b"own"),))
    bench = sink(tmp_path, Values, {**JSON, **QUEUE, HEADERS: "false"})
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 1})
    bench.stop()
    (letter,) = records_of(tmp_path, "letters")
    (raw,) = records_of(tmp_path, "t")
    assert (letter.key, letter.value, letter.headers) == (raw.key, raw.value, raw.headers)
    assert letter.timestamp_ms == raw.timestamp_ms


def test_a_transform_that_fails_is_named_by_the_class_of_its_config(tmp_path: Path) -> None:
    fill(tmp_path, [b'{"n":1}', b'{"n":"x"}'])
    config = {
        **JSON,
        **QUEUE,
        "transforms": "wrap,typed",
        "transforms.wrap.type": "HoistField$Key",
        "transforms.wrap.field": "k",
        "transforms.typed.type": "Cast$Value",
        "transforms.typed.spec": "n:int32",
    }
    bench = sink(tmp_path, Values, config, chain=make_transforms(config))
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 2})
    bench.stop()
    (letter,) = records_of(tmp_path, "letters")
    told = headers_of(letter)
    assert told["__connect.errors.stage"] == "TRANSFORMATION"
    assert told["__connect.errors.class.name"] == "org.apache.kafka.connect.transforms.Cast$Value"
    assert letter.value == b'{"n":"x"}'


def test_offsets_wait_until_the_dead_letters_are_in_the_log(tmp_path: Path) -> None:
    fill(tmp_path, [b"1", b"{"])
    log = HeldLog()
    log.held.set()
    bench = sink(tmp_path, Values, {**JSON, **QUEUE}, open_transport=log)
    bench.start().until(log.tried.is_set)
    bench.until(lambda: Values.taken == [1])
    assert committed(tmp_path) == {}
    log.held.clear()
    bench.until(lambda: committed(tmp_path) == {("t", 0): 2})
    bench.stop()
    assert visible(tmp_path, "letters") == ["{"]


def test_with_a_tolerance_of_none_the_letter_is_written_and_the_task_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Connect does the same: its operator reports before it looks at the tolerance."""
    fill(tmp_path, [b"{", b"oops"])
    config = {**JSON, **QUEUE, "errors.tolerance": "none"}
    ended = sink(tmp_path, Values, config).start().wait()
    assert (ended.outcome, committed(tmp_path)) == (TaskOutcome.FAILED, {})
    assert visible(tmp_path, "letters") == ["{"]
    assert any("errors.tolerance is none" in line for line in caplog.messages)


def test_the_log_shows_errors_and_where_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, [b"{"])
    config = {
        **JSON,
        "errors.tolerance": "all",
        "errors.log.enable": "true",
        "errors.log.include.messages": "true",
    }
    bench = sink(tmp_path, Values, config)
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 1})
    bench.stop()
    (line,) = (line for line in caplog.messages if line.startswith("Error encountered"))
    assert line.startswith(
        "Error encountered in task c-0. Executing stage 'VALUE_CONVERTER' with class "
        "'org.apache.kafka.connect.json.JsonConverter', where consumed record is {topic='t', "
        "partition=0, offset=0, timestamp="
    )


class Reporting(Values):
    """Reports each value below zero."""

    waits = False

    def put(self, records: Sequence[SinkRecord]) -> None:
        reporter = self.context.errant_record_reporter()
        assert reporter is not None
        for record in records:
            if record.value < 0:
                reported = reporter.report(record, ValueError("below zero"))
                if self.waits:
                    assert not reported.done()
                    reported.result()
                    assert reported.done()
        super().put([record for record in records if record.value >= 0])


@pytest.mark.parametrize("waits", [False, True])
def test_a_task_reports_records_that_its_own_system_refuses(tmp_path: Path, waits: bool) -> None:
    fill(tmp_path, [b"1", b"-2", b"3"])
    Reporting.waits = waits
    config = {
        **JSON,
        **QUEUE,
        "transforms": "away",
        "transforms.away.type": "RegexRouter",
        "transforms.away.regex": "t",
        "transforms.away.replacement": "elsewhere",
    }
    bench = sink(tmp_path, Reporting, config, chain=make_transforms(config))
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 3})
    bench.until(lambda: bench.progress.records == 3)
    bench.stop()
    assert Reporting.taken == [1, 3]
    assert (bench.progress.skipped, "below zero" in bench.progress.detail) == (1, True)
    (letter,) = records_of(tmp_path, "letters")
    assert letter.value == b"-2"
    told = headers_of(letter)
    assert told["__connect.errors.topic"] == "t"
    assert told["__connect.errors.stage"] == "TASK_PUT"
    assert told["__connect.errors.class.name"] == "org.apache.kafka.connect.sink.SinkTask"
    assert told["__connect.errors.exception.class.name"] == "builtins.ValueError"
    assert told["__connect.errors.exception.message"] == "below zero"


@pytest.mark.exhaustive
def test_what_a_task_reports_holds_offsets_back_too(tmp_path: Path) -> None:
    fill(tmp_path, [b"1", b"-2"])
    Reporting.waits = False
    log = HeldLog()
    log.held.set()
    bench = sink(tmp_path, Reporting, {**JSON, **QUEUE}, open_transport=log)
    bench.start().until(log.tried.is_set)
    assert committed(tmp_path) == {}
    log.held.clear()
    bench.until(lambda: committed(tmp_path) == {("t", 0): 2})
    bench.stop()


def test_a_report_fails_the_task_where_nothing_is_tolerated(tmp_path: Path) -> None:
    fill(tmp_path, [b"-2"])
    ended = sink(tmp_path, Reporting, {**JSON, LETTERS: "letters"}).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "Tolerance exceeded in error handler: below zero" in ended.reason
    assert committed(tmp_path) == {}


def test_without_a_queue_and_a_log_there_is_no_reporter(tmp_path: Path) -> None:
    seen: list[object] = []

    class Asking(Values):
        def start(self, config: Mapping[str, str]) -> None:
            seen.append(self.context.errant_record_reporter())

    bench = sink(tmp_path, Asking, {"errors.tolerance": "all"})
    bench.start().until(lambda: seen)
    bench.stop()
    assert seen == [None]


def test_a_queue_that_refuses_a_letter_fails_the_task(tmp_path: Path) -> None:
    from headgate.ports import Ack
    from headgate_embedded import open_transport

    def refusing(spec: Any) -> Any:
        transport = open_transport(spec.transport)
        made = transport.record_log.producer

        def producer(*args: Any) -> Any:
            inner = made(*args)
            inner.acks = lambda: [Ack(0, 0, "Broker: Message size too large")]
            return inner

        transport.record_log.producer = producer  # type: ignore[method-assign]
        return transport

    fill(tmp_path, [b"{"])
    ended = sink(tmp_path, Values, {**JSON, **QUEUE}, open_transport=refusing).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "could not be written to the dead letter queue letters: Broker: Mess" in ended.reason
    assert committed(tmp_path) == {}
