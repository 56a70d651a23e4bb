"""A pipeline from files into a table and from there into another, whose processes a test kills and
freezes."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from support.commands.pipelines import Up
from support.commands.processes import hurt, seldom_hurt
from support.depth import tries

COLUMNS = ["id", "price", "part"]
CLUSTER = """
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
"""
ROWS = 10_000
Rows = Counter[tuple[Any, ...]]


def rows_of(table: Any) -> Rows:
    """Return the rows of a pyarrow.Table with the count of each. None stands for no table yet."""
    if table is None:
        return Counter()
    columns = [table.column(name).to_pylist() for name in COLUMNS]
    return Counter(zip(*columns, strict=True))


def add_file(folder: Path, number: int) -> None:
    """Add one more file for the first source. The file appears whole, because it is renamed."""
    ids = range(number * ROWS, (number + 1) * ROWS)
    prices = pa.array([Decimal(n).scaleb(-2) for n in ids], pa.decimal128(12, 2))
    parts = [f"p{n % 3}" for n in ids]
    draft = folder / f"{number}.draft"
    pq.write_table(pa.table({"id": ids, "price": prices, "part": parts}), draft)
    draft.rename(folder / "in" / f"{number}.parquet")


def kill_on_the_way(
    folder: Path,
    ups: list[Up],
    say: Callable[[str], None],
    connectors: str,
    read: Callable[[str], Any],
) -> None:
    """Run the pipeline, hurt its processes, and assert that `table` and `copy` have each row once.

    Args:
        connectors: connectors from the topic `rows` to the table `copy`, as a pipeline file has
            them.
        read: returns the table of that name as a pyarrow.Table, or None while there is none.
    """
    seed = int(os.environ.get("HEADGATE_SEED", random.randrange(2**32)))
    say(f"HEADGATE_SEED={seed}")
    chance, wanted = random.Random(seed), tries(1, 20)
    (folder / "in").mkdir()
    cluster = CLUSTER.replace("{workers}", str(tries(1, 2)))
    (folder / "pipeline.toml").write_text(cluster + connectors)
    add_file(folder, 0)
    up = Up(folder).start()
    ups.append(up)
    up.wait_for("rows in the copy", lambda: rows_of(read("copy")).total() > 0, 90)
    done: Counter[str] = Counter()
    files = 1
    while done.total() < wanted:
        add_file(folder, files)
        files += 1
        time.sleep(chance.uniform(0.1, 1.5))
        alive = [one for one in up.look() if "headgate_runtime" in one.command]
        frozen_s = chance.choice([0.0, chance.uniform(0.1, 6.0)]) if wanted > 1 else 0.0
        if not alive:  # all were killed a moment ago
            continue
        with suppress(ProcessLookupError):  # its worker was faster
            done[hurt(seldom_hurt(alive, done, chance), frozen_s)] += 1
        most = rows_of(read("copy")).most_common(1)
        assert not most or most[0][1] == 1, f"the copy has a row twice: {most}"
    whole = files * ROWS
    up.wait_for("all rows", lambda: rows_of(read("copy")).total() >= whole, tries(90, 300))
    assert up.end() == 0, up.tail()
    expected = Counter((n, Decimal(n).scaleb(-2), f"p{n % 3}") for n in range(whole))
    assert rows_of(read("table")) == expected
    assert rows_of(read("copy")) == expected
    say(f"{dict(done)}, {whole} rows once each")
