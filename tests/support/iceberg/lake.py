"""Iceberg tables, written and read by tasks of a sink and a source, and the contract that holds
with every catalog."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest
from support.task.iceberg_tables import PLACE
from support.task.table_sources import drain, tasks_of

from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.testing import FakeSinkContext
from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.iceberg_source import IcebergSource
from headgate_connectors.tables.sink import TableError

ROW = s.struct({"n": s.INT64, "name": s.STRING})
KEY = s.struct({"n": s.INT64})


class Lake(ABC):
    """Tables in one namespace of a catalog.

    Args:
        space: the namespace.
    """

    def __init__(self, space: str) -> None:
        self.space = space

    @abstractmethod
    def catalog(self) -> Mapping[str, str]:
        """Return the settings of the connectors that name the catalog."""

    @abstractmethod
    def read(self, name: str) -> Any:
        """Read a table without a connector, or return None if there is none. The namespace is
        `shop`, unless the name has one."""

    def config(self, **settings: Any) -> dict[str, str]:
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        return {
            "name": "sink",
            "table": f"{self.space}.rows",
            "rotate.interval.ms": "600000",
            **self.catalog(),
            **given,
        }

    def sink(self, **settings: Any) -> IcebergSinkTask:
        made = IcebergSinkTask()
        made.context = FakeSinkContext(reports=False)
        made.start(self.config(**settings))
        made.open([PLACE])
        return made

    def numbers(self) -> list[int]:
        return sorted(self.read(f"{self.space}.rows")["n"].to_pylist())

    def lines(self) -> str:
        """Return the settings of the catalog, as lines of a connector in a pipeline file."""
        return "\n".join(f'"{key}" = "{text}"' for key, text in self.catalog().items())


def rows(*numbers: int) -> list[SinkRecord]:
    return [
        SinkRecord("t", 0, n, None, {"n": n, "name": f"é{n}"}, (), 0, None, ROW) for n in numbers
    ]


def with_stale_view(task: IcebergSinkTask) -> IcebergSinkTask:
    """Return the same task, which from now on sees the table as it is at this moment."""
    task._target.read()
    task._target.read = lambda: None  # type: ignore[method-assign]
    return task


class CatalogContract:
    """Tests that hold with every catalog. A subclass has a fixture `lake`."""

    def test_what_a_sink_writes_a_source_reads(self, lake: Lake) -> None:
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

    @pytest.mark.parametrize("partitions", ["", "bucket(4, n)"])
    def test_a_table_that_another_task_makes_first_is_taken(
        self, lake: Lake, partitions: str
    ) -> None:
        late, owner = (lake.sink(rotate_records=1, partition_by=partitions) for _ in range(2))
        look, looks = late._target.read, count()

        def too_early_once() -> None:
            if next(looks):
                look()

        late._target.read = too_early_once  # type: ignore[method-assign]
        owner.put(rows(0))
        late.put(rows(0))
        assert late.context.seeks == {PLACE: 1}  # type: ignore[attr-defined]
        assert lake.numbers() == [0]

    def test_a_zombie_with_a_stale_view_is_refused(self, lake: Lake) -> None:
        lake.sink(rotate_records=1).put(rows(0))
        late, owner = with_stale_view(lake.sink(rotate_records=2)), lake.sink(rotate_records=2)
        owner.put(rows(1, 2))
        with pytest.raises(TableError, match="was changed by others during each of 50 commits"):
            late.put(rows(1, 2))
        assert lake.numbers() == [0, 1, 2]

    def test_a_zombie_that_changes_no_row_does_not_set_the_offsets_back(self, lake: Lake) -> None:
        settings = {"write_mode": "upsert", "key_columns": "n", "rotate_records": 1}
        lake.sink(**settings).put(rows(0))
        late, owner = with_stale_view(lake.sink(**settings)), lake.sink(**settings)
        owner.put(rows(1))
        owner.put(rows(2))
        gone = SinkRecord("t", 0, 1, {"n": 7}, None, (), 0, KEY, None)
        with pytest.raises(TableError, match="was changed by others during each of 50 commits"):
            late.put([gone])
        assert lake.sink(**settings).context.seeks == {PLACE: 3}  # type: ignore[attr-defined]
