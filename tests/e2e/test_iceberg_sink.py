"""Parquet files go through the embedded log into an Iceberg table, while tasks are killed and
frozen."""

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from support.commands.pipelines import Up
from support.commands.processes import Process, hurt, seldom_hurt

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

PIPELINE = """
[cluster]
workers = 2
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
"connector.class" = "IcebergSink"
topics = "rows"
table = "shop.rows"
"catalog.type" = "sql"
"catalog.uri" = "sqlite:///{folder}/catalog.db"
"catalog.warehouse" = "file://{folder}/warehouse"
"partition.by" = "bucket(4, id)"
"rotate.records" = 2000
"rotate.interval.ms" = 500
"tasks.max" = 2
"""
KILLS, ROWS = 10, 5_000


def add_file(folder: Path, number: int) -> None:
    draft = folder / f"{number}.draft"
    pq.write_table(pa.table({"id": range(number * ROWS, (number + 1) * ROWS)}), draft)
    draft.rename(folder / "in" / f"{number}.parquet")


def ids(folder: Path) -> "Counter[int]":
    catalog = SqlCatalog(
        "default", uri=f"sqlite:///{folder}/catalog.db", warehouse=(folder / "warehouse").as_uri()
    )
    try:
        table = catalog.load_table("shop.rows")
    except NoSuchTableError:
        return Counter()
    return Counter(table.scan().to_arrow()["id"].to_pylist())


def targets(up: Up) -> list[Process]:
    """Workers and tasks. For a moment there are none, when all were killed."""
    return [one for one in up.look() if "headgate_runtime" in one.command]


def test_kills_lose_and_double_nothing_in_an_iceberg_table(
    tmp_path: Path, ups: list[Up], say: Callable[[str], None]
) -> None:
    seed = random.randrange(2**32)
    say(f"seed {seed}")
    chance = random.Random(seed)
    (tmp_path / "in").mkdir()
    (tmp_path / "pipeline.toml").write_text(PIPELINE.format(folder=tmp_path))
    add_file(tmp_path, 0)
    up = Up(tmp_path).start()
    ups.append(up)
    up.wait_for("rows in the table", lambda: ids(tmp_path).total() > 0, 90)
    done: Counter[str] = Counter()
    for number in range(1, KILLS + 1):
        add_file(tmp_path, number)
        time.sleep(chance.uniform(0.2, 2))
        up.wait_for("a process to kill", lambda: bool(targets(up)), 30)
        frozen_s = chance.choice([0.0, chance.uniform(0.1, 6)])
        with suppress(ProcessLookupError):  # its worker was faster
            done[hurt(seldom_hurt(targets(up), done, chance), frozen_s)] += 1
    wanted = Counter(range((KILLS + 1) * ROWS))
    up.wait_for("all rows", lambda: ids(tmp_path).total() >= wanted.total(), 240)
    assert up.end() == 0, up.tail()
    assert ids(tmp_path) == wanted
    say(f"{dict(done)}, {wanted.total()} rows once each")
