"""Options, settings and fixtures that all tests share."""

import logging
import os
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from support import processes
from support.java.assignors import java  # noqa: F401
from support.java.connect import java_connect, java_program, java_worker  # noqa: F401
from support.kafka.broker import kafka_broker, kafka_name, own_broker  # noqa: F401
from xdist.remote import Producer

from headgate_runtime.config import hidden_values

os.environ["HEADGATE_CONTEXTS"] = "/nonexistent/contexts.json"
"""No command of a test is about a cluster of whoever runs the tests."""

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
"""On a machine with other work the first draw of a text may take a second."""


@pytest.fixture(autouse=True)
def values_that_logs_hide(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give this test an empty set of values that logs hide. A process otherwise keeps them as long
    as it lives."""
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
    """Return a function that prints a line at once to the user who runs the tests, also from one
    process among others."""

    def told(line: str) -> None:
        with capsys.disabled():
            print(f"\n{request.node.name}: {line}", end="", file=sys.stderr, flush=True)

    return told


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        lines = processes.SECONDS.read_text().splitlines()
        seconds = processes.seconds_of_files(config.rootpath, lines)
        processes.longest_scopes_first(items, seconds)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> processes.SparkOnce | None:
    return processes.SparkOnce(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="fill in the outputs of the text scenarios instead of comparing them",
    )
