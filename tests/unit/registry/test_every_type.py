"""Each column of a Parquet file with every type goes through each converter. It comes out equal, or
is refused by name."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data.every_type import CONVERTERS, REFUSED, every_type
from support.registry.memory import MemorySchemas, converter
from support.task.source_tasks import Run

from headgate.connector.api import SourceRecord
from headgate.connector.converters import make_converter
from headgate.connector.data_error import DataError
from headgate_connectors.directory import DirectorySource


def through(name: str, record: SourceRecord) -> tuple[Any, Any]:
    """Schema and value that another process reads."""
    schemas = MemorySchemas()

    def made() -> Any:
        class_name = CONVERTERS[name]
        if class_name.startswith("io.confluent"):
            return converter(class_name.rpartition(".")[2], schemas)
        return make_converter(class_name, {}, is_key=False)

    data = made().from_connect("t", record.value, record.value_schema)
    read = made().to_connect_data("t", data)
    return read.schema, read.value


def records(folder: Path, columns: dict[str, Any]) -> list[SourceRecord]:
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "a.parquet")
    config = {"path": str(folder), "topic": "t", "file.settle.ms": "0"}
    found = Run(DirectorySource, config).rest()
    return [each for each in found if isinstance(each, SourceRecord)]


@pytest.mark.parametrize("name", CONVERTERS)
def test_each_type_comes_out_equal_or_is_refused_by_name(name: str, tmp_path: Path) -> None:
    refused = REFUSED.get(name, {})
    columns = every_type()
    found = records(tmp_path / "whole", {n: c for n, c in columns.items() if n not in refused})
    assert len(found) == 2
    for record in found:
        schema, value = through(name, record)
        assert schema == record.value_schema
        for column, one in value.items():
            given: Any = record.value[column]
            assert one == given or ("nan" in column and repr(one) == repr(given)), column
    for column, messages in refused.items():
        said = []
        for record in records(tmp_path / column, {column: columns[column]}):
            try:
                through(name, record)
            except DataError as error:
                said.append(str(error))
        assert said == messages
