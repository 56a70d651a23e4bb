"""Moves Parquet files to Parquet files with dlt. `bench.files` runs it in an environment with dlt.

The arguments are the folder that is read, the folder that is written and one for dlt's own state.
dlt gets Arrow tables as pyarrow reads them, which is its quickest way. The program prints seconds
and CPU seconds, including those of child processes, without the time for imports.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

import dlt
import pyarrow.parquet as pq
from dlt.destinations import filesystem


def cpu() -> float:
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def tables(folder: str) -> Iterator[Any]:
    for path in sorted(Path(folder).iterdir()):
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)


def main(source: str, target: str, state: str) -> None:
    began, spent = time.perf_counter(), cpu()
    pipeline = dlt.pipeline(
        pipeline_name="bench",
        pipelines_dir=state,
        destination=filesystem(bucket_url=Path(target).as_uri()),
        dataset_name="out",
    )
    rows = dlt.resource(tables(source), name="rows")
    pipeline.run(rows, loader_file_format="parquet", write_disposition="append")
    print(time.perf_counter() - began, cpu() - spent)


main(*sys.argv[1:])
