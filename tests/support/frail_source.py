"""A source connector that starts when it is told to, or fails where it is told to."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.task_connectors import CountingTask

from headgate.connector.api import SourceConnector

CLASS = f"{__name__}:FrailSource"
START_S = 30.0


class FrailSource(SourceConnector):
    """`fails`: the name of the method that raises; `waits.for`: a file without which `start` does
    not return."""

    TASK = CountingTask

    def start(self, config: Mapping[str, str]) -> None:
        self._config = config
        until = time.monotonic() + START_S
        while "waits.for" in config and not Path(config["waits.for"]).exists():
            assert time.monotonic() < until, f"no {config['waits.for']}"
            time.sleep(0.01)
        self._fail("start")

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        self._fail("task_configs")
        return [{"task": str(n), "topic": "t", "pause.s": "60"} for n in range(tasks_max)]

    def _fail(self, where: str) -> None:
        if self._config.get("fails") == where:
            raise RuntimeError("no such database")
