"""Packages that only some commands need, with the extra that installs each.

`pip install headgate` is enough for `up` with the runners `thread` and `process`, and for
`plugins`, `replay` and `assign`.
"""

import importlib.util
from collections.abc import Mapping
from typing import Final

from headgate.errors import MissingExtraError

EXTRAS: Final[Mapping[str, str]] = {
    "confluent_kafka": "kafka",
    "cryptography": "kafka",
    "javaproperties": "kafka",
    "kafka": "kafka",
    "httpcore": "rest",
    "prometheus_client": "rest",
    "starlette": "rest",
    "uvicorn": "rest",
    "deltalake": "delta",
    "fsspec": "fsspec",
    "s3fs": "fsspec",
    "grpc": "spark",
    "pandas": "spark",
    "pyspark": "spark",
    "matplotlib": "plots",
    "pyiceberg": "iceberg",
    "pyarrow": "connectors",
    "fastavro": "registry",
    "grpc_tools": "registry",
}
"""Importable package -> the extra that installs it."""

EXTRAS_OF_PLUGINS: Final[Mapping[str, str]] = {
    "headgate_connectors.delta_sink": "delta",
    "headgate_connectors.delta_source": "delta",
    "headgate_connectors.iceberg_sink": "iceberg",
    "headgate_connectors.iceberg_source": "iceberg",
    "headgate_spark": "spark",
}
"""Module or package of connectors -> the extra with all that they need. `pyarrow` is in several."""


def missing_extra(error: ImportError, plugin: str = "") -> MissingExtraError | None:
    """Return the extra whose absence caused `error`, or None if the module belongs to none.
    `plugin` is the module of the connector that was imported."""
    package = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in EXTRAS:
        return None
    for name in (plugin, plugin.partition(".")[0]):
        if name in EXTRAS_OF_PLUGINS:
            return MissingExtraError(EXTRAS_OF_PLUGINS[name])
    return MissingExtraError(EXTRAS[package])


def require(package: str) -> None:
    """Check that a package of `EXTRAS` is installed, before work begins that imports it.

    Raises:
        MissingExtraError: it is not installed.
    """
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(EXTRAS[package])
