"""Tasks of an IcebergSink on the table shop.rows. The catalog is a file of SQLite."""

from pathlib import Path
from typing import Any

from headgate.testing import FakeSinkContext
from headgate_connectors.iceberg_sink import IcebergSinkTask

PLACE = ("t", 0)
TABLE_TO_TABLE = """
[connectors.write]
"connector.class" = "IcebergSink"
topics = "rows"
table = "shop.table"
{catalog}
"rotate.records" = 2000
"rotate.interval.ms" = 500

[connectors.again]
"connector.class" = "IcebergSource"
table = "shop.table"
{catalog}
topic = "again"
shares = 2
"tasks.max" = 2
"batch.rows" = 300
"poll.interval.ms" = 200

[connectors.copy]
"connector.class" = "IcebergSink"
topics = "again"
table = "shop.copy"
{catalog}
"rotate.records" = 2000
"rotate.interval.ms" = 500
"""
"""Connectors of a pipeline that writes the topic rows to a table, and copies that table into
another one."""


def catalog(folder: Path) -> dict[str, str]:
    """Return the properties of the catalog."""
    return {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "w").as_uri()}


def config_of(folder: Path) -> dict[str, str]:
    """Return a connector config with that catalog."""
    own = {f"catalog.{name}": text for name, text in catalog(folder).items()}
    return {"name": "sink", "table": "shop.rows", "catalog.type": "sql", **own}


def iceberg_task(folder: Path, **settings: Any) -> IcebergSinkTask:
    """Return a started task that has the partition `PLACE`. Its context takes no errant records.

    `settings` are config keys with underscores in place of dots.
    """
    made = IcebergSinkTask()
    made.context = FakeSinkContext(reports=False)
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    made.start({"rotate.interval.ms": "600000", **config_of(folder), **given})
    made.open([PLACE])
    return made
