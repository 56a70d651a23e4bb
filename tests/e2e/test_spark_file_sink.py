"""SparkFileSink on a real Spark and the embedded log writes every record once, whatever is
killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession
from support.depth import first
from support.spark import sink_process as spark_sink_process
from support.spark.shared import spark_server  # noqa: F401

from headgate.connector import schema as s
from headgate.connector.text_converters import TypedConverter
from headgate.ports import ProducerRecord
from headgate_embedded import open_transport
from headgate_spark.file_sink import ColumnTypeError
from headgate_spark.files import LocalFiles
from headgate_spark.manifest import Manifest
from headgate_spark.missing_output import OutputMissingError
from headgate_spark.server import SparkServer

pytestmark = pytest.mark.slow

DAY = date(2024, 2, 29)


def fill(data: Path, records: Mapping[int, list[bytes]], topic: str = "events") -> None:
    """Records of each partition, appended to the embedded log."""
    transport = open_transport({"kind": "embedded", "path": str(data)})
    transport.record_log.create_topic(topic, max(records) + 1)
    producer = transport.record_log.producer("test", None, None)
    for partition, values in records.items():
        for at in range(0, len(values), 2_000):
            batch = values[at : at + 2_000]
            producer.send([ProducerRecord(topic, partition, None, value) for value in batch])
            producer.acks()
    producer.close()
    transport.close()


def published(target: Path, kind: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Published files and their rows, in order of topic, partition, start and number."""
    names = sorted(
        (entry.name for entry in target.iterdir() if entry.is_file()),
        key=lambda name: [int(part) for part in name.split(".")[0].split("-")[-3:]],
    )
    return [(name, _rows(target / name, kind)) for name in names]


def _rows(file: Path, kind: str) -> list[dict[str, Any]]:
    if kind == "parquet":
        return pyarrow.parquet.read_table(file).to_pylist()
    if kind == "csv":
        return pyarrow.csv.read_csv(file).to_pylist()
    return [json.loads(line) for line in file.read_text().splitlines()]


def numbered(count: int, partition: int) -> list[bytes]:
    return [json.dumps({"p": partition, "n": n, "t": f"x{n}"}).encode() for n in range(count)]


def config(target: Path, **more: str) -> dict[str, str]:
    return {"path": str(target), "batch.interval.ms": "0", **more}


@pytest.mark.parametrize("kind", first(1, ["parquet", "json", "csv"]))
def test_rows_come_out_once_and_in_order(
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
    kind: str,
) -> None:
    fill(tmp_path / "log", {0: numbered(30_000, 0), 1: numbered(500, 1)})
    target = tmp_path / "out"
    made = {"format": kind, "batch.records.max": "25000", "columns.metadata": "offset,topic"}
    spark_sink_process.run(
        spark_server.address, str(tmp_path / "log"), config(target, **made), ["events"]
    )
    files = published(target, kind)
    rows = [row for _, rows in files for row in rows]
    assert [row["n"] for row in rows if row["p"] == 0] == list(range(30_000))
    assert [row["_offset"] for row in rows if row["p"] == 1] == list(range(500))
    assert {row["_topic"] for row in rows} == {"events"}
    assert list((target / "_headgate" / "staging").iterdir()) == []


