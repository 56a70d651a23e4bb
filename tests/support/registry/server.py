"""A schema registry that is not ours, for tests."""

from collections.abc import Iterator

import pytest

from local_kafka import registry


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of its Confluent API. Its schemas are in memory."""
    with registry.schema_registry(tmp_path_factory.mktemp("registry")) as url:
        yield url
