"""Typed CSV files go through the embedded log to Parquet, with transforms and dead letters on both
sides. Workers and tasks are killed at random, and every row is there once, with its types.

`test_files_over_kafka` has the same over Kafka.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.commands.pipelines import Up
from support.registry.memory import converter as registry_converter
from support.task.letters import assert_at_least_once, records_of

from headgate.connector.converters import make_converter
from headgate.connector.registry_converters import REGISTRY_CONVERTERS
from headgate_embedded.schemas import open_schemas

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

KILLS = 20

PIPELINE = """
[cluster]
workers = 2
data = "state"
runner = "process"
"session.timeout.ms" = 4000
"heartbeat.interval.ms" = 500
"scheduled.rebalance.max.delay.ms" = 500
"offset.flush.interval.ms" = 500
"value.converter" = "CONVERTER"

[connectors.files]
"connector.class" = "DirectorySource"
path = "in"
topic = "rows"
"tasks.max" = 2
"batch.size" = 200
"file.settle.ms" = 100
"csv.types" = "id: int64, price: decimal(10,2), at: timestamp"
transforms = "kind"
"transforms.kind.type" = "InsertField$Value"
"transforms.kind.static.field" = "kind"
"transforms.kind.static.value" = "sale"
"errors.tolerance" = "all"
"errors.deadletterqueue.topic.name" = "bad-lines"

[connectors.lake]
"connector.class" = "DirectorySink"
topics = "rows"
path = "out"
"rotate.records" = 500
"rotate.interval.ms" = 300
"tasks.max" = 2
transforms = "code"
"transforms.code.type" = "Cast$Value"
"transforms.code.spec" = "code:int32"
"errors.tolerance" = "all"
"errors.deadletterqueue.topic.name" = "bad-rows"
"""
ROWS = 4_000
"""Of a file."""
TYPES = {
    "id": "int64",
    "price": "decimal128(10, 2)",
    "at": "timestamp[ms, tz=UTC]",
    "code": "int32",
    "kind": "string",
}


class Wanted:
    """What the files must become."""

    def __init__(self, folder: Path, files: int) -> None:
        folder.mkdir()
        self.rows: list[tuple[Any, ...]] = []
        self.bad_lines: list[str] = []
        self.bad_rows: list[tuple[Any, ...]] = []
        for file in range(files):
            lines = [self._line(row) for row in range(file * ROWS, (file + 1) * ROWS)]
            (folder / f"{file}.csv").write_text("\n".join(["id,price,at,code", *lines]) + "\n")

    def _line(self, row: int) -> str:
        price, at = Decimal(row).scaleb(-2), datetime(2026, 1, 1, tzinfo=UTC)
        at += timedelta(milliseconds=row)
        written = at.isoformat(timespec="milliseconds")
        if row % 101 == 7:
            self.bad_lines.append(f"{row},1.005,{written},1")  # three places
            return self.bad_lines[-1]
        if row % 103 == 11:
            self.bad_rows.append((row, price, at, f"no {row}", "sale"))
            return f"{row},{price},{written},no {row}"
        self.rows.append((row, price, at, row, "sale"))
        return f"{row},{price},{written},{row}"


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path, ("--until-idle",))
    yield made
    made.clean_up()


@pytest.mark.parametrize("converter", ["TypedConverter", "AvroConverter"])
def test_every_row_is_there_once_after_twenty_kills(
    up: Up, say: Callable[[str], None], converter: str
) -> None:
    seed = int(os.environ.get("HEADGATE_SEED", random.randrange(2**32)))
    say(f"HEADGATE_SEED={seed}")
    chance, out = random.Random(seed), up.folder / "out"
    wanted = Wanted(up.folder / "in", 2 * KILLS + 2)
    (up.folder / "pipeline.toml").write_text(PIPELINE.replace("CONVERTER", converter))
    process = up.start().process
    assert process is not None
    up.wait_for("records", lambda: up.records("rows") > 0, 180)
    killed: Counter[str] = Counter()
    before, patient_until = (0, 0), 0.0
    while killed.total() < KILLS and process.poll() is None:
        moved = (up.records("rows"), len(list(out.glob("*.parquet"))))
        if moved == before and time.monotonic() < patient_until:
            time.sleep(0.05)
            continue  # a worker that is killed again and again before it is up is given up
        before, patient_until = moved, time.monotonic() + 60
        time.sleep(chance.uniform(0, 0.5))
        alive = [one for one in up.look() if "headgate_runtime" in one.command]
        if alive:
            victim = chance.choice(alive)
            os.kill(victim.pid, signal.SIGKILL)
            killed["worker" if "headgate_runtime.worker" in victim.command else "other"] += 1
    assert process.wait(120 + 15 * KILLS) == 0, up.tail()
    say(f"kills: {dict(killed)}; {len(wanted.rows):,} rows")
    assert killed.total() == KILLS, "all was written before the last kill"
    found: Counter[tuple[Any, ...]] = Counter()
    for path in out.glob("*.parquet"):
        table = pq.read_table(path)
        assert {field.name: str(field.type) for field in table.schema} == TYPES
        found.update(tuple(row[name] for name in TYPES) for row in table.to_pylist())
    assert found == Counter(wanted.rows)
    # A source's letters are in the transactions of their neighbours; a sink's come at least once.
    bad_lines = [(one.value or b"").decode() for one in records_of(up.log_folder, "bad-lines")]
    assert Counter(bad_lines) == Counter(wanted.bad_lines)
    assert_at_least_once(rows_of(up, "bad-rows", converter), wanted.bad_rows, KILLS)


def rows_of(up: Up, topic: str, converter: str) -> list[tuple[Any, ...]]:
    if converter in REGISTRY_CONVERTERS:
        reads: Any = registry_converter(converter, open_schemas(up.log_folder))
    else:
        reads = make_converter(converter, {}, is_key=False)
    values = [
        reads.to_connect_data(topic, one.value).value for one in records_of(up.log_folder, topic)
    ]
    return [tuple(value[name] for name in TYPES) for value in values]
