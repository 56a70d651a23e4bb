"""Iceberg tables whose catalog is in a PostgreSQL of its own, which is stopped on the way."""

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from support.commands.pipelines import Up
from support.commands.table_to_table import CLUSTER, ROWS, add_file, kill_on_the_way, rows_of
from support.iceberg.lake import CatalogContract, Lake, rows
from support.postgres.server import Postgres
from support.task.iceberg_tables import PLACE, TABLE_TO_TABLE
from support.task.table_sources import drain, tasks_of

from headgate_connectors.iceberg_source import IcebergSource
from headgate_connectors.tables.iceberg_catalog import catalog_of
from headgate_connectors.tables.iceberg_connection import CatalogAwayError, CatalogConnection
from headgate_connectors.tables.sink import TableError

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

USER, PASSWORD, WRONG = "lake", "p@ss:w/ord #1?&%é", "wr0ng-one"
DATABASES = count()


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    made = Postgres().start()
    made.add_user(USER, PASSWORD)
    yield made
    made.stop()


class PostgresLake(Lake):
    """A database of its own on the server, and a folder for the tables."""

    def __init__(self, server: Postgres, folder: Path) -> None:
        super().__init__("shop")
        self.database = f"lake{next(DATABASES)}"
        server.sql(f"CREATE DATABASE {self.database}")
        self._server = server
        self._folder = folder

    def catalog(self) -> Mapping[str, str]:
        return {
            "catalog.type": "sql",
            "catalog.uri": self._server.address(USER, self.database),
            "catalog.password": PASSWORD,
            "catalog.warehouse": (self._folder / "w").as_uri(),
        }

    def read(self, name: str) -> Any:
        address = self._server.address(f"{USER}:{quote(PASSWORD, safe='')}", self.database)
        with closing(SqlCatalog("default", uri=address)) as found:
            try:
                return found.load_table(name if "." in name else f"shop.{name}").scan().to_arrow()
            except NoSuchTableError:
                return None

    def connections(self) -> int:
        query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{self.database}'"
        return int(self._server.sql(query))

    def await_no_connection(self) -> None:
        deadline = time.monotonic() + 20
        while self.connections():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def lake(server: Postgres, tmp_path: Path) -> Iterator[PostgresLake]:
    yield PostgresLake(server, tmp_path)
    server.halt()  # whatever a test left connected
    server.resume()


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[list[Up]]:
    started: list[Up] = []
    yield started
    for up in started:
        up.clean_up()


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


class TestCatalog(CatalogContract):
    """The tests that hold with every catalog."""


class Beginner(threading.Thread):
    """A task that begins in the same moments as others."""

    def __init__(self, lake: PostgresLake, together: threading.Barrier, partitions: str) -> None:
        super().__init__()
        self._lake, self._together, self._partitions = lake, together, partitions
        self.error: BaseException | None = None

    def run(self) -> None:
        catalog = CatalogConnection(catalog_of(self._lake.config()), TableError)
        try:
            self._together.wait(60)
            assert catalog.table("shop.rows") is None
            self._together.wait(60)
            catalog.ensure_namespace("shop")
            task = self._lake.sink(rotate_records=1, partition_by=self._partitions)
            self._together.wait(60)
            task.put(rows(0))
            task.stop()
        except BaseException as error:
            self.error = error
            self._together.abort()
        finally:
            catalog.close()


@pytest.mark.parametrize("partitions", ["", "bucket(4, n)"])
def test_many_tasks_begin_at_once_in_an_empty_database(
    server: Postgres, tmp_path: Path, partitions: str
) -> None:
    """The catalog's own tables, the namespace and the table are made by one of them."""
    for turn in range(5):
        lake = PostgresLake(server, tmp_path / str(turn))
        together = threading.Barrier(8)
        tasks = [Beginner(lake, together, partitions) for _ in range(8)]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()
        errors = [shown(task.error) for task in tasks if task.error is not None]
        assert not errors
        assert lake.numbers() == [0]


