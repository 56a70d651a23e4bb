"""A transform or a task names a topic that no log can have. That harms its record alone."""

from pathlib import Path

import pyarrow as pa
import pytest
from support.task.body_bench import BodyBench, source_offsets
from support.task.letters import HEADERS, LETTERS, headers_of, records_of
from support.task.scripted_source import KEY, record, run_dry, scripted

from headgate.connector.api import SourceRecord
from headgate.connector.batches import RowOffsets, SourceBatch
from headgate.connector.transforms import make_transforms
from headgate.task.messages import TaskOutcome
from headgate_arrow import arrow_types, rows

BAD = ("a b/../c", ".", "..", "x" * 250, "käse", "a:b", "a\n")
REASON = "is no name of a topic"
TYPED = {"value.converter": "TypedConverter"}
QUEUE = {LETTERS: "letters", HEADERS: "true", "errors.tolerance": "all"}
ROUTED = {
    "transforms": "r",
    "transforms.r.type": "RegexRouter",
    "transforms.r.regex": "odd-(.*)",
    "transforms.r.replacement": "$1 of a day",
}


def to(topic: str, n: int) -> SourceRecord:
    found = record(n)
    found.topic = topic
    return found


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_it_is_a_dead_letter_and_its_neighbours_are_sent(
    tmp_path: Path, name: str, exactly_once: bool
) -> None:
    task = scripted([to("t", 1), to(name, 2), to(name, 3), to("t", 4)], [to(name, 5)])
    made = BodyBench(tmp_path, task, QUEUE, exactly_once=exactly_once)
    run_dry(made)
    assert made.stop().outcome is TaskOutcome.STOPPED, made.reports
    assert [one.value for one in records_of(tmp_path, "t")] == [b"1", b"4"]
    letters = records_of(tmp_path, "letters")
    assert [one.value for one in letters] == [b"2", b"3", b"5"]
    headers = headers_of(letters[0])
    assert headers["__connect.errors.stage"] == "TRANSFORMATION"
    assert REASON in (headers["__connect.errors.exception.message"] or "")
    assert (made.progress.records, made.progress.skipped) == (2, 3)
    assert source_offsets(tmp_path) == {KEY: b'{"n":5}'}


def test_what_a_router_makes_is_told_with_its_record(tmp_path: Path) -> None:
    chain = make_transforms(ROUTED)
    task = scripted([to("t", 1), to("odd-sales", 2)])
    ended = BodyBench(tmp_path, task, ROUTED, chain=chain).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert f"topic 'sales of a day' {REASON}" in ended.reason
    assert "(source partition {'file': 'a'}, offset {'n': 2})" in ended.reason
    tolerant = {**ROUTED, "errors.tolerance": "all"}
    made = BodyBench(tmp_path / "2", task, tolerant, chain=chain)
    run_dry(made)
    assert made.stop().outcome is TaskOutcome.STOPPED, made.reports
    assert [one.value for one in records_of(tmp_path / "2", "t")] == [b"1"]


@pytest.mark.parametrize("converter", ["TypedConverter", "JsonConverter"])
def test_rows_of_a_batch_are_passed_over_one_by_one(tmp_path: Path, converter: str) -> None:
    table = pa.table({"n": range(2, 5)})
    schema = arrow_types.struct_schema(table.schema)
    batch = SourceBatch(
        {"file": "a"}, RowOffsets({"n": range(2, 5)}), "a b", rows.record_batch(table), schema
    )
    config = {"value.converter": converter, "errors.tolerance": "all"}
    task = scripted([to("t", 1), batch, to("t", 5)])
    made = BodyBench(tmp_path, task, config)
    run_dry(made)
    assert made.stop().outcome is TaskOutcome.STOPPED, made.reports
    assert len(records_of(tmp_path, "t")) == 2
    assert (made.progress.records, made.progress.skipped) == (2, 3)
    assert source_offsets(tmp_path) == {KEY: b'{"n":5}'}
