"""Parquet files with every type through the embedded log to Parquet, without Spark."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands.pipelines import Up
from support.data.every_type import every_type

pytestmark = pytest.mark.slow

PIPELINE = """
[cluster]
workers = {workers}
data = "state"
runner = "{runner}"
"session.timeout.ms" = 4000
"heartbeat.interval.ms" = 500
"scheduled.rebalance.max.delay.ms" = 500
"offset.flush.interval.ms" = 500

[connectors.read]
"connector.class" = "DirectorySource"
path = "in"
topic = "rows"
"tasks.max" = 2
"batch.size" = {batch}

[connectors.write]
"connector.class" = "DirectorySink"
topics = "rows"
path = "out"
"rotate.records" = {rotate}
"rotate.interval.ms" = 500
"tasks.max" = 2
"""


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[list[Up]]:
    started: list[Up] = []
    yield started
    for up in started:
        up.clean_up()


def prepare(
    folder: Path, runner: str, workers: int = 1, rotate: int = 1000, batch: int = 2000
) -> Path:
    (folder / "in").mkdir()
    text = PIPELINE.format(runner=runner, workers=workers, rotate=rotate, batch=batch)
    (folder / "pipeline.toml").write_text(text)
    return folder / "in"


def ends(up: Up, seconds: float = 90) -> None:
    assert up.process is not None
    assert up.process.wait(seconds) == 0, up.tail()


def written(folder: Path) -> list[Any]:
    return [pq.read_table(path) for path in sorted((folder / "out").glob("*.parquet"))]


def shown(table: Any) -> dict[str, str]:
    """Columns by name; NaN is no different from NaN here, and -0.0 is from 0.0."""
    return {name: table[name].combine_chunks().to_string() for name in table.column_names}


@pytest.mark.parametrize("runner", ["process", "thread"])
def test_every_type_comes_out_equal(tmp_path: Path, runner: str, ups: list[Up]) -> None:
    table = pa.table(every_type())
    pq.write_table(table, prepare(tmp_path, runner) / "a.parquet")
    stored = pq.read_table(tmp_path / "in" / "a.parquet")
    ups.append(Up(tmp_path, ("--until-idle",)).start())
    ends(ups[0])
    (out,) = written(tmp_path)
    assert out.schema == stored.schema
    assert shown(out) == shown(stored)
    with_nan = ["nan", "nan32"]
    assert out.drop_columns(with_nan).equals(stored.drop_columns(with_nan))


ROWS, FILES, KILLS = 20_000, 6, 8


def test_kills_at_random_lose_and_double_nothing(
    tmp_path: Path, ups: list[Up], say: Callable[[str], None]
) -> None:
    seed = int(os.environ.get("HEADGATE_SEED", random.randrange(2**32)))
    say(f"HEADGATE_SEED={seed}")
    chance = random.Random(seed)
    folder = prepare(tmp_path, "process", workers=2, rotate=3_000, batch=500)
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        prices = pa.array([Decimal(n).scaleb(-2) for n in ids], pa.decimal128(12, 2))
        table = pa.table({"id": ids, "price": prices})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=4_000)
    up = Up(tmp_path, ("--until-idle",)).start()
    ups.append(up)
    killed = 0
    up.wait_for("records", lambda: up.records("rows") > 0, 60)
    while killed < KILLS and up.process is not None and up.process.poll() is None:
        time.sleep(chance.uniform(0.2, 1.5))
        alive = [one for one in up.look() if "headgate_runtime" in one.command]
        if alive:
            os.kill(chance.choice(alive).pid, signal.SIGKILL)
            killed += 1
    ends(up, 240)
    counts = Counter(
        (row["id"], row["price"]) for table in written(tmp_path) for row in table.to_pylist()
    )
    assert len(counts) == FILES * ROWS
    assert set(counts.values()) == {1}
    assert all(price == Decimal(id_).scaleb(-2) for id_, price in counts)
    say(f"{killed} kills, {len(written(tmp_path))} files, {len(counts)} rows once each")
