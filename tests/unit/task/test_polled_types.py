"""What a connector's mistakes in `poll` are called."""

from pathlib import Path
from typing import Any

import pytest
from support.depth import first_rows
from support.task.body_bench import BodyBench
from support.task.scripted_source import Scripted, record, run_dry

from headgate.connector.api import SourceRecord
from headgate.task.messages import TaskOutcome


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
    """Whatever is tolerated: no record is to blame."""

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


def test_a_generator_and_a_tuple_are_batches(tmp_path: Path) -> None:
    class Given(Scripted):
        batches: Any = [(one for one in [record(1)]), (record(2),)]  # noqa: RUF012

    bench = BodyBench(tmp_path, Given)
    run_dry(bench)
    bench.stop()
    assert bench.progress.records == 2