@pytest.mark.exhaustive
def test_columns_unite_over_a_batch_without_losing_values(
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    values = {
        0: [b'{"a": 1, "b": 9007199254740993, "o": {"x": [1, 2]}}', b"plain text"],
        1: [b'{"a": 1.5, "b": "text"}', b'{"a": null, "big": 123456789012345678901234567890}'],
    }
    fill(tmp_path / "log", values)
    target = tmp_path / "out"
    spark_sink_process.run(spark_server.address, str(tmp_path / "log"), config(target), ["events"])
    rows = [row for _, rows in published(target, "parquet") for row in rows]
    none = {"a": None, "b": None, "o": None, "value": None, "big": None}
    assert rows == [
        {**none, "a": 1.0, "b": "9007199254740993", "o": '{"x":[1,2]}'},
        {**none, "value": "plain text"},
        {**none, "a": 1.5, "b": "text"},
        {**none, "big": "123456789012345678901234567890"},
    ]


@pytest.mark.exhaustive
def test_a_folder_of_several_batches_is_one_table(
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Batches one after the other, with values of other types (SPARK-23822)."""
    target, log = tmp_path / "out", str(tmp_path / "log")
    given = config(target, **{"columns.types": "v: string", "errors.tolerance": "all"})
    typed = s.struct({"price": s.decimal_of(2, 10), "day": s.DATE_SCHEMA})
    price = TypedConverter().from_connect("t", {"price": Decimal("1.50"), "day": DAY}, typed)
    for batch in (
        [b'{"p": 10, "v": 1}'],
        [b'{"p": 10.5}', b'{"v": "x"}'],
        [price or b""],
        [b'{"price": "1"}'],
    ):
        fill(tmp_path / "log", {0: batch})
        spark_sink_process.run(spark_server.address, log, given, ["events"])
    spark = SparkSession.builder.remote(spark_server.address).create()
    try:
        table = spark.read.option("mergeSchema", "true").parquet(str(target))
        assert dict(table.dtypes) == {
            "p": "bigint", "v": "string", "price": "decimal(10,2)", "day": "date"
        }  # fmt: skip
        rows = [row.asDict() for row in table.collect()]
    finally:
        spark.stop()
    none = dict.fromkeys(("p", "v", "price", "day"))
    assert sorted(rows, key=str) == sorted(
        [
            {**none, "p": 10, "v": "1"},
            {**none, "v": "x"},
            {**none, "price": Decimal("1.50"), "day": DAY},
        ],
        key=str,
    )


@pytest.mark.exhaustive
def test_a_task_begins_again_with_the_type_that_another_process_gave_a_column(
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    target, files = tmp_path / "out", LocalFiles(tmp_path / "out")
    assert Manifest(files, None, "g").pin({"p": "double"}) == {}  # type: ignore[arg-type]
    fill(tmp_path / "log", {0: [b'{"p": 10}']})
    spark_sink_process.run(spark_server.address, str(tmp_path / "log"), config(target), ["events"])
    (_, rows), = published(target, "parquet")  # fmt: skip
    assert [repr(row["p"]) for row in rows] == ["10.0"]


@pytest.mark.exhaustive
def test_what_is_declared_must_be_what_the_folder_has(
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    target, log = tmp_path / "out", str(tmp_path / "log")
    fill(tmp_path / "log", {0: [b'{"p": 10}']})
    spark_sink_process.run(spark_server.address, log, config(target), ["events"])
    given = config(target, **{"columns.types": "p: double"})
    with pytest.raises(ColumnTypeError, match="has p: double, but the column is of type int64"):
        spark_sink_process.run(spark_server.address, log, given, ["events"])


@pytest.mark.exhaustive
def test_a_log_that_was_made_anew_is_refused(
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Its first records have the offsets of those that the folder has."""
    target, new = tmp_path / "out", str(tmp_path / "new")
    fill(tmp_path / "log", {0: numbered(5, 0)})
    spark_sink_process.run(spark_server.address, str(tmp_path / "log"), config(target), ["events"])
    fill(tmp_path / "new", {0: numbered(8, 1)})
    for _ in range(2):  # the first time must leave no offset of the group
        with pytest.raises(OutputMissingError, match="is another log: its record at offset 4 is"):
            spark_sink_process.run(spark_server.address, new, config(target), ["events"])
    accepts = config(target, **{"on.missing.output": "accept"})
    spark_sink_process.run(spark_server.address, new, accepts, ["events"])
    rows = [(row["p"], row["n"]) for _, rows in published(target, "parquet") for row in rows]
    assert rows == [*((0, n) for n in range(5)), *((1, n) for n in (5, 6, 7))]


@pytest.mark.exhaustive
def test_columns_that_differ_by_case_are_one_over_the_slices_of_a_batch(
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Each partition is a slice, which meets another spelling first."""
    fill(
        tmp_path / "log", {0: [b'{"ID": 1}'], 1: [b'{"id": 2}', b'{"Id": 3.5}', b'{"ID":1,"id":1}']}
    )
    target = tmp_path / "out"
    given = config(target, **{"errors.tolerance": "all"})
    spark_sink_process.run(spark_server.address, str(tmp_path / "log"), given, ["events"])
    rows = [row for _, rows in published(target, "parquet") for row in rows]
    assert rows == [{"ID": 1.0}, {"ID": 2.0}, {"ID": 3.5}]


@pytest.mark.exhaustive
def test_sinks_killed_anywhere_and_zombies_write_each_record_once(
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print("seed", seed)
    count = 60_000
    fill(tmp_path / "log", {0: numbered(count, 0), 1: numbered(count, 1)})
    target = tmp_path / "out"
    given = {
        "remote": spark_server.address,
        "data": str(tmp_path / "log"),
        "config": config(target, **{"batch.records.max": "2000"}),
        "topics": ["events"],
    }
    killed = _disturb(json.dumps(given), random.Random(seed))
    assert killed >= 3, "the processes were done before they could be killed"
    given["config"] = config(target)
    command = [sys.executable, spark_sink_process.__file__, json.dumps(given)]
    subprocess.run(command, check=True, timeout=240)
    rows = [row for _, rows in published(target, "parquet") for row in rows]
    for partition in (0, 1):
        assert [row["n"] for row in rows if row["p"] == partition] == list(range(count)), seed
    assert list((target / "_headgate" / "staging").iterdir()) == []


def _disturb(argument: str, rng: random.Random) -> int:
    """Two at a time: one is stopped and goes on when the other, which went on meanwhile, has been
    killed. How many were killed while they worked."""
    killed = 0
    for _ in range(2):
        command = [sys.executable, spark_sink_process.__file__, argument]
        pair = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
        zombie, victim = pair
        try:
            for one in pair:
                assert one.stdout is not None
                one.stdout.readline()  # it begins its first batch
            time.sleep(rng.random() * 2)
            os.kill(zombie.pid, signal.SIGSTOP)
            time.sleep(1 + rng.random() * 2)
            killed += victim.poll() is None
            victim.kill()
            os.kill(zombie.pid, signal.SIGCONT)
            time.sleep(rng.random() * 2)
            killed += zombie.poll() is None
        finally:
            for one in pair:
                one.kill()
                one.wait()
                assert one.stdout is not None
                one.stdout.close()
    return killed
