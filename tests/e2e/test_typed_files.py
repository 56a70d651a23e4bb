"""Parquet files with every type go through the embedded log to Parquet, without Spark."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands.pipelines import Up
from support.data.every_type import every_type
from support.depth import first

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
"errors.tolerance" = "all"
{more}

[connectors.write]
"connector.class" = "DirectorySink"
topics = "rows"
path = "out"
"rotate.records" = {rotate}
"rotate.interval.ms" = 500
"tasks.max" = 2
"""


def prepare(
    folder: Path,
    runner: str,
    workers: int = 1,
    rotate: int = 1000,
    batch: int = 2000,
    more: str = "",
) -> Path:
    (folder / "in").mkdir()
    text = PIPELINE.format(runner=runner, workers=workers, rotate=rotate, batch=batch, more=more)
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


@pytest.mark.parametrize("runner", first(1, ["process", "thread"]))
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


ROWS = 10_000
RECORDS = '"header.converter" = "StringConverter"'
"""Makes the source give records in place of batches."""
LONG = "x" * 20_000


@pytest.mark.parametrize(
    ("kills", "more"),
    [
        pytest.param(4, "", id="batches"),
        pytest.param(20, "", id="many-kills", marks=pytest.mark.exhaustive),
        pytest.param(8, RECORDS, id="records", marks=pytest.mark.exhaustive),
    ],
)
def test_kills_at_random_lose_and_double_nothing(
    tmp_path: Path, ups: list[Up], say: Callable[[str], None], kills: int, more: str
) -> None:
    """Rows in batches of Arrow, beside rows that are bad (each a record that is skipped, and its
    neighbours records) and rows so long that few share a batch."""
    seed = int(os.environ.get("HEADGATE_SEED", random.randrange(2**32)))
    say(f"HEADGATE_SEED={seed}")
    chance = random.Random(seed)
    folder = prepare(tmp_path, "process", workers=2, rotate=3_000, batch=500, more=more)
    files = kills + 2
    for number in range(files):
        pq.write_table(a_table(number), folder / f"{number}.parquet", row_group_size=4_000)
    up = Up(tmp_path, ("--until-idle",)).start()
    ups.append(up)
    killed, before, patient_until = 0, (0, 0), 0.0
    up.wait_for("records", lambda: up.records("rows") > 0, 60)
    while killed < kills and up.process is not None and up.process.poll() is None:
        moved = (up.records("rows"), len(list(tmp_path.glob("out/*.parquet"))))
        if moved == before and time.monotonic() < patient_until:
            time.sleep(0.05)
            continue  # a worker that is killed again and again before it is up is given up
        before, patient_until = moved, time.monotonic() + 20
        time.sleep(chance.uniform(0, 1))
        alive = [one for one in up.look() if "headgate_runtime" in one.command]
        if alive:
            os.kill(chance.choice(alive).pid, signal.SIGKILL)
            killed += 1
    ends(up, 30 * kills)
    counts = Counter(
        (row["id"], row["price"], len(row["text"]))
        for table in written(tmp_path)
        for row in table.to_pylist()
    )
    expected = {
        (n, Decimal(n).scaleb(-2), len(text_of(n))) for n in range(files * ROWS) if not is_bad(n)
    }
    assert set(counts) == expected
    assert set(counts.values()) == {1}
    assert version_of(tmp_path) == (1 if more else 2)  # the log has batches, or none
    say(f"{killed} kills, {len(written(tmp_path))} files, {len(counts)} rows once each")


def a_table(number: int) -> Any:
    ids = range(number * ROWS, (number + 1) * ROWS)
    prices = pa.array([Decimal(n).scaleb(-2) for n in ids], pa.decimal128(12, 2))
    times = pa.array([90_000_000 if is_bad(n) else 1 for n in ids], pa.int32())
    texts = [text_of(n) for n in ids]
    return pa.table({"id": ids, "price": prices, "at": times.view(pa.time32("ms")), "text": texts})


def is_bad(n: int) -> bool:
    """Return whether the row's time of day is beyond 24 hours."""
    return n % 7_001 == 7


def text_of(n: int) -> str:
    return LONG if n % 4_001 < 30 and n < ROWS else f"{n}"


def version_of(folder: Path) -> int:
    header = (folder / "state" / "headgate.db").read_bytes()[:100]
    return int.from_bytes(header[60:64], "big")
