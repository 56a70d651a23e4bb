"""What a worker needs of Spark: the launcher of its resident tasks. Imported where it is used."""

from collections.abc import Mapping

from headgate.ports import Launcher

START_TIMEOUT = "start.timeout.s"
"""Set where Spark starts beside the worker: how many seconds tasks wait until it listens."""
OUTAGE_FILE = "outage.file"
"""Set where Spark starts beside the worker: the file that says why its driver was ended, if it was.
"""
HOST = "host"
"""Address of this machine that executors reach."""
BODY = "headgate_runtime.tasks.main:run"
"""The same body as in a process of ours; executors import it by this name."""


def spark_launcher(spark: Mapping[str, str]) -> Launcher:
    """
    Raises:
        ValueError: `spark` has no ``remote``, the address of a Spark Connect server.
    """
    if "remote" not in spark:
        raise ValueError("the task runner is spark, but no Spark Connect server is named")
    from headgate_spark.launcher import SparkLauncher

    patience_s = float(spark.get(START_TIMEOUT, "0"))
    return SparkLauncher(spark["remote"], BODY, patience_s, spark.get(OUTAGE_FILE, ""))
