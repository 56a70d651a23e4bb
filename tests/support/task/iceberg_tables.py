"""Tasks of IcebergSink on a table shop.rows, whose catalog is a file of SQLite."""

from pathlib import Path
from typing import Any

from headgate.testing import FakeSinkContext
from headgate_connectors.iceberg_sink import IcebergSinkTask

PLACE = ("t", 0)


def catalog(folder: Path) -> dict[str, str]:
    """Properties of the catalog."""
    return {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "w").as_uri()}


def config_of(folder: Path) -> dict[str, str]:
    """The connector config with that catalog."""
    own = {f"catalog.{name}": text for name, text in catalog(folder).items()}
    return {"name": "sink", "table": "shop.rows", "catalog.type": "sql", **own}


def iceberg_task(folder: Path, **settings: Any) -> IcebergSinkTask:
    """A task that has started and has the partition `PLACE`; nobody takes its bad records.

    `settings`: keys with underscores in place of points.
    """
    made = IcebergSinkTask()
    made.context = FakeSinkContext(reports=False)
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    made.start({"rotate.interval.ms": "600000", **config_of(folder), **given})
    made.open([PLACE])
    return made
