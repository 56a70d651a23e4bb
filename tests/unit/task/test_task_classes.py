"""A connector may name only a complete class of the right kind as its task."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from headgate.connector.api import SinkConnector, SinkTask, SourceRecord, SourceTask
from headgate_runtime.plugins.find import PluginError
from headgate_runtime.tasks.tools import task_class


class NoPut(SinkTask):
    def start(self, config: Mapping[str, str]) -> None: ...


class Polls(SourceTask):
    def poll(self) -> list[SourceRecord]:
        return []


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (NoPut, "Lake.TASK, NoPut, does not implement put"),
        (Polls, "a sink connector a SinkTask or PlannedSinkTask"),
        (None, "Lake.TASK is None"),
    ],
)
def test_another_is_refused_by_name(named: type[SinkTask] | None, said: str) -> None:
    class Lake(SinkConnector):
        TASK: ClassVar[type[SinkTask]] = named  # type: ignore[assignment]

        def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
            return []

    with pytest.raises(PluginError, match=said):
        task_class(Lake)
