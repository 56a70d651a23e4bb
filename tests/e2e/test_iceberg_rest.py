"""Iceberg tables of a REST catalog, Iceberg's own servlet, which loses answers and is stopped."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog as Client
from pyiceberg.exceptions import NoSuchTableError
from support.commands.pipelines import Up
from support.commands.table_to_table import kill_on_the_way
from support.iceberg.lake import CatalogContract, Lake, rows
from support.iceberg.rest_catalog import LosingProxy, RestCatalog
from support.postgres.server import Postgres
from support.task.iceberg_tables import PLACE, TABLE_TO_TABLE
from support.task.table_sources import drain, tasks_of

from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.iceberg_source import IcebergSource
from headgate_connectors.tables import iceberg_rest
from headgate_connectors.tables.iceberg_connection import CatalogAwayError

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

SPACES = count()


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    database = Postgres().start()
    made = RestCatalog(database, tmp_path_factory.mktemp("rest"))
    try:
        yield made.start()
    finally:
        made.kill()
        database.stop()


class RestLake(Lake):
    """A namespace of its own in the catalog."""

    def __init__(self, catalog: RestCatalog) -> None:
        super().__init__(f"shop{next(SPACES)}")
        self.server = catalog
        self.uri = catalog.uri

    def catalog(self) -> Mapping[str, str]:
        return {"catalog.type": "rest", "catalog.uri": self.uri}

    def read(self, name: str) -> Any:
        full = name if "." in name else f"shop.{name}"
        try:
            return Client("reader", uri=self.server.uri).load_table(full).scan().to_arrow()
        except NoSuchTableError:
            return None


@pytest.fixture
def lake(catalog: RestCatalog) -> RestLake:
    return RestLake(catalog)


@pytest.fixture
def ups() -> Iterator[list[Up]]:
    started: list[Up] = []
    yield started
    for up in started:
        up.clean_up()


class TestCatalog(CatalogContract):
    """The tests that hold with every catalog."""


def put(task: IcebergSinkTask) -> None:
    """Put records, and try again as a worker does. Iceberg's server answers with 500 where two
    clients make one namespace at once."""
    for _ in range(10):
        try:
            return task.put(rows(0))
        except CatalogAwayError:
            time.sleep(0.1)
    raise AssertionError("it was answered with 500 ten times")


@pytest.mark.parametrize("partitions", ["", "bucket(4, n)"])
def test_many_tasks_begin_at_once(catalog: RestCatalog, partitions: str) -> None:
    """The namespace and the table are made by one of them, and one of them writes."""
    for _ in range(3):
        lake, together = RestLake(catalog), threading.Barrier(8)
        errors: list[BaseException] = []

        def begin(lake: RestLake = lake, together: threading.Barrier = together) -> None:
            try:
                task = lake.sink(rotate_records=1, partition_by=partitions)
                together.wait(60)
                put(task)
            except BaseException as error:
                errors.append(error)  # noqa: B023
                together.abort()

        tasks = [threading.Thread(target=begin) for _ in range(8)]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()
        assert not errors
        assert lake.numbers() == [0]


@pytest.fixture
def proxy(catalog: RestCatalog) -> Iterator[LosingProxy]:
    made = LosingProxy(catalog.port)
    yield made
    made.close()


def test_a_commit_whose_answer_is_lost_is_found_in_the_table(
    lake: RestLake, proxy: LosingProxy
) -> None:
    lake.uri = f"http://127.0.0.1:{proxy.port}"
    sink = lake.sink(rotate_records=1)
    sink.put(rows(0))
    proxy.only = f"POST /v1/namespaces/{lake.space}/tables/rows".encode()
    with pytest.raises(CatalogAwayError, match="which is tried again: catalog default"):
        sink.put(rows(1))
    assert proxy.lost == 1
    assert lake.numbers() == [0, 1]
    proxy.only = None
    sink.put(rows(1))
    assert sink.context.seeks == {PLACE: 2}  # type: ignore[attr-defined]
    sink.put(rows(2))
    assert lake.numbers() == [0, 1, 2]


def test_a_server_that_stands_still_is_not_waited_for_for_ever(
    lake: RestLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_rest, "TIMEOUTS_S", (1.0, 1.0))
    sink = lake.sink(rotate_records=1)
    sink.put(rows(0))
    lake.server.signal(signal.SIGSTOP)
    try:
        since = time.monotonic()
        with pytest.raises(CatalogAwayError, match="does not answer"):
            sink.put(rows(1))
        with pytest.raises(CatalogAwayError, match="does not answer"):
            lake.sink(rotate_records=1).put(rows(1))
        assert time.monotonic() - since < 20
    finally:
        lake.server.signal(signal.SIGCONT)
    sink.put(rows(1))
    assert lake.numbers() == [0, 1]


def test_a_server_that_is_started_anew_costs_time_and_no_row(lake: RestLake) -> None:
    sink = lake.sink(rotate_records=1)
    sink.put(rows(0))
    (source,) = tasks_of(IcebergSource, lake.config(topic="t"))
    read = drain(source)
    lake.server.kill()
    for _ in range(2):
        with pytest.raises(CatalogAwayError, match=r"catalog default \(rest at http://"):
            sink.put(rows(1))
        with pytest.raises(CatalogAwayError):
            source.poll()
    lake.server.start()
    sink.put(rows(1))
    assert drain(source, read).column("n") == [0, 1]


def test_kills_lose_and_double_nothing_from_table_to_table(
    tmp_path: Path, lake: RestLake, ups: list[Up], say: Callable[[str], None]
) -> None:
    connectors = TABLE_TO_TABLE.replace("{catalog}", lake.lines())
    kill_on_the_way(tmp_path, ups, say, connectors, lake.read)
