"""A connector that returns wrong types from `poll` fails with an error that names them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from support.depth import first_rows
from support.task.body_bench import BodyBench
from support.task.scripted_source import Scripted, record, run_dry

from headgate.connector.api import SourceRecord
from headgate.task.messages import TaskOutcome

TYPED = {"key.converter": "TypedConverter", "value.converter": "TypedConverter"}
TRANSFORM = {
    "transforms": "x",
    "transforms.x.type": "RegexRouter",
    "transforms.x.regex": "t",
    "transforms.x.replacement": "t",
}


@pytest.mark.parametrize(
    ("given", "said"),
    first_rows(
        5,
        [
            ({"n": 1}, "Wrong.poll() returned a value of type dict: {'n': 1}; expected None or an"),
            ("a line", "Wrong.poll() returned a value of type str: 'a line'; expected None"),
            (7, "Wrong.poll() returned a value of type int: 7; expected None"),
            (record(1), "Wrong.poll() returned one SourceRecord; expected None or an iterable"),
            ([{"n": 1}], "Wrong.poll() gave a value of type dict: {'n': 1}; expected None or an"),
            (["x" * 500], "Wrong.poll() gave a value of type str: 'xxxxxx"),
            ([None], "Wrong.poll() gave a value of type NoneType: None"),
            (
                [SourceRecord({"file": "a"}, {"n": 3}, None, "v")],  # type: ignore[arg-type]
                "a record has the topic None, expected its name as text",
            ),
            (
                [SourceRecord({"file": "a"}, {"n": 3}, {"t": 1}, "v")],  # type: ignore[arg-type]
                "a record has the topic {'t': 1}, expected its name as text",
            ),
            (
                [SourceRecord({"file": "a"}, {"n": 3}, "", "v")],
                "source partition {'file': 'a'}, of",
            ),
        ],
    ),
)
def test_what_is_no_batch_of_records_fails_the_task_by_name(
    tmp_path: Path, given: Any, said: str
) -> None:
    """The task fails whatever is tolerated, since no record is the cause."""

    class Wrong(Scripted):
        batches = [given]  # noqa: RUF012

    ended = BodyBench(tmp_path, Wrong, {"errors.tolerance": "all"}).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert said in ended.reason, ended.reason
    assert "SourceRecord" in ended.reason
    assert len(ended.reason) < 300


@pytest.mark.parametrize(
    ("partition", "offset"), [("p", {"n": 1}), (7, {"n": 1}), ({"p": 1}, "n"), ({"p": 1}, [1])]
)
def test_a_partition_or_offset_that_is_no_mapping_fails_the_task_by_name(
    tmp_path: Path, partition: Any, offset: Any
) -> None:
    class Wrong(Scripted):
        batches: Any = [[SourceRecord(partition, offset, "t", "v")]]  # noqa: RUF012

    ended = BodyBench(tmp_path, Wrong, {"errors.tolerance": "all"}).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "expected a mapping (a dict)" in ended.reason, ended.reason


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"headers": {"h": "v"}}, "headers a value of type dict: {'h': 'v'}; expected pairs"),
        ({"headers": {"ab": "v"}}, "headers a value of type dict: {'ab': 'v'}; expected pairs"),
        ({"headers": [("h",)]}, "headers a value of type list: [('h',)]; expected pairs"),
        ({"headers": 5}, "headers a value of type int: 5; expected pairs"),
        ({"value_schema": "string"}, "value_schema a value of type str: 'string'; expected a Sch"),
        ({"key": "k", "key_schema": 5}, "key_schema a value of type int: 5; expected a Schema"),
        ({"partition": "0"}, "partition a value of type str: '0'; expected a whole number"),
        ({"timestamp_ms": "now"}, "timestamp_ms a value of type str: 'now'; expected millisec"),
        ({"timestamp_ms": 1.7e12}, "timestamp_ms a value of type float: 1700000000000.0; expec"),
        ({"timestamp_ms": 1 << 70}, "timestamp_ms a value of type int: 1180591620717411303424"),
    ],
    ids=str,
)
def test_a_field_of_a_type_that_no_record_has_fails_the_task_by_name(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    """That holds also for a record after a correct one, and with a transform in between."""
    for number, config in enumerate(({}, TRANSFORM)):
        wrong = replace(record(2), **changed)

        class Wrong(Scripted):
            batches: Any = [[record(1), wrong]]  # noqa: RUF012

        given = {"errors.tolerance": "all", **TYPED, **config}
        ended = BodyBench(tmp_path / str(number), Wrong, given).start().wait()
        assert ended.outcome is TaskOutcome.FAILED
        assert said in ended.reason, ended.reason
        assert "source partition {'file': 'a'}, offset {'n': 2}" in ended.reason


def test_a_partition_of_another_type_is_not_waited_for(tmp_path: Path) -> None:
    """The log does not know it, and might have been deleted."""

    class Wrong(Scripted):
        batches: Any = [[replace(record(1), partition=numpy.int8(0))]]  # noqa: RUF012

    ended = BodyBench(tmp_path, Wrong).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "partition a value of type int8: " in ended.reason


def test_a_whole_number_of_another_type_is_a_time(tmp_path: Path) -> None:
    numbered = replace(record(1), timestamp_ms=numpy.int64(7))

    class Given(Scripted):
        batches: Any = [[numbered]]  # noqa: RUF012

    bench = BodyBench(tmp_path, Given)
    run_dry(bench)
    bench.stop()
    assert bench.progress.records == 1


def test_a_generator_and_a_tuple_are_batches(tmp_path: Path) -> None:
    class Given(Scripted):
        batches: Any = [(one for one in [record(1)]), (record(2),)]  # noqa: RUF012

    bench = BodyBench(tmp_path, Given)
    run_dry(bench)
    bench.stop()
    assert bench.progress.records == 2
