"""The converters accept what docs/run/schemas.md shows of registries."""

import re
from pathlib import Path

from support.pages import ROOT, block

from headgate.connector.registry_converters import REGISTRY_CONVERTERS
from headgate_runtime.config.properties import read_properties
from headgate_runtime.up import pipeline

PAGE = "docs/run/schemas.md"
PREFIX = "value.converter."


def keys_of(converter: str) -> set[str]:
    return set(REGISTRY_CONVERTERS[converter].CONFIG.keys)


def test_each_key_of_the_table_is_one_of_every_converter() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    section = text.partition("## A registry that runs elsewhere")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    shown = {key for row in rows for key in re.findall(r"`([a-z.]+)`", row)}
    assert len(shown) >= 10
    for name in REGISTRY_CONVERTERS:
        assert shown <= keys_of(name), name


def test_the_example_names_a_class_and_its_keys(tmp_path: Path) -> None:
    file = tmp_path / "worker.properties"
    file.write_text(block(PAGE, "properties", "schema.registry.url"))
    given = read_properties(file).values
    name = given.pop(PREFIX.rstrip(".")).rpartition(".")[2]
    assert {key.removeprefix(PREFIX) for key in given} <= keys_of(name)


def test_the_pipeline_of_the_page_has_no_faults(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    around = '[cluster]\ndata = "state"\nrunner = "thread"\n'
    shown = block(PAGE, "toml", "AvroConverter")
    assert pipeline.parse(around + shown, tmp_path / "pipeline.toml").connectors
