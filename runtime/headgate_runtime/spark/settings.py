"""The Spark on which tasks run, as a pipeline file or a worker's file names it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DEFAULT_MASTER: Final = "local[2]"
DRIVER_TIMEOUT: Final = "headgate.spark.driver.timeout.ms"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    master: str | None = None
    """Master of the Spark that is started here. None with `remote`."""
    remote: str | None = None
    """Address (``sc://host:port``) of a Spark Connect server that is not ours."""
    conf: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    """Address of this machine that executors reach. Empty: it is found out."""
    driver_timeout_ms: int = 60_000
    """How long the driver of our Spark may be silent before it is killed, in ms. 0: for ever."""
