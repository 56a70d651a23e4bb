"""Iceberg tables whose catalog is in a PostgreSQL of its own, which is stopped on the way."""

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
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
from support.postgres.server import Postgres
from support.task.iceberg_tables import PLACE, TABLE_TO_TABLE
from support.task.table_sources import drain, tasks_of

from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.testing import FakeSinkContext
from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.iceberg_source import IcebergSource
from headgate_connectors.tables.iceberg_catalog import catalog_of
from headgate_connectors.tables.iceberg_connection import CatalogAwayError, CatalogConnection
from headgate_connectors.tables.sink import TableError

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

USER, PASSWORD, WRONG = "lake", "p@ss:w/ord #1?&%é", "wr0ng-one"
ROW = s.struct({"n": s.INT64, "name": s.STRING})
DATABASES = count()


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    made = Postgres().start()
    made.add_user(USER, PASSWORD)
    yield made
    made.stop()


class Lake:
    """A database of its own on the server, and a folder for the tables."""

    def __init__(self, server: Postgres, folder: Path) -> None:
        self.database = f"lake{next(DATABASES)}"
        server.sql(f"CREATE DATABASE {self.database}")
        self._server = server
        self._folder = folder

    def config(self, **settings: Any) -> dict[str, str]:
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        return {
            "name": "sink",
            "table": "shop.rows",
            "rotate.interval.ms": "600000",
            "catalog.type": "sql",
            "catalog.uri": self._server.address(USER, self.database),
            "catalog.password": PASSWORD,
            "catalog.warehouse": (self._folder / "w").as_uri(),
            **given,
        }

    def sink(self, **settings: Any) -> IcebergSinkTask:
        made = IcebergSinkTask()
        made.context = FakeSinkContext(reports=False)
        made.start(self.config(**settings))
        made.open([PLACE])
        return made

    def read(self, name: str) -> Any:
        """A table of shop; None: there is none."""
        address = self._server.address(f"{USER}:{quote(PASSWORD, safe='')}", self.database)
        with closing(SqlCatalog("default", uri=address)) as found:
            try:
                return found.load_table(f"shop.{name}").scan().to_arrow()
            except NoSuchTableError:
                return None

    def numbers(self) -> list[int]:
        return sorted(self.read("rows")["n"].to_pylist())

    def connections(self) -> int:
        query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{self.database}'"
        return int(self._server.sql(query))

    def await_no_connection(self) -> None:
        deadline = time.monotonic() + 20
        while self.connections():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def lake(server: Postgres, tmp_path: Path) -> Iterator[Lake]:
    yield Lake(server, tmp_path)
    server.halt()  # whatever a test left connected
    server.resume()


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[list[Up]]:
    started: list[Up] = []
    yield started
    for up in started:
        up.clean_up()


def rows(*numbers: int) -> list[SinkRecord]:
    return [
        SinkRecord("t", 0, n, None, {"n": n, "name": f"é{n}"}, (), 0, None, ROW) for n in numbers
    ]


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_what_a_sink_writes_a_source_reads(lake: Lake) -> None:
    sink = lake.sink(rotate_records=2)
    sink.put(rows(0, 1))
    (source,) = tasks_of(IcebergSource, lake.config(topic="t"))
    read = drain(source)
    again = lake.sink(rotate_records=1)
    assert again.context.seeks == {PLACE: 2}  # type: ignore[attr-defined]
    again.put(rows(2))
    assert sorted(drain(source, read).column("n")) == [0, 1, 2]
    assert {row["name"] for row in read.rows} == {"é0", "é1", "é2"}
    upsert = lake.sink(name="other", rotate_records=1, write_mode="upsert", key_columns="n")
    upsert.put(rows(1))
    assert lake.numbers() == [0, 1, 2]


def test_a_zombie_with_a_stale_view_is_refused(lake: Lake) -> None:
    lake.sink(rotate_records=1).put(rows(0))
    late, owner = lake.sink(rotate_records=2), lake.sink(rotate_records=2)
    late._target.read()
    late._target.read = lambda: None  # type: ignore[method-assign]
    owner.put(rows(1, 2))
    with pytest.raises(TableError, match="was changed by others during each of 50 commits"):
        late.put(rows(1, 2))
    assert lake.numbers() == [0, 1, 2]


class Beginner(threading.Thread):
    """A task that begins in the same moments as others."""

    def __init__(self, lake: Lake, together: threading.Barrier, partitions: str) -> None:
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
        lake = Lake(server, tmp_path / str(turn))
        together = threading.Barrier(8)
        tasks = [Beginner(lake, together, partitions) for _ in range(8)]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()
        errors = [shown(task.error) for task in tasks if task.error is not None]
        assert not errors
        assert lake.numbers() == [0]


def test_a_server_that_is_away_costs_a_sink_time_and_no_row(lake: Lake, server: Postgres) -> None:
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


def test_a_server_that_is_started_anew_costs_a_source_nothing(lake: Lake, server: Postgres) -> None:
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


def test_a_source_keeps_one_connection_and_closes_it(lake: Lake) -> None:
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


def test_a_wrong_password_is_refused_at_once_and_not_shown(lake: Lake) -> None:
    with pytest.raises(TableError, match="password authentication failed for user") as told:
        lake.sink(catalog_password=WRONG)
    assert WRONG not in shown(told.value)
    lake.sink(catalog_password=PASSWORD)


def catalog_lines(lake: Lake) -> str:
    """The catalog, as settings of a connector in a pipeline file."""
    given = {key: text for key, text in lake.config().items() if key.startswith("catalog.")}
    return "\n".join(f'"{key}" = "{text}"' for key, text in given.items())


def test_a_pipeline_goes_on_after_its_catalog_was_away(
    tmp_path: Path, lake: Lake, server: Postgres, ups: list[Up]
) -> None:
    (tmp_path / "in").mkdir()
    connectors = TABLE_TO_TABLE.replace("{catalog}", catalog_lines(lake))
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
    tmp_path: Path, lake: Lake, ups: list[Up], say: Callable[[str], None]
) -> None:
    connectors = TABLE_TO_TABLE.replace("{catalog}", catalog_lines(lake))
    kill_on_the_way(tmp_path, ups, say, connectors, lake.read)
