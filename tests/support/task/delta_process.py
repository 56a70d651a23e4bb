"""A process that writes numbers into a Delta table with a DeltaSinkTask, and kills or stops itself
on the way.

Run as ``python delta_process.py FOLDER KEYS STEP COUNT SIGNAL``. The process sends itself the
signal when it comes to `STEP` for the `COUNT`-th time.
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
STEPS = ("batch", "create", "created", "alter", "write", "written", "group")
"""Steps of a commit. At `batch` the task has not looked at the table yet, at `write` it has."""


def killing(step: str, wanted: str, count: int, number: int = signal.SIGKILL) -> Any:
    """Return a function to call at `step`, which sends signal `number` to this process at the
    `count`-th call."""
    seen = [0]

    def call() -> None:
        seen[0] += step == wanted
        if seen[0] == count:
            os.kill(os.getpid(), number)

    return call


def hook(wanted: str, count: int, number: int) -> dict[str, Any]:
    at = {step: killing(step, wanted, count, number) for step in STEPS}
    target = delta_table.DeltaTarget
    hook_batches(target, at)
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


def hook_batches(target: Any, at: dict[str, Any]) -> None:
    commit = target.commit

    def commits(self: Any, batch: Any) -> bool:
        at["batch"]()
        done: bool = commit(self, batch)
        return done

    target.commit = commits


def drive(task: SinkTask, config: dict[str, str], keys: str, at: dict[str, Any]) -> None:
    """Write all numbers, in commits of `BATCH`. With `keys` "keys", rows are upserted by key."""
    context = FakeSinkContext()
    task.context = context
    upsert = {"write.mode": "upsert", "key.columns": "n"} if keys == "keys" else {}
    more = {"schema.evolution": "add_columns", "rotate.records": str(BATCH)}
    task.start({"name": "sink", "rotate.interval.ms": "60000", **config, **more, **upsert})
    task.open([PLACE])
    n = context.seeks.get(PLACE, 0)
    while n < RECORDS:
        context.seeks.clear()
        value, schema = ({"n": n}, FEWER) if n < RECORDS // 2 else ({"n": n, "late": "x"}, ROW)
        task.put([SinkRecord("t", 0, n, None, value, (), 0, None, schema)])
        if task.pre_commit({PLACE: n + 1}).get(PLACE) == n + 1:
            at["group"]()
        n = context.seeks.get(PLACE, n + 1)


def main(folder: str, keys: str, step: str, count: str, number: str) -> None:
    at = hook(step, int(count), int(number))
    drive(DeltaSinkTask(), {"path": str(Path(folder) / "table")}, keys, at)


def rows(folder: Path) -> list[int]:
    table = deltalake.DeltaTable(folder / "table").to_pyarrow_table()
    return sorted(row["n"] for row in table.to_pylist())


if __name__ == "__main__":
    main(*sys.argv[1:])
