"""Types of CSV columns are inferred: no text is changed, and the types stay."""

import datetime
import gzip
import json
import random
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.task.directory_runs import by_batches, run
from support.task.source_tasks import Offsets, Run, reasons, values

from headgate.connector.api import OffsetUpdate, SourceRecord
from headgate.connector.config import ConfigError
from headgate_connectors.directory import BadFileError, DirectorySource
from headgate_connectors.files.inferred_types import InferredTypes
from headgate_connectors.formats.csv_inference import ANEW, as_written, inferred
from headgate_connectors.formats.csv_types import column

INFER = {"csv.types": "infer"}


def kind(*texts: str, null: str | None = None) -> str:
    return inferred(["c"], [[text] for text in texts], null)["c"]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "-20", "0"], "int64"),
        (["007", "8"], "string"),
        (["+1"], "string"),
        (["-0"], "string"),
        (["1", "1.5"], "string"),
        (["1_000"], "string"),
        (["١"], "string"),
        (["9223372036854775807"], "int64"),
        (["9223372036854775808"], "string"),
        (["12345678901234567890123456789012345678901234567890"], "string"),
        (["1.5", "-2.25", "0.1"], "float64"),
        (["0.1", "0.10"], "string"),
        (["1.50", "2.25"], "decimal(38,2)"),
        (["-0.50", "2.25"], "decimal(38,2)"),
        (["1.50", "-0.00"], "string"),
        (["0.1234567890123456789"], "decimal(38,19)"),
        (["1e5"], "string"),
        (["1.5e5"], "string"),
        (["NaN"], "string"),
        (["1.5", "NaN"], "string"),
        (["Infinity"], "string"),
        (["true", "false"], "boolean"),
        (["True"], "string"),
        (["2026-11-26", "0001-01-01"], "date"),
        (["2026-02-30"], "string"),
        (["26.11.2026"], "string"),
        (["2026-11-26T07:05:09.120Z"], "timestamp"),
        (["2026-11-26T07:05:09Z"], "string"),
        (["2026-11-26T07:05:09.120+01:00"], "string"),
        (["07:05"], "string"),
        ([""], "string"),
        (["1", ""], "string"),
        ([" 1"], "string"),
        ([], "string"),
    ],
    ids=str,
)
def test_a_type_is_inferred_only_where_no_text_changes(texts: list[str], expected: str) -> None:
    assert inferred(["c"], [[text] for text in texts], None)["c"] == expected


def test_nulls_do_not_count() -> None:
    assert kind("1", "", "2", null="") == "int64"
    assert kind("", null="") == "string"


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.decimals(allow_nan=True, allow_infinity=True).map(str),
    st.floats().map(repr),
    st.integers(0, 10**6).map("{:07}".format),
    st.dates().map(str),
    st.datetimes().map(lambda at: at.isoformat(timespec="milliseconds") + "Z"),
    st.booleans().map(lambda one: str(one).lower()),
    st.text(string.digits + "+-.eETZ:_", max_size=12),
    st.text(max_size=5),
)


@given(st.lists(NUMBERS, min_size=1, max_size=4))
def test_what_was_inferred_is_written_back_as_it_was_or_stayed_text(texts: list[str]) -> None:
    """The values are written without the module: whole numbers, decimals and dates by `str`."""
    found = kind(*texts)
    parse = as_written(found, column(found, None)[1])
    for text in texts:
        value = parse(text)
        if found == "boolean":
            back = str(value).lower()
        elif found == "timestamp":
            back = value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        elif found.startswith("decimal"):
            back = f"{value:f}"
        else:
            back = str(value)
        assert back == text


GOOD = ["1", "1.5", "1.50", "true", "2026-11-26", "2026-11-26T07:05:09.120Z"]


