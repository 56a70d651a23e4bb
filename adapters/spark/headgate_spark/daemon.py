"""PySpark's daemon of executors with what tasks need loaded already.

The daemon forks a process for each task. What it has imported, its children have for nothing: a
task then begins in a fraction of a second, where it would spend most of one second of CPU on
imports, and idle tasks share that memory.
"""

import contextlib
import importlib

PRELOADED = (
    "pyspark.worker",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.connect.session",
    "pandas",
    "pyarrow",
    "pyarrow.parquet",
    "orjson",
    "apsw",
    "headgate.connector.api",
    "headgate_spark.executor",
    "headgate_spark.batches",
)


def preload() -> None:
    """Import what is there; what is not will be missed, or not, by who needs it."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    manager()
