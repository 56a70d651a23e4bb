"""PySpark's daemon of executors with what tasks need loaded already.

The daemon forks a process for each task. What it has imported, its children have for nothing: a
task then begins in a fraction of a second, where it would spend most of one second of CPU on
imports, and idle tasks share that memory.
"""

import contextlib
import gc
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
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
PRELOAD_VARIABLE = "HEADGATE_PRELOAD"
"""Names of further modules, parted by commas: the task body and what it needs."""


def preload() -> None:
    """Imports what is there. A module that is missing fails where it is needed, if at all."""
    # A fork copies one thread only; neither a library's pool nor a helper may be among what is
    # lost, holding a lock that nobody will give back.
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)
    named = [name for name in os.environ.get(PRELOAD_VARIABLE, "").split(",") if name]
    for name in (*PRELOADED, *named):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # A collection in a child would write to, and so copy, every page that it shares with us.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    manager()