def test_a_server_that_is_away_costs_a_sink_time_and_no_row(
    lake: PostgresLake, server: Postgres
) -> None:
    sink = lake.sink(rotate_records=1)
    sink.put(rows(0))
    server.halt()
    for _ in range(2):
        with pytest.raises(CatalogAwayError) as told:
            sink.put(rows(1))
        text = str(told.value)
        address = f"postgresql://{USER}@127.0.0.1:{server.port}/{lake.database}"
        assert f"which is tried again: catalog default (sql at {address}) does not answer" in text
        assert PASSWORD not in shown(told.value)
    late = lake.sink(rotate_records=1)
    with pytest.raises(CatalogAwayError):
        late.put(rows(0))
    server.resume()
    sink.put(rows(1))
    late.put(rows(0))
    assert late.context.seeks == {PLACE: 2}  # type: ignore[attr-defined]
    late.put(rows(2))
    assert lake.numbers() == [0, 1, 2]


def test_a_server_that_is_started_anew_costs_a_source_nothing(
    lake: PostgresLake, server: Postgres
) -> None:
    sink = lake.sink(rotate_records=1)
    sink.put(rows(0))
    (source,) = tasks_of(IcebergSource, lake.config(topic="t"))
    read = drain(source)
    server.halt()
    for _ in range(2):
        with pytest.raises(CatalogAwayError):
            source.poll()
    server.resume()
    sink.put(rows(1))
    server.halt()
    server.resume()
    assert drain(source, read).column("n") == [0, 1]


def test_a_source_keeps_one_connection_and_closes_it(lake: PostgresLake) -> None:
    sink = lake.sink(rotate_records=1)
    sink.put(rows(0))
    sink.stop()
    lake.await_no_connection()
    (source,) = tasks_of(IcebergSource, lake.config(topic="t"))
    for _ in range(20):
        source.poll()
    assert lake.connections() == 1
    source.stop()
    lake.await_no_connection()


def test_a_wrong_password_is_refused_at_once_and_not_shown(lake: PostgresLake) -> None:
    with pytest.raises(TableError, match="password authentication failed for user") as told:
        lake.sink(catalog_password=WRONG)
    assert WRONG not in shown(told.value)
    lake.sink(catalog_password=PASSWORD)


def test_a_pipeline_goes_on_after_its_catalog_was_away(
    tmp_path: Path, lake: PostgresLake, server: Postgres, ups: list[Up]
) -> None:
    (tmp_path / "in").mkdir()
    connectors = TABLE_TO_TABLE.replace("{catalog}", lake.lines())
    (tmp_path / "pipeline.toml").write_text(CLUSTER.replace("{workers}", "1") + connectors)
    add_file(tmp_path, 0)
    up = Up(tmp_path).start()
    ups.append(up)
    up.wait_for("rows in the copy", lambda: rows_of(lake.read("copy")).total() > 0, 90)
    server.halt()
    add_file(tmp_path, 1)
    for task in ("write-0", "again-0"):
        told = f"task {task}: table shop.table cannot be looked at, which is tried again"
        up.wait_for(told, lambda told=told: told in up.tail(2000), 60)  # type: ignore[misc]
    server.resume()
    whole = 2 * ROWS
    up.wait_for("all rows", lambda: rows_of(lake.read("copy")).total() >= whole, 90)
    assert up.end() == 0, up.tail()
    for name in ("table", "copy"):
        found = rows_of(lake.read(name))
        assert set(found.values()) == {1}
        assert Counter(row[0] for row in found) == Counter(range(whole))
    assert "FAILED" not in up.tail(5000)
    for file in (tmp_path / "up.txt", *tmp_path.glob("state/logs/*.log")):
        assert PASSWORD not in file.read_text(errors="replace"), file


def test_kills_lose_and_double_nothing_from_table_to_table(
    tmp_path: Path, lake: PostgresLake, ups: list[Up], say: Callable[[str], None]
) -> None:
    connectors = TABLE_TO_TABLE.replace("{catalog}", lake.lines())
    kill_on_the_way(tmp_path, ups, say, connectors, lake.read)
