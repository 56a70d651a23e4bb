"""PySpark's daemon of executors with what tasks need loaded already.

The daemon forks a process for each task. What it has imported, its children have for nothing: a
task then begins in a fraction of a second, where it would spend most of one second of CPU on
imports, and idle tasks share that memory.
"""

import contextlib
import importlib
import os

PRELOADED = (
    "pyspark.worker",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "pandas",
    "pyarrow",
    "pyarrow.parquet",
    "orjson",
    "apsw",
    "headgate.connector.api",
    "headgate_spark.executor",
    "headgate_spark.slices",
)
PRELOAD_VARIABLE = "HEADGATE_PRELOAD"
"""Names of further modules, parted by commas: the task body and what it needs."""


def preload() -> None:
    """Import what is there; what is not will be missed, or not, by who needs it."""
    # A fork copies one thread only; a library's pool of threads must not be among what is lost.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    named = [name for name in os.environ.get(PRELOAD_VARIABLE, "").split(",") if name]
    for name in (*PRELOADED, *named):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    manager()
