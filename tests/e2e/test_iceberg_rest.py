"""Iceberg tables of a REST catalog, Iceberg's own servlet, which loses answers and is stopped."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog as Client
from pyiceberg.exceptions import NoSuchTableError
from support.commands.pipelines import Up
from support.commands.table_to_table import kill_on_the_way
from support.iceberg.rest_catalog import LosingProxy, RestCatalog
from support.postgres.server import Postgres
from support.task.iceberg_tables import PLACE, TABLE_TO_TABLE
from support.task.table_sources import drain, tasks_of

from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.testing import FakeSinkContext
from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.iceberg_source import IcebergSource
from headgate_connectors.tables import iceberg_rest
from headgate_connectors.tables.iceberg_connection import CatalogAwayError
from headgate_connectors.tables.sink import TableError

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

ROW = s.struct({"n": s.INT64, "name": s.STRING})
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


class Lake:
    """A namespace of its own in the catalog."""

    def __init__(self, catalog: RestCatalog) -> None:
        self.space = f"shop{next(SPACES)}"
        self.catalog = catalog
        self.uri = catalog.uri

    def config(self, **settings: Any) -> dict[str, str]:
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        return {
            "name": "sink",
            "table": f"{self.space}.rows",
            "rotate.interval.ms": "600000",
            "catalog.type": "rest",
            "catalog.uri": self.uri,
            **given,
        }

    def sink(self, **settings: Any) -> IcebergSinkTask:
        made = IcebergSinkTask()
        made.context = FakeSinkContext(reports=False)
        made.start(self.config(**settings))
        made.open([PLACE])
        return made

    def read(self, name: str) -> Any:
        """A table of the namespace; None: there is none."""
        try:
            return Client("reader", uri=self.catalog.uri).load_table(name).scan().to_arrow()
        except NoSuchTableError:
            return None

    def numbers(self) -> list[int]:
        return sorted(self.read(f"{self.space}.rows")["n"].to_pylist())


@pytest.fixture
def lake(catalog: RestCatalog) -> Lake:
    return Lake(catalog)


@pytest.fixture
def ups() -> Iterator[list[Up]]:
    started: list[Up] = []
    yield started
    for up in started:
        up.clean_up()


def rows(*numbers: int) -> list[SinkRecord]:
    return [
        SinkRecord("t", 0, n, None, {"n": n, "name": f"é{n}"}, (), 0, None, ROW) for n in numbers
    ]


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


def test_a_zombie_that_changes_no_row_does_not_set_the_offsets_back(lake: Lake) -> None:
    settings = {"write_mode": "upsert", "key_columns": "n", "rotate_records": 1}
    lake.sink(**settings).put(rows(0))
    late, owner = lake.sink(**settings), lake.sink(**settings)
    late._target.read()
    late._target.read = lambda: None  # type: ignore[method-assign]
    owner.put(rows(1))
    owner.put(rows(2))
    gone = SinkRecord("t", 0, 1, {"n": 7}, None, (), 0, s.struct({"n": s.INT64}), None)
    with pytest.raises(TableError, match="was changed by others during each of 50 commits"):
        late.put([gone])
    assert lake.sink(**settings).context.seeks == {PLACE: 3}  # type: ignore[attr-defined]


def put(task: IcebergSinkTask) -> None:
    """As a worker does. Iceberg's server answers with 500 where two make one namespace at once."""
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
        lake, together = Lake(catalog), threading.Barrier(8)
        errors: list[BaseException] = []

        def begin(lake: Lake = lake, together: threading.Barrier = together) -> None:
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
    lake: Lake, proxy: LosingProxy
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
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_rest, "TIMEOUTS_S", (1.0, 1.0))
    sink = lake.sink(rotate_records=1)
    sink.put(rows(0))
    lake.catalog.signal(signal.SIGSTOP)
    try:
        since = time.monotonic()
        with pytest.raises(CatalogAwayError, match="does not answer"):
            sink.put(rows(1))
        with pytest.raises(CatalogAwayError, match="does not answer"):
            lake.sink(rotate_records=1).put(rows(1))
        assert time.monotonic() - since < 20
    finally:
        lake.catalog.signal(signal.SIGCONT)
    sink.put(rows(1))
    assert lake.numbers() == [0, 1]


def test_a_server_that_is_started_anew_costs_time_and_no_row(lake: Lake) -> None:
    sink = lake.sink(rotate_records=1)
    sink.put(rows(0))
    (source,) = tasks_of(IcebergSource, lake.config(topic="t"))
    read = drain(source)
    lake.catalog.kill()
    for _ in range(2):
        with pytest.raises(CatalogAwayError, match=r"catalog default \(rest at http://"):
            sink.put(rows(1))
        with pytest.raises(CatalogAwayError):
            source.poll()
    lake.catalog.start()
    sink.put(rows(1))
    assert drain(source, read).column("n") == [0, 1]


def test_kills_lose_and_double_nothing_from_table_to_table(
    tmp_path: Path, lake: Lake, ups: list[Up], say: Callable[[str], None]
) -> None:
    given = {key: text for key, text in lake.config().items() if key.startswith("catalog.")}
    lines = "\n".join(f'"{key}" = "{text}"' for key, text in given.items())
    connectors = TABLE_TO_TABLE.replace("{catalog}", lines)
    kill_on_the_way(tmp_path, ups, say, connectors, lambda name: lake.read(f"shop.{name}"))
