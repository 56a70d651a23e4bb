"""A REST service for the tests that need one."""

from collections.abc import Iterator

import pytest
from support.rest.world import service

from headgate_rest import RestService


@pytest.fixture
def new() -> Iterator[RestService]:
    """A service whose worker has not completed its startup."""
    made = service()
    made.start()
    yield made
    made.close()
