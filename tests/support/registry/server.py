"""A third party's schema registry, for tests."""

from collections.abc import Iterator

import pytest

from local_kafka import registry


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the registry's Confluent API. Its schemas are in memory."""
    with registry.schema_registry(tmp_path_factory.mktemp("registry")) as url:
        yield url
