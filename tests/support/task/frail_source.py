"""A source connector that a test can delay or fail at each step."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from support.task.connectors import CountingTask

from headgate.connector.api import SourceConnector

CLASS = f"{__name__}:FrailSource"
START_S = 30.0


TASK_STOP = "task.stop.waits.for"
"""Key of a file: `stop` returns only once it exists. When `stop` is called, it makes a folder with
the file's name and the suffix `.asked`."""
CONNECTOR_STOP = "connector.stop.waits.for"


class FrailTask(CountingTask):
    def stop(self) -> None:
        _wait_to_stop(self._config.get(TASK_STOP))


NONSENSE: Mapping[str, Any] = {
    "none": None,
    "text": "abc",
    "mapping": {"a": "b"},
    "number": 3,
    "nones": [None],
    "numbers": [{"a": 1}],
}


class FrailSource(SourceConnector):
    """The connector, whose tasks are `FrailTask`.

    `gives` is a key of `NONSENSE`, whose value `task_configs` returns. `fails` is the name of the
    method that raises. `start` returns only once the file `waits.for` exists.
    """

    TASK = FrailTask
    VERSION = "7.1-frail"

    def start(self, config: Mapping[str, str]) -> None:
        self._config = config
        if "waits.for" in config:
            _wait_for(Path(config["waits.for"]))
        self._fail("start")

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        self._fail("task_configs")
        if "gives" in self._config:
            given: Any = NONSENSE[self._config["gives"]]
            return cast("Sequence[Mapping[str, str]]", given)
        common = {"topic": "t", "pause.s": "60"}
        if TASK_STOP in self._config:
            common[TASK_STOP] = self._config[TASK_STOP]
        return [{"task": str(n), **common} for n in range(tasks_max)]

    def stop(self) -> None:
        _wait_to_stop(self._config.get(CONNECTOR_STOP))

    def _fail(self, where: str) -> None:
        if self._config.get("fails") == where:
            raise RuntimeError("no such database")


def _wait_to_stop(file: str | None) -> None:
    if file is not None:
        Path(file).with_suffix(".asked").mkdir(exist_ok=True)
        _wait_for(Path(file))


def _wait_for(file: Path) -> None:
    until = time.monotonic() + START_S
    while not file.exists():
        assert time.monotonic() < until, f"no {file}"
        time.sleep(0.01)