@given(NUMBERS.filter(lambda text: not set(text) & set('\r\n",\0\ufeff')))
def test_batches_and_records_take_the_same_texts(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    """The first file gives each column a type, the next one has the text in each of them once."""
    folder = tmp_path_factory.mktemp("in")
    head, good = "i,f,d,b,y,t\n", ",".join(GOOD) + "\n"
    (folder / "a.csv").write_text(head + good)
    odd = [[*GOOD[:at], text, *GOOD[at + 1 :]] for at in range(len(GOOD))]
    rows = [good * 110 + ",".join(row) + "\n" for row in odd]
    (folder / "b.csv").write_text(head + "".join(rows))
    one_by_one = run(folder, **INFER).rest()
    batches = by_batches(folder, **INFER)
    assert values(batches) == values(one_by_one)
    assert reasons(batches) == reasons(one_by_one)


def types_of(records: list[Any]) -> set[str]:
    schemas = [one.value_schema for one in records if isinstance(one, SourceRecord)]
    return {
        ", ".join(f"{field.name}: {field.schema.type}" for field in schema.fields)
        for schema in schemas
        if schema is not None
    }


def test_the_first_file_decides_for_all_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,price,code\n1,2.50,007\n2,3.25,008\n")
    (tmp_path / "b.csv").write_text("code,id,more\nx,3,4\n")
    (tmp_path / "c.csv").write_text("id,price,code\n4,1.00,9\n")
    subject = run(tmp_path, **INFER, **{"schema.change": "widen"})
    records = subject.rest()
    assert [one["id"] for one in values(records)] == [1, 2, 3, 4]
    assert {type(one["code"]) for one in values(records)} == {str}
    assert [str(one["price"]) for one in values(records)] == ["2.50", "3.25", "None", "1.00"]
    (told,) = [text for text in subject.context.told if "inferred" in text]
    assert '{"id": "int64", "price": "decimal(38,2)", "code": "string"}' in told


@pytest.mark.parametrize("text", ["007", "1e5", "NaN", "", "x", "1.0", "9223372036854775808"])
def test_a_later_text_that_does_not_fit_is_a_bad_record_and_never_another_value(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "a.csv").write_text("id,b\n" + "1,x\n" * 1500 + f"{text},y\n2,z\n")
    for records in (run(tmp_path, **INFER).rest(), by_batches(tmp_path, **INFER)):
        assert [one["id"] for one in values(records)] == [*[1] * 1500, 2]
        (reason,) = reasons(records)
        assert f"column id is {text!r}, expected int64" in reason


def test_a_task_that_starts_anew_has_the_same_types_whatever_the_files_are_now(
    tmp_path: Path,
) -> None:
    (tmp_path / "b.csv").write_text("id,note\n1,2026-11-26\n2,2026-11-27\n")
    whole = run(tmp_path, **INFER).rest()
    (types,) = types_of(whole)
    for count in (2, 3):  # the types stand first
        offsets = Offsets()
        for record in whole[:count]:
            offsets.commit(record)
        # A file that now comes first would have other types.
        (tmp_path / "a.csv").write_text("id,note\nx,1\n5,2026-11-28\n")
        again = run(tmp_path, offsets, **INFER).rest()
        assert types_of(again) == {types}
        assert [one["id"] for one in values(again)] == [5, *range(count, 3)]
        assert len(reasons(again)) == 1
        (tmp_path / "a.csv").unlink()


def test_the_types_are_committed_before_the_first_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    first, *rest = run(tmp_path, **INFER).rest()
    assert isinstance(first, OffsetUpdate)
    assert json.loads(first.source_offset["types"]) == {"id": "int64"}
    assert values(rest) == [{"id": 1}]


def tasks(folder: Path, offsets: Offsets, **more: str) -> list[Run]:
    config = {"path": str(folder), "topic": "t", "tasks.max": "2", "file.settle.ms": "0"}
    return [
        Run(DirectorySource, {**config, **INFER, **more}, offsets, number, until_idle=False)
        for number in (0, 1)
    ]


def test_all_tasks_have_the_types_that_the_first_has_committed(tmp_path: Path) -> None:
    """It does not matter which files a task reads: task 1 waits until task 0 has decided."""
    for number in range(8):
        (tmp_path / f"{number}.csv").write_text(f"id\n{number}\n{'x' if number else 5}\n")
    offsets = Offsets()
    first, second = tasks(tmp_path, offsets)
    assert values(second.poll() or []) == []
    assert second.context.awaited
    found = first.rest()
    assert values(second.poll() or []) == []
    for record in found:
        offsets.commit(record)
    found += second.rest()
    assert types_of(found) == {"id: int64"}
    assert sorted(one["id"] for one in values(found)) == [0, 1, 2, 3, 4, 5, 5, 6, 7]


def test_a_header_alone_decides_nothing_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,b\n")
    offsets = Offsets()
    subject = run(tmp_path, offsets, until_idle=False, **INFER)
    assert subject.rest() == []
    assert not subject.context.awaited
    with (tmp_path / "a.csv").open("a") as file:
        file.write("1,x\n")
    assert values(subject.rest()) == [{"id": 1, "b": "x"}]


def test_a_last_row_without_its_newline_decides_only_where_nothing_more_is_awaited(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_text("id\n12")
    assert run(tmp_path, until_idle=False, **INFER).poll() == []  # it is awaited
    assert values(run(tmp_path, **INFER).rest()) == [{"id": 12}]


def test_columns_without_a_header_are_inferred(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\tx\n")
    found = values(run(tmp_path, **INFER, **{"csv.header": "false"}).rest())
    assert found == [{"c1": 1, "c2": "x"}]


def test_nulls_of_the_files_do_not_decide(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,b\n,x\n7,\n")
    found: list[Mapping[str, Any]] = values(run(tmp_path, **INFER, **{"csv.null": ""}).rest())
    assert found == [{"id": None, "b": "x"}, {"id": 7, "b": None}]


BAD: dict[str, tuple[str, bytes]] = {
    "UTF-16": ("a.csv", "id,b\n1,2\n".encode("utf-16")),
    "a column twice": ("a.csv", b"id,id\n1,2\n"),
    "corrupt gzip": ("a.csv.gz", b"id,b\n1,2\n"),
    "CR alone": ("a.csv", b"id,b\r1,2\r3,4\r"),
    "too many fields": ("a.csv", b"id,b\n1,2,3\n"),
    "half written": ("a.csv", b'id,b\n1,"x'),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_told_of_as_without_inference(tmp_path: Path, case: str) -> None:
    name, data = BAD[case]
    (tmp_path / name).write_bytes(data)
    plain, subject = run(tmp_path), run(tmp_path, **INFER)
    expected = reasons(plain.rest()), plain.context.quarantined
    assert (reasons(subject.rest()), subject.context.quarantined) == expected
    assert any(expected)
    assert subject.context.told == plain.context.told


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_fails_the_task_that_infers_where_it_is_to(tmp_path: Path, case: str) -> None:
    name, data = BAD[case]
    (tmp_path / name).write_bytes(data)
    fails = {"on.bad.file": "fail", "errors.tolerance": "none"}
    if case == "too many fields":
        assert len(reasons(run(tmp_path, **INFER, **fails).rest())) == 1
        return
    with pytest.raises(BadFileError, match=r"a\.csv"):
        run(tmp_path, **INFER, **fails).rest()


def test_bad_rows_before_the_first_good_one_are_told_of_and_it_decides(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n" + "1,2\n" * 3000 + "7\n")
    found = run(tmp_path, **INFER).rest()
    assert values(found) == [{"id": 7}]
    assert len(reasons(found)) == 3000


def test_a_file_of_bad_rows_is_not_read_again_when_types_are_known(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("id\n1,2\n")
    subject = run(tmp_path, until_idle=False, **INFER)
    assert len(reasons(subject.rest())) == 1
    (tmp_path / "a.csv").write_text("id\n7\n")
    found = subject.rest()
    assert values(found) == [{"id": 7}]
    assert reasons(found) == []
    with (tmp_path / "b.csv").open("a") as file:
        file.write("8\n")
    assert values(subject.rest()) == [{"id": 8}]


def test_rows_that_come_between_the_look_and_the_read_wait_for_their_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("id\n")
    subject = run(tmp_path, until_idle=False, **INFER)
    look = InferredTypes.look

    def grown_behind(self: InferredTypes, *given: Any) -> Any:
        options = look(self, *given)
        (tmp_path / "a.csv").write_text("id\n1,2\n7\n")
        return options

    with monkeypatch.context() as patch:
        patch.setattr(InferredTypes, "look", grown_behind)
        found = subject.poll() or []
    assert values(found) == []
    assert len(reasons(found)) == 1
    assert values(subject.rest()) == [{"id": 7}]


def test_rows_that_could_not_be_looked_at_are_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any) -> Any:
        raise OSError("for a moment")

    (tmp_path / "a.csv").write_text("id\n1,2\n7\n")
    subject = run(tmp_path, **INFER)
    with monkeypatch.context() as patch:
        patch.setattr("headgate_connectors.files.inferred_types.open_reader", fails)
        found = subject.poll() or []
        assert (len(reasons(found)), values(found)) == (1, [])
        assert subject.poll() == []
    assert values(subject.rest()) == [{"id": 7}]


def test_good_rows_before_a_fault_of_the_file_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(1)
    rows = "".join(f"{number},{chance.random()}\n" for number in range(30_000))
    data = gzip.compress(f"id,b\n{rows}".encode())
    (tmp_path / "a.csv.gz").write_bytes(data[:-8] + b"\xff" * 8)
    plain = values(run(tmp_path, batch=100).rest(polls=1000))
    assert plain
    monkeypatch.setattr("headgate_connectors.files.inferred_types.ROWS", len(plain) + 200)
    subject = run(tmp_path, batch=100, **INFER)
    found = values(subject.rest(polls=1000))
    assert [one["id"] for one in found] == list(range(len(found)))
    assert len(found) >= len(plain) - 1  # the fault may cut the last row
    assert len(subject.context.quarantined) == 1


def test_a_half_written_last_row_decides_only_when_its_file_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("headgate_connectors.directory.time.monotonic", lambda: now)
    (tmp_path / "a.csv").write_text("id,d\n1,2026-11-2")
    subject = run(tmp_path, **INFER, **{"file.settle.ms": "60000"})
    assert subject.poll() == []
    now += 59
    assert subject.poll() == []
    (tmp_path / "a.csv").write_text("id,d\n1,2026-11-26\n2,2026-11-2")
    assert values(subject.poll() or []) == [{"id": 1, "d": datetime.date(2026, 11, 26)}]


def test_a_last_row_of_a_settled_file_decides_for_the_task_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("headgate_connectors.directory.time.monotonic", lambda: now)
    names = [f"{number}.csv" for number in range(4)]
    for name in names:
        (tmp_path / name).write_text("id\n12")
    offsets = Offsets()
    subjects = tasks(tmp_path, offsets, **{"file.settle.ms": "60000"})
    for subject in subjects:
        subject.context.until_idle = True
        assert not subject.poll()
    now += 61
    found: list[Any] = []
    for _ in range(3):
        for subject in subjects:
            for record in subject.poll() or []:
                offsets.commit(record)
                found.append(record)
        now += 61
    assert values(found) == [{"id": 12}] * 4


def test_types_are_inferred_anew_when_their_offset_alone_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    offsets = Offsets()
    first = run(tmp_path, offsets, **INFER)
    for record in first.rest():
        offsets.commit(record)
    assert (
        'headgate offsets set NAME --partition \'{"csv.types": "inferred"}\' --offset null'
        in (first.context.told[0])
    )
    with (tmp_path / "a.csv").open("a") as file:
        file.write("x\n")
    assert len(reasons(run(tmp_path, offsets, **INFER).rest())) == 1
    DirectorySource.alter_offsets({}, [({"csv.types": "inferred"}, None)])
    del offsets.stored[("csv.types", "inferred"),]
    assert values(run(tmp_path, offsets, **INFER).rest()) == [{"id": "x"}]


def test_offsets_are_altered_as_they_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    offsets = Offsets()
    for record in run(tmp_path, offsets, **INFER).rest():
        offsets.commit(record)
    listed = offsets.committed()
    assert len(listed) == 2
    assert DirectorySource.alter_offsets({}, listed)


@pytest.mark.parametrize(
    ("partition", "offset", "told"),
    [
        ({"csv.types": "inferred"}, {"types": "{}"}, "expected a type by column, as JSON"),
        ({"csv.types": "inferred"}, {"types": "[]"}, "expected a type by column, as JSON"),
        ({"csv.types": "inferred"}, {"types": "{"}, "expected a type by column, as JSON"),
        ({"csv.types": "inferred"}, {"types": '{"id": 5}'}, "expected a type by column, as JSON"),
        ({"csv.types": "inferred"}, {"types": '{"id": "number"}'}, "number is no type"),
        ({"csv.types": "inferred"}, {"position": 0}, 'not {"position": 0}'),
        ({"csv.types": "other"}, {"types": "{}"}, 'leave {"csv.types": "other"} out'),
    ],
    ids=str,
)
def test_an_offset_of_types_that_says_none_is_refused(
    partition: dict[str, str], offset: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        DirectorySource.alter_offsets({}, [(partition, offset)])


@pytest.mark.parametrize(
    ("header", "change", "says"),
    [
        ("id;b", "widen", "columns id, b, the file has none of them, but id;b: exclude this file"),
        ("id,c", "refuse", "column b, the file has id, c: exclude this file, or set schema.change"),
    ],
)
def test_a_file_without_inferred_columns_is_told_whence_they_are(
    tmp_path: Path, header: str, change: str, says: str
) -> None:
    (tmp_path / "a.csv").write_text("id,b\n1,x\n")
    (tmp_path / "b.csv").write_text(f"{header}\n1,x\n".replace(",", ";" if ";" in header else ","))
    subject = run(tmp_path, **INFER, **{"schema.change": change})
    assert values(subject.rest()) == [{"id": 1, "b": "x"}]
    (reason,) = subject.context.quarantined
    assert f"b.csv: csv.types = infer has found in another file {says}" in reason
    assert reason.endswith(f"; {ANEW}")
