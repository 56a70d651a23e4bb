"""The settings of Spark in a worker's properties file."""

from collections.abc import Mapping

from headgate_runtime.command.errors import EXIT_USAGE, UpError
from headgate_runtime.config.properties import PropertiesError, read_properties
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.spark.launcher import HOST
from headgate_runtime.spark.settings import DRIVER_TIMEOUT, SparkSettings

CONF_FILE = "headgate.spark.conf.file"
HOST_SETTING = "headgate.spark.host"
REMOTE = "headgate.spark.remote"


def spark_settings(settings: WorkerSettings) -> SparkSettings:
    """Return the settings of Spark.

    Raises:
        UpError: the file of Spark's settings cannot be read, or has other settings.
    """
    host = settings[HOST_SETTING].strip()
    if settings[REMOTE]:
        return SparkSettings(remote=settings[REMOTE], host=host)
    conf = _conf(settings[CONF_FILE])
    return SparkSettings(
        master=settings["headgate.spark.master"],
        conf=conf,
        host=host,
        driver_timeout_ms=settings[DRIVER_TIMEOUT],
    )


def of_remote(spark: SparkSettings) -> dict[str, str]:
    """Return the worker's settings for a Spark Connect server that already runs.

    Raises:
        UpError: it is not known how executors reach this machine.
    """
    from headgate_spark.hosts import HostError, address_for

    assert spark.remote is not None
    try:
        host = address_for(spark.remote, spark.host, HOST_SETTING)
    except HostError as error:
        raise UpError(str(error)) from None
    return {"remote": spark.remote, HOST: host}


def _conf(path: str) -> Mapping[str, str]:
    """Return the settings of a file like Spark's own ``spark-defaults.conf``."""
    if not path:
        return {}
    try:
        found = read_properties(path).values
    except PropertiesError as error:
        raise UpError(f"{CONF_FILE}: {error}") from None
    for key in found:
        if not key.startswith("spark."):
            text = f"{CONF_FILE}: {path} has {key}, expected settings of Spark: spark.{key}"
            raise UpError(text, EXIT_USAGE)
    return found
