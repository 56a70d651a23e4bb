"""A plugin of pytest, loaded on demand: ``pytest_plugins = ["headgate.testing.plugin"]``.

It adds an option for how much the suites try, and fixtures for an author's own tests. The suites
work without it.
"""

from argparse import ArgumentTypeError
from typing import Any

import pytest

from headgate_runtime.testing.contexts import (
    FakeConnectorContext,
    FakeSinkContext,
    FakeSourceContext,
)
from headgate_runtime.testing.some import DEFAULT, OPTION


def _points(text: str) -> str:
    if text != "all" and not (text.isdecimal() and int(text) > 0):
        raise ArgumentTypeError(f"{text}: expected a number from 1 on, or all")
    return text


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("headgate", "conformance of connectors")
    group.addoption(
        OPTION,
        type=_points,
        default=None,
        metavar="COUNT",
        help=f"points and offsets that each check tries, or all; {DEFAULT} by default",
    )


@pytest.fixture
def source_context() -> FakeSourceContext:
    """A context for a source task, without offsets."""
    return FakeSourceContext()


@pytest.fixture
def sink_context() -> FakeSinkContext:
    """A context for a sink task that has the partition ``topic``-0."""
    return FakeSinkContext()


@pytest.fixture
def connector_context() -> FakeConnectorContext:
    """A context for a connector."""
    return FakeConnectorContext()


__all__ = ["connector_context", "pytest_addoption", "sink_context", "source_context"]
