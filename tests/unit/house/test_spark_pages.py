"""The pipelines and settings that the pages on Spark and on tables show are valid as they stand."""

from pathlib import Path

import pytest
from support.pages import blocks

from headgate_runtime.config.properties import read_properties
from headgate_runtime.config.settings import KEYS
from headgate_runtime.up import pipeline

SPARK, TABLES = "docs/run/spark.md", "docs/run/tables.md"
CLUSTER = "docs/run/spark-cluster.md"
AROUND = '[cluster]\ndata = "state"\nrunner = "spark"\n'
SINK = """
[connectors.x]
"connector.class" = "SparkSink"
topics = "t"
format = "orc"
path = "out"
"""


def completed(block: str) -> str:
    """A whole pipeline file with `block` in it."""
    if block.startswith("[cluster]"):
        return block
    if block.startswith("[spark.conf]"):
        return AROUND + SINK + block
    if block.startswith("["):
        return AROUND + block
    return AROUND + SINK + block  # lines of a connector


@pytest.mark.parametrize("block", [*blocks(SPARK, "toml"), *blocks(TABLES, "toml")])
def test_a_pipeline_of_the_page_has_no_faults(block: str, tmp_path: Path) -> None:
    found = pipeline.parse(completed(block), tmp_path / "pipeline.toml")
    assert found.connectors


@pytest.mark.parametrize("block", blocks(CLUSTER, "properties"))
def test_settings_of_the_page_are_settings(block: str, tmp_path: Path) -> None:
    file = tmp_path / "some.properties"
    file.write_text(block)
    found = read_properties(file).values
    assert found
    for key, value in found.items():
        assert key in KEYS or key.startswith("spark."), key
        assert value


def test_the_pages_have_examples() -> None:
    assert len(blocks(SPARK, "toml")) >= 4
    assert len(blocks(TABLES, "toml")) >= 5
    assert len(blocks(CLUSTER, "properties")) >= 5
