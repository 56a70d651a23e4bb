"""Parquet files through the embedded log to Parquet files, with three transforms at the source.

The chain drops a field, renames one, casts two, and masks one. It runs on batches of Arrow rows,
and then row by row. A header converter is set for the second, since with one no batches are made.
Time and CPU are measured as in `files`.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.files import (
    BY_RECORD,
    PARQUET,
    PIPELINE,
    REPEATS,
    Cost,
    UpJob,
    line_of,
    moved,
    write_files,
)
from bench.medians import medians

ROWS = int(os.environ.get("HEADGATE_BENCH_ROWS", "1000000"))
FEW = ROWS // 20
CHAIN = """
transforms = "cut,cast,hide"
"transforms.cut.type" = "ReplaceField$Value"
"transforms.cut.exclude" = "text"
"transforms.cut.renames" = "id:number"
"transforms.cast.type" = "Cast$Value"
"transforms.cast.spec" = "number:string,pieces:int64"
"transforms.hide.type" = "MaskField$Value"
"transforms.hide.fields" = "customer"
"transforms.hide.replacement" = "***"
"""
WAYS = {
    "batches": (ROWS, ""),
    "batches, 3 transforms": (ROWS, CHAIN),
    "records": (FEW, BY_RECORD),
    "records, 3 transforms": (FEW, f"{CHAIN}{BY_RECORD}"),
}


def run() -> Iterator[str]:
    """Yield report lines: rate and CPU of each way, with and without transforms."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as made:
        folder = Path(made)
        write_files(folder / str(ROWS), ROWS, PARQUET)
        write_files(folder / str(FEW), FEW, PARQUET)
        yield f"{ROWS:,} rows ({FEW:,} row by row) of 6 columns; medians of {REPEATS}, in turns"
        costs: dict[str, list[Cost]] = {name: [] for name in WAYS}
        with contextlib.ExitStack() as running:
            jobs = {
                name: running.enter_context(
                    UpJob(folder / name, PIPELINE.format(more=more, rotate=rows // 4), "write")
                )
                for name, (rows, more) in WAYS.items()
            }
            for turn in range(REPEATS):
                for name, (rows, _) in WAYS.items():
                    costs[name].append(moved(jobs[name], folder / str(rows), rows, turn))
        first = medians(costs["records, 3 transforms"])
        yield f"{'':24}{'rows/s':>12}{'us CPU/row':>12}{'of records':>13}{'of its CPU':>12}"
        for name, found in costs.items():
            yield line_of(name, medians(found), first)
