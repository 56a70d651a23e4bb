"""Parquet files go through the embedded log into a Delta table, while tasks are killed and
frozen."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from support.commands.pipelines import Up
from support.commands.processes import hurt, seldom_hurt
from support.depth import tries

pytestmark = pytest.mark.slow

PIPELINE = """
[cluster]
workers = {workers}
data = "state"
runner = "process"
"session.timeout.ms" = 4000
"heartbeat.interval.ms" = 500
"scheduled.rebalance.max.delay.ms" = 500
"offset.flush.interval.ms" = 500

[connectors.read]
"connector.class" = "DirectorySource"
path = "in"
topic = "rows"
"tasks.max" = 2
"batch.size" = 500

[connectors.write]
"connector.class" = "DeltaSink"
topics = "rows"
path = "table"
"rotate.records" = 2000
"rotate.interval.ms" = 500
"tasks.max" = 2
"""


def add_file(folder: Path, number: int, rows: int) -> None:
    """Add one more file for the source. The file appears whole."""
    ids = range(number * rows, (number + 1) * rows)
    prices = pa.array([Decimal(n).scaleb(-2) for n in ids], pa.decimal128(12, 2))
    draft = folder / f"{number}.draft"
    pq.write_table(pa.table({"id": ids, "price": prices}), draft)
    draft.rename(folder / "in" / f"{number}.parquet")


def seen(folder: Path) -> tuple[int, int]:
    """Version and count of rows that a reader finds just now; -1 before there is a table."""
    if not DeltaTable.is_deltatable(str(folder / "table")):
        return -1, 0
    table = DeltaTable(folder / "table")
    rows = table.to_pyarrow_table()
    assert pc.count_distinct(rows["id"]).as_py() == rows.num_rows, "a reader saw a row twice"
    return table.version(), rows.num_rows


def test_kills_lose_and_double_nothing_in_a_delta_table(
    tmp_path: Path, ups: list[Up], say: Callable[[str], None]
) -> None:
    seed = int(os.environ.get("HEADGATE_SEED", random.randrange(2**32)))
    say(f"HEADGATE_SEED={seed}")
    chance = random.Random(seed)
    wanted, rows = tries(1, 20), 10_000
    (tmp_path / "in").mkdir()
    (tmp_path / "pipeline.toml").write_text(PIPELINE.replace("{workers}", str(tries(1, 2))))
    add_file(tmp_path, 0, rows)
    up = Up(tmp_path).start()
    ups.append(up)
    up.wait_for("rows in the table", lambda: seen(tmp_path)[1] > 0, 60)
    done: Counter[str] = Counter()
    looks: dict[int, int] = {}
    files = 1
    while done.total() < wanted:
        add_file(tmp_path, files, rows)
        files += 1
        time.sleep(chance.uniform(0.1, 1.5))
        version, count = seen(tmp_path)
        assert looks.setdefault(version, count) == count, "a version changed while it was read"
        alive = [one for one in up.look() if "headgate_runtime" in one.command]
        frozen_s = chance.choice([0.0, chance.uniform(0.1, 6.0)]) if wanted > 1 else 0.0
        if not alive:  # all were killed a moment ago
            continue
        with suppress(ProcessLookupError):  # its worker was faster
            done[hurt(seldom_hurt(alive, done, chance), frozen_s)] += 1
    up.wait_for("all rows", lambda: seen(tmp_path)[1] >= files * rows, tries(60, 240))
    assert up.end() == 0, up.tail()
    table = DeltaTable(tmp_path / "table")
    found = table.to_pyarrow_table().to_pylist()
    counts = Counter((row["id"], row["price"]) for row in found)
    assert counts == Counter((n, Decimal(n).scaleb(-2)) for n in range(files * rows))
    say(f"{dict(done)}, {table.version()} commits, {len(found)} rows once each")
