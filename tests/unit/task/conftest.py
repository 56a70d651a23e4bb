from typing import Any

import pytest

from headgate_embedded import producer as embedded_producer


@pytest.fixture(autouse=True)
def any_membership(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept producers of any membership, since these bodies have no worker. The tests of the log
    check memberships."""
    plain = embedded_producer.EmbeddedProducer.__init__

    def init(self: Any, *args: Any, **named: Any) -> None:
        plain(self, *args, **named)
        self._membership = None

    monkeypatch.setattr(embedded_producer.EmbeddedProducer, "__init__", init)
