"""What a worker needs of Spark: the launcher of its resident tasks. Imported where it is used."""

from collections.abc import Mapping

from headgate.ports import Launcher

START_TIMEOUT = "start.timeout.s"
"""Set where Spark starts beside the worker: how many seconds tasks wait until it listens."""
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

    return SparkLauncher(spark["remote"], BODY, float(spark.get(START_TIMEOUT, "0")))
