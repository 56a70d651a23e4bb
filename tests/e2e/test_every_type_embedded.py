"""A Parquet file with every type goes through the embedded log to Parquet, with each converter."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.commands.pipelines import Up
from support.data.every_type import (
    CONVERTERS,
    KINDS,
    REFUSED,
    assert_equal_files,
    column_alone,
    table_for,
)
from support.task.letters import headers_of, records_of

from headgate_embedded.schemas import open_schemas

pytestmark = pytest.mark.slow

CLUSTER = """
[cluster]
data = "state"
runner = "thread"
"offset.flush.interval.ms" = 500
"""
SOURCE = """
[connectors.{name}]
"connector.class" = "DirectorySource"
path = "in/{name}"
topic = "{name}"
"file.settle.ms" = 0
"value.converter" = "{converter}"
"""
LETTERS = """
"errors.tolerance" = "all"
"errors.deadletterqueue.topic.name" = "{name}-refused"
"errors.deadletterqueue.context.headers.enable" = true
"""
SINK = """
[connectors.{name}-out]
"connector.class" = "DirectorySink"
topics = "{name}"
path = "out/{name}"
"rotate.interval.ms" = 500
"value.converter" = "{converter}"
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One `headgate up` that has ended. Its pipeline has a connector pair for each converter, and a
    source for each column that a converter refuses."""
    folder = tmp_path_factory.mktemp("types")
    text = CLUSTER
    for name, converter in CONVERTERS.items():
        write(folder / "in" / name, table_for(name))
        text += (SOURCE + SINK).format(name=name, converter=converter)
        for column in REFUSED.get(name, ()):
            write(folder / "in" / f"{name}-{column}", column_alone(column))
            text += (SOURCE + LETTERS).format(name=f"{name}-{column}", converter=converter)
    (folder / "pipeline.toml").write_text(text)
    up = Up(folder, ("--until-idle",)).start()
    try:
        assert up.process is not None
        assert up.process.wait(120) == 0, up.tail()
        yield up
    finally:
        up.clean_up()


def write(folder: Path, table: Any) -> None:
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "rows.parquet")


@pytest.mark.parametrize("name", CONVERTERS)
def test_every_type_comes_out_equal_or_is_refused_by_name(done: Up, name: str) -> None:
    stored = done.folder / "in" / name / "rows.parquet"
    assert_equal_files(done.folder / "out" / name, stored)
    versions = open_schemas(done.log_folder).versions(f"{name}-value")
    kinds = [KINDS[name]] if name in KINDS else []
    assert [one.schema.kind for one in versions] == kinds
    for column, messages in REFUSED.get(name, {}).items():
        letters = records_of(done.log_folder, f"{name}-{column}-refused")
        said = [headers_of(one)["__connect.errors.exception.message"] for one in letters]
        assert said == messages
        assert len(records_of(done.log_folder, f"{name}-{column}")) == 2 - len(messages)
