"""A process that writes numbers into an Iceberg table with an IcebergSinkTask, and kills or stops
itself on the way.

The catalog is a file of SQLite. Run as ``python iceberg_process.py FOLDER KEYS STEP COUNT SIGNAL``.
The process sends itself the signal when it comes to `STEP` for the `COUNT`-th time.
"""

import sys
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.tables.iceberg_table import IcebergTarget

sys.path.insert(0, str(Path(__file__).parents[2]))
from support.task.delta_process import drive, hook_batches, killing
from support.task.iceberg_tables import catalog, config_of

STEPS = ("create", "created", "write", "staged", "written", "group")
"""Steps of a commit. At `staged` the files are written, and the catalog does not know of them."""
LOOK = "batch"
"""The step before the task looks at the table."""


def hook(wanted: str, count: int, number: int) -> dict[str, Any]:
    at = {step: killing(step, wanted, count, number) for step in (LOOK, *STEPS)}
    hook_batches(IcebergTarget, at)
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


def main(folder: str, keys: str, step: str, count: str, number: str) -> None:
    at = hook(step, int(count), int(number))
    drive(IcebergSinkTask(), config_of(Path(folder)), keys, at)


def rows(folder: Path) -> list[int]:
    table = SqlCatalog("default", **catalog(folder)).load_table("shop.rows")
    return sorted(table.scan().to_arrow()["n"].to_pylist())


if __name__ == "__main__":
    main(*sys.argv[1:])
