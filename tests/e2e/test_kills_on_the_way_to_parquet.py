"""Typed CSV files through the embedded log to Parquet, with transforms and dead letters on both
sides, while workers and tasks are killed at random: every row is there once, with its types. (Over
Kafka: `test_files_over_kafka`.)"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.commands.pipelines import Up

from headgate_embedded import open_reader

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
    """What must become of the files."""

    def __init__(self, folder: Path, files: int) -> None:
        folder.mkdir()
        self.rows: list[tuple[Any, ...]] = []
        self.bad_lines: list[str] = []
        self.bad_ids: set[int] = set()
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
            self.bad_ids.add(row)
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
    assert Counter(values(up, "bad-lines")) == Counter(wanted.bad_lines)
    assert len(set(values(up, "bad-rows"))) == len(wanted.bad_ids)


def values(up: Up, topic: str) -> list[str]:
    with closing(open_reader(up.log_folder)) as log:
        return [
            (record.value or b"").decode("utf-8", "backslashreplace")
            for (_, part), end in log.record_log.end_offsets([topic]).items()
            for record in log.record_log.read(topic, part, 0, end, 10_000_000)
        ]
