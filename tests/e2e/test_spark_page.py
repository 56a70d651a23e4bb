"""The five minutes of docs/run/spark.md, from a notebook to a pipeline, run as a user runs them."""

import json
import os
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support.commands.pipelines import HEADGATE
from support.pages import block
from support.spark.shared import spark_server  # noqa: F401

from headgate_spark.server import SparkServer
from headgate_spark.sessions import Sessions

PAGE = "docs/run/spark.md"
ROWS = [
    {"id": 1, "customer": "Ada", "amount": 12.5, "at": "2026-01-02T03:04:05Z"},
    {"id": 2, "customer": None, "amount": 9_999_999_999.99, "at": "2026-01-02T03:04:05.123456Z"},
]

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def test_the_pipeline_gives_what_the_notebook_gives(
    tmp_path: Path,
    spark_server: SparkServer,  # noqa: F811
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "orders.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "pipeline.toml").write_text(block(PAGE, "toml", "[connectors.lake]"))
    up(tmp_path)
    found = DeltaTable(tmp_path / "table").to_pyarrow_table().sort_by("id")
    assert found["amount"].to_pylist() == [Decimal("12.50"), Decimal("9999999999.99")]
    assert found.to_pylist() == in_the_notebook(spark_server, tmp_path)
    # What comes later is added, and nothing is there twice.
    later = {**ROWS[0], "id": 3}
    (folder / "more.json").write_text(json.dumps(later) + "\n")
    up(tmp_path)
    table = DeltaTable(tmp_path / "table").to_pyarrow_table()
    assert sorted(table["id"].to_pylist()) == [1, 2, 3]


def up(folder: Path) -> None:
    """Run `headgate up` until all input is read, as for a nightly job."""
    command = [str(HEADGATE), "up", "--until-idle", "pipeline.toml"]
    subprocess.run(command, cwd=folder, check=True, timeout=600)


def in_the_notebook(server: SparkServer, folder: Path) -> list[Any]:
    """Return what the first line of the notebook reads. The second needs a jar of Delta, which is
    not installed."""
    read, write = block(PAGE, "py", "spark.read").splitlines()
    assert write.startswith("orders.write.")
    assert read.count('.json("in")') == 1
    sessions = Sessions(server.address)
    try:
        named: dict[str, Any] = {"spark": sessions.get()}
        exec(read.replace('"in"', repr(os.fspath(folder / "in"))), named)
        rows: list[Any] = named["orders"].toArrow().sort_by("id").to_pylist()
        return rows
    finally:
        sessions.close()
