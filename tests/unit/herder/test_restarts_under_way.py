"""A restart that all workers execute is over on one of them."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from headgate.herder.restarts import Restarts
from headgate.topics.config_events import RestartRequested


class Held:
    """Connectors, or tasks."""

    def __init__(self) -> None:
        self.stopping = False

    def restart_planned(self, _name: str, *, only_failed: bool) -> None:
        self.stopping = not only_failed

    def is_restarting(self, _name: str) -> bool:
        return self.stopping


@pytest.mark.parametrize("slow", ["connector", "tasks", "neither"])
def test_from_its_record_until_all_has_stopped(slow: str) -> None:
    membership = SimpleNamespace(stable=False)
    state = SimpleNamespace(entry=lambda name: name)
    connectors, held_tasks = Held(), Held()
    restarts = Restarts(
        cast(Any, SimpleNamespace(membership=membership, state=state)),
        cast(Any, connectors),
        cast(Any, held_tasks),
        cast(Any, MagicMock()),
    )
    restarts.on_requested(RestartRequested(3, "c", include_tasks=True, only_failed=False))
    restarts.carry_out()  # waits for the end of a rebalance
    assert restarts.under_way("c") and not restarts.under_way("d")
    membership.stable = True
    restarts.carry_out()
    connectors.stopping = slow == "connector"
    held_tasks.stopping = slow == "tasks"
    assert restarts.under_way("c") == (slow != "neither")
