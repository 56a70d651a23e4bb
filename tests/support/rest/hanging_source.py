"""A source connector whose validation hangs while a file exists."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.task.connectors import CountingTask

from headgate.connector.api import SourceConnector

CLASS = f"{__name__}:HangingSource"


class HangingSource(SourceConnector):
    """The connector. `hangs.while` names the file."""

    TASK = CountingTask

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        while Path(config["hangs.while"]).exists():
            time.sleep(2)
        return {}

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return []
