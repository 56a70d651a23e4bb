from typing import Any

import pytest

from headgate_embedded import producer as embedded_producer


@pytest.fixture(autouse=True)
def any_membership(monkeypatch: pytest.MonkeyPatch) -> None:
    """These bodies have no worker; whose producers may be initialised is tested with the log."""
    plain = embedded_producer.EmbeddedProducer.__init__

    def init(self: Any, *args: Any, **named: Any) -> None:
        plain(self, *args, **named)
        self._membership = None

    monkeypatch.setattr(embedded_producer.EmbeddedProducer, "__init__", init)
