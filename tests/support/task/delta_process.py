"""A process that writes numbers into a Delta table by DeltaSinkTask, and kills itself on the way.

Run as ``python delta_process.py FOLDER KEYS STEP COUNT``: `COUNT`-th time at `STEP`.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import deltalake

from headgate.connector import schema as s
from headgate.connector.api import SinkRecord, SinkTask
from headgate.testing import FakeSinkContext
from headgate_connectors.delta_sink import DeltaSinkTask
from headgate_connectors.tables import delta_table

PLACE = ("t", 0)
ROW = s.struct({"n": s.INT64, "late": s.STRING.as_optional()})
FEWER = s.struct({"n": s.INT64})
RECORDS, BATCH = 60, 10
STEPS = ("create", "created", "alter", "write", "written", "group")


def killing(step: str, wanted: str, count: int) -> Any:
    """Something to call at `step`."""
    seen = [0]

    def call() -> None:
        seen[0] += step == wanted
        if seen[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)

    return call


def hook(wanted: str, count: int) -> dict[str, Any]:
    at = {step: killing(step, wanted, count) for step in STEPS}
    target = delta_table.DeltaTarget
    create, add, write = target._create, target._add_columns, target._write

    def creates(self: Any, columns: Any) -> None:
        at["create"]()
        create(self, columns)
        at["created"]()

    def adds(self: Any, table: Any, batch: Any) -> bool:
        done = add(self, table, batch)
        if done:
            at["alter"]()
        return done

    def writes(self: Any, table: Any, batch: Any) -> None:
        at["write"]()
        write(self, table, batch)
        at["written"]()

    target._create, target._add_columns, target._write = creates, adds, writes  # type: ignore[method-assign]
    return at


def drive(task: SinkTask, config: dict[str, str], keys: str, at: dict[str, Any]) -> None:
    """Writes all numbers, in commits of `BATCH`; `keys` is "keys" for rows by key."""
    context = FakeSinkContext()
    task.context = context
    upsert = {"write.mode": "upsert", "key.columns": "n"} if keys == "keys" else {}
    more = {"schema.evolution": "add_columns", "rotate.records": str(BATCH)}
    task.start({"name": "sink", "rotate.interval.ms": "60000", **config, **more, **upsert})
    task.open([PLACE])
    for n in range(max(context.seeks.values(), default=0), RECORDS):
        value, schema = ({"n": n}, FEWER) if n < RECORDS // 2 else ({"n": n, "late": "x"}, ROW)
        task.put([SinkRecord("t", 0, n, None, value, (), 0, None, schema)])
        if task.pre_commit({PLACE: n + 1}).get(PLACE) == n + 1:
            at["group"]()


def main(folder: str, keys: str, step: str, count: str) -> None:
    drive(DeltaSinkTask(), {"path": str(Path(folder) / "table")}, keys, hook(step, int(count)))


def rows(folder: Path) -> list[int]:
    table = deltalake.DeltaTable(folder / "table").to_pyarrow_table()
    return sorted(row["n"] for row in table.to_pylist())


if __name__ == "__main__":
    main(*sys.argv[1:])
