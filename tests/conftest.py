"""Options, settings and fixtures that all tests share."""

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.java.assignors import java  # noqa: F401
from support.java.connect import java_connect, java_program, java_worker  # noqa: F401
from support.kafka.broker import kafka_broker, kafka_name, own_broker  # noqa: F401

from headgate_runtime.config import hidden_values

SECONDS = Path(__file__).with_name("file_seconds.txt")
"""How long the tests of a file took; `tools/run_tests.py --write-seconds` writes it."""


@pytest.fixture(autouse=True)
def values_that_logs_hide(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of this test alone; a process keeps them as long as it lives."""
    hiding = hidden_values._Hiding()
    monkeypatch.setattr(hidden_values, "_HIDING", hiding)
    yield
    for handler in (*logging.getLogger().handlers, logging.lastResort):
        if handler is not None:
            handler.removeFilter(hiding)


@pytest.fixture
def say(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> Callable[[str], None]:
    """Tells whoever waits for this test a line at once, also from a process among others."""

    def told(line: str) -> None:
        with capsys.disabled():
            print(f"\n{request.node.name}: {line}", end="", file=sys.stderr, flush=True)

    return told


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Among several processes the longest files come first, so that all are busy to the end."""
    if hasattr(config, "workerinput"):
        rows = (line.split() for line in SECONDS.read_text().splitlines())
        seconds = {config.rootpath / file: float(number) for number, file in rows}
        items.sort(key=lambda item: -seconds.get(item.path, 0.0))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="fill in the outputs of the text scenarios instead of comparing them",
    )
