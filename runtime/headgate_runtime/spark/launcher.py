"""The part of Spark that a worker needs: the launcher of its resident tasks. Imported when used."""

from collections.abc import Mapping

from headgate.ports import Launcher

START_TIMEOUT = "start.timeout.s"
"""Set if Spark starts beside the worker: how many seconds tasks wait until it listens."""
OUTAGE_FILE = "outage.file"
"""Set if Spark starts beside the worker: the file that says why its driver was ended, if it was."""
HOST = "host"
"""Address of this machine that executors reach."""
BODY = "headgate_runtime.tasks.main:run"
"""Body of tasks, the same as in a process of ours. Executors import it by this name."""


def spark_launcher(spark: Mapping[str, str]) -> Launcher:
    """Return the launcher of tasks on Spark.

    Raises:
        ValueError: `spark` has no ``remote``, the address of a Spark Connect server.
    """
    if "remote" not in spark:
        raise ValueError("the task runner is spark, but no Spark Connect server is named")
    from headgate_spark.launcher import SparkLauncher

    patience_s = float(spark.get(START_TIMEOUT, "0"))
    return SparkLauncher(spark["remote"], BODY, patience_s, spark.get(OUTAGE_FILE, ""))
