"""A Delta table that one sink writes is copied into another one, while tasks are killed and
frozen."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from support.commands.pipelines import HEADGATE, Up
from support.commands.table_to_table import kill_on_the_way
from support.depth import first

pytestmark = pytest.mark.slow

CONNECTORS = """
[connectors.write]
"connector.class" = "DeltaSink"
topics = "rows"
path = "table"
"partition.by" = "part"
"rotate.records" = 2000
"rotate.interval.ms" = 500

[connectors.again]
"connector.class" = "DeltaSource"
path = "table"
topic = "again"
shares = 2
"tasks.max" = 2
"batch.rows" = 300
"poll.interval.ms" = 100

[connectors.copy]
"connector.class" = "DeltaSink"
topics = "again"
path = "copy"
"rotate.records" = 2000
"rotate.interval.ms" = 500
"""


def test_kills_lose_and_double_nothing_from_table_to_table(
    tmp_path: Path, ups: list[Up], say: Callable[[str], None]
) -> None:
    def read(name: str) -> Any:
        if not DeltaTable.is_deltatable(str(tmp_path / name)):
            return None
        return DeltaTable(tmp_path / name).to_pyarrow_table()

    kill_on_the_way(tmp_path, ups, say, CONNECTORS, read)


RUNS = """
[cluster]
data = "state"
runner = "{runner}"

[spark]
master = "local[2]"

[connectors.again]
"connector.class" = "DeltaSource"
path = "table"
topic = "again"

[connectors.out]
"connector.class" = "DirectorySink"
topics = "again"
path = "out"
"""


@pytest.mark.parametrize("runner", first(1, ["process", "thread", "spark"]))
def test_it_reads_with_every_runner_until_all_is_read(tmp_path: Path, runner: str) -> None:
    text = RUNS.format(runner=runner)
    if runner != "spark":
        text = text.replace('[spark]\nmaster = "local[2]"\n', "")
    (tmp_path / "pipeline.toml").write_text(text)
    command = [str(HEADGATE), "up", "--until-idle", "pipeline.toml"]
    for start in (0, 100):
        rows = pa.table({"id": range(start, start + 100), "part": ["x", "y"] * 50})
        write_deltalake(tmp_path / "table", rows, mode="append", partition_by=["part"])
        subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
        found = pa.concat_tables(map(pq.read_table, (tmp_path / "out").glob("*.parquet")))
        assert sorted(found["id"].to_pylist()) == list(range(start + 100))
        assert set(found["part"].to_pylist()) == {"x", "y"}


@pytest.mark.exhaustive
def test_a_version_that_changes_rows_ends_the_run_with_its_name(tmp_path: Path) -> None:
    text = RUNS.format(runner="process").replace('[spark]\nmaster = "local[2]"\n', "")
    (tmp_path / "pipeline.toml").write_text(
        text.replace('path = "table"', 'path = "table"\n"starting.version" = 0')
    )
    for number in (1, 2):
        write_deltalake(tmp_path / "table", pa.table({"id": [number]}), mode="append")
    DeltaTable(tmp_path / "table").delete("id = 1")
    command = [str(HEADGATE), "up", "--until-idle", "--plain", "pipeline.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "(DELETE) takes rows away or rewrites them" in done.stdout + done.stderr
    found = pa.concat_tables(map(pq.read_table, (tmp_path / "out").glob("*.parquet")))
    assert sorted(found["id"].to_pylist()) == [1, 2], "what came before it is there"
    checked = subprocess.run(
        [str(HEADGATE), "up", "--check", "pipeline.toml"], cwd=tmp_path, check=False, timeout=300
    )
    assert checked.returncode == 0
