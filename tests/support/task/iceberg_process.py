"""A process that writes numbers into an Iceberg table by IcebergSinkTask, and kills itself on the
way. Its catalog is a file of SQLite.

Run as ``python iceberg_process.py FOLDER KEYS STEP COUNT``: `COUNT`-th time at `STEP`.
"""

import sys
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from headgate.connector.api import SinkRecord
from headgate.testing import FakeSinkContext
from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.tables.iceberg_table import IcebergTarget

sys.path.insert(0, str(Path(__file__).parents[2]))
from support.task.delta_process import (
    BATCH,
    FEWER,
    PLACE,
    RECORDS,
    ROW,
    killing,
)

STEPS = ("create", "created", "write", "staged", "written", "group")
"""`staged`: the files are written, and the catalog has not heard of them."""


def catalog(folder: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "w").as_uri()}


def hook(wanted: str, count: int) -> dict[str, Any]:
    at = {step: killing(step, wanted, count) for step in STEPS}
    create, write, commit = IcebergTarget._create, IcebergTarget._write, Table._do_commit

    def creates(self: Any, columns: Any) -> None:
        at["create"]()
        create(self, columns)
        at["created"]()

    def writes(self: Any, table: Any, batch: Any) -> None:
        at["write"]()
        write(self, table, batch)
        at["written"]()

    def commits(self: Any, *given: Any, **named: Any) -> None:
        at["staged"]()
        commit(self, *given, **named)

    IcebergTarget._create, IcebergTarget._write = creates, writes  # type: ignore[method-assign]
    Table._do_commit = commits  # type: ignore[method-assign]
    return at


def main(folder: str, keys: str, step: str, count: str) -> None:
    at = hook(step, int(count))
    task = IcebergSinkTask()
    context = task.context = FakeSinkContext()
    upsert = {"write.mode": "upsert", "key.columns": "n"} if keys == "keys" else {}
    more = {"schema.evolution": "add_columns", "rotate.records": str(BATCH)}
    own = {f"catalog.{name}": text for name, text in catalog(Path(folder)).items()}
    config = {"name": "sink", "table": "shop.rows", "catalog.type": "sql", **own}
    task.start({**config, "rotate.interval.ms": "60000", **more, **upsert})
    task.open([PLACE])
    for n in range(max(context.seeks.values(), default=0), RECORDS):
        value, schema = ({"n": n}, FEWER) if n < RECORDS // 2 else ({"n": n, "late": "x"}, ROW)
        task.put([SinkRecord("t", 0, n, None, value, (), 0, None, schema)])
        if task.pre_commit({PLACE: n + 1}).get(PLACE) == n + 1:
            at["group"]()


def rows(folder: Path) -> list[int]:
    table = SqlCatalog("default", **catalog(folder)).load_table("shop.rows")
    return sorted(table.scan().to_arrow()["n"].to_pylist())


if __name__ == "__main__":
    main(*sys.argv[1:])
