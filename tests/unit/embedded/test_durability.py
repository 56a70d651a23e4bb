"""The writes that survive a loss of power: each kind asks SQLite for the durability that it
needs."""

from pathlib import Path

import apsw
import pytest

from headgate_embedded.database import Database
from headgate_embedded.schema import FILE_NAME

FULL, NORMAL = 2, 1


def synchronous(connection: apsw.Connection) -> object:
    return connection.pragma("synchronous")


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / FILE_NAME)


def test_writes_are_synced_unless_they_say_otherwise(database: Database) -> None:
    with database.write() as connection:
        assert synchronous(connection) == FULL
    database.close()


def test_one_that_is_not_synced_leaves_nothing_behind(database: Database) -> None:
    """The connection is used again: the next write must be synced."""
    with database.write(synced=False) as connection:
        assert synchronous(connection) == NORMAL
    with database.write() as again:
        assert again is connection
        assert synchronous(again) == FULL
    database.close()
