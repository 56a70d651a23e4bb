"""Every test of the contract runs against every transport."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.worlds import WORLDS, World


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = WORLDS[request.param](tmp_path)
    yield made
    made.close()
