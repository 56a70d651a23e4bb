"""A source whose tasks take long to stop, and note the number in their config. For tasks on
threads; the name is ``support.task.slow_to_stop:SlowToStop``."""

import time
from collections.abc import Mapping
from typing import ClassVar

from headgate.connector.api import SourceConnector, SourceTask
from headgate.connector.config import ConfigDef, Type

STOP_S = 1.0


class SlowTask(SourceTask):
    started: ClassVar[list[int]] = []
    """Numbers in the configs of all runs that have started, in order."""
    failing: ClassVar[bool] = False

    def start(self, config: Mapping[str, str]) -> None:
        if SlowTask.failing:
            raise ValueError("not now")
        time.sleep(STOP_S / 4)
        SlowTask.started.append(int(config["n"]))

    def poll(self) -> None:
        self.context.wait(0.05)

    def stop(self) -> None:
        time.sleep(STOP_S)


class SlowToStop(SourceConnector):
    TASK = SlowTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("n", Type.INT, documentation="What the run is noted as.")
