"""An Iceberg table that one sink writes is copied into another one, while tasks are killed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from support.commands.pipelines import Up
from support.commands.table_to_table import kill_on_the_way
from support.task.iceberg_tables import TABLE_TO_TABLE, catalog

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def test_kills_lose_and_double_nothing_from_table_to_table(
    tmp_path: Path, ups: list[Up], say: Callable[[str], None]
) -> None:
    properties = {"type": "sql", **catalog(tmp_path)}
    own = "\n".join(f'"catalog.{name}" = "{text}"' for name, text in properties.items())

    def read(name: str) -> Any:
        if not (tmp_path / "catalog.db").exists():
            return None
        try:
            return (
                SqlCatalog("default", **catalog(tmp_path))
                .load_table(f"shop.{name}")
                .scan()
                .to_arrow()
            )
        except NoSuchTableError:
            return None

    kill_on_the_way(tmp_path, ups, say, TABLE_TO_TABLE.replace("{catalog}", own), read)
