"""The examples of docs/run/tables.md run as they stand, except for the paths of files."""

import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from support.commands.pipelines import HEADGATE
from support.pages import block

PAGE = "docs/run/tables.md"
READS = """
[cluster]
data = "state"
runner = "process"

[connectors.read]
"connector.class" = "DirectorySource"
path = "in"
topic = "{topic}"

"""

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def run(folder: Path, topic: str, shown: str, *tables: Any) -> None:
    (folder / "in").mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / "in" / f"{number}.parquet")
    (folder / "pipeline.toml").write_text(READS.format(topic=topic) + shown)
    command = [str(HEADGATE), "up", "--until-idle", "pipeline.toml"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)


def test_rows_are_replaced_by_key_in_a_delta_table(tmp_path: Path) -> None:
    rows = {"id": [1, 2, 1], "name": ["a", "b", "c"]}
    run(tmp_path, "customers", block(PAGE, "toml", "[connectors.customers]"), pa.table(rows))
    found = DeltaTable(tmp_path / "customers").to_pyarrow_table().sort_by("id")
    assert found.to_pylist() == [{"id": 1, "name": "c"}, {"id": 2, "name": "b"}]


def test_a_delta_table_is_read(tmp_path: Path) -> None:
    rows = {"id": [1, 2], "name": ["a", None]}
    write_deltalake(tmp_path / "table", pa.table(rows))
    shown = block(PAGE, "toml", "[connectors.added]")
    sink = '[connectors.copy]\n"connector.class" = "DeltaSink"\ntopics = "orders"\npath = "copy"\n'
    run(tmp_path, "unused", f"{shown}\n{sink}")
    found = DeltaTable(tmp_path / "copy").to_pyarrow_table().sort_by("id")
    assert found.to_pydict() == rows


def test_an_iceberg_table_is_read(tmp_path: Path) -> None:
    shown = block(PAGE, "toml", "[connectors.rows]").replace("/data/", f"{tmp_path}/")
    rows = {"id": [1, 2], "name": ["a", None]}
    catalog = SqlCatalog(
        "default", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    catalog.create_namespace("shop")
    catalog.create_table("shop.orders", schema=pa.table(rows).schema).append(pa.table(rows))
    sink = '[connectors.copy]\n"connector.class" = "DeltaSink"\ntopics = "orders"\npath = "copy"\n'
    run(tmp_path, "unused", f"{shown}\n{sink}")
    found = DeltaTable(tmp_path / "copy").to_pyarrow_table().sort_by("id")
    assert found.to_pydict() == rows


def test_rows_come_into_an_iceberg_table(tmp_path: Path) -> None:
    shown = block(PAGE, "toml", "[connectors.orders_table]").replace("/data/", f"{tmp_path}/")
    assert str(tmp_path) in shown
    rows = {"id": [1, 2], "amount": [0.5, None]}
    run(tmp_path, "orders", shown, pa.table(rows))
    catalog = SqlCatalog(
        "default", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    found = catalog.load_table("shop.orders").scan().to_arrow().sort_by("id")
    assert found.to_pydict() == rows
