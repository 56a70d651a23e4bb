"""The behaviour of a connector that defines nothing but its task class."""

from collections.abc import Mapping

import pytest

from headgate.connector import SinkConnector, SinkTask


class Plain(SinkConnector):
    TASK = SinkTask


class Forgetful(Plain):
    def start(self, config: Mapping[str, str]) -> None:
        """Keeps nothing."""


class Careful(Plain):
    def start(self, config: Mapping[str, str]) -> None:
        super().start({**config, "more": "1"})


def test_one_task_with_the_connectors_config() -> None:
    given = {"file": "a"}
    connector = Plain()
    connector.start(given)
    given["file"] = "another"
    assert connector.task_configs(3) == [{"file": "a"}]


def test_a_start_may_keep_more() -> None:
    connector = Careful()
    connector.start({"file": "a"})
    assert connector.task_configs(3) == [{"file": "a", "more": "1"}]


def test_a_start_that_keeps_nothing_is_named() -> None:
    connector = Forgetful()
    connector.start({"file": "a"})
    # What `api.Connector.task_configs` says it raises; a worker shows it as the reason of FAILED.
    with pytest.raises(NotImplementedError, match=r"Forgetful has no task configs: .*super\(\)"):
        connector.task_configs(1)
