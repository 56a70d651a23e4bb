"""A source connector of several tasks that exists twice under one name, for Java's workers and for
ours.

FileStreamSource exists twice, too, but has one task. Any worker can run the tasks of this one, so a
group of both kinds shares them without luck.

Java's half is ``tests/java/TwinSource.java``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from support.task.connectors import CountingTask

from headgate.connector.api import SkippedRecord, SourceConnector, SourceRecord

NAME = "TwinSource"
FAILS_WHILE = "fails.while"
"""A key of the connector's config: a file name. Task n fails while a file of this name with ``-n``
appended exists."""
TESTS = Path(__file__).resolve().parents[2]


class TwinTask(CountingTask):
    """A task that counts as its base class does, with the task's number as the key."""

    def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
        if Path(self._config.get(FAILS_WHILE, "/none")).exists():
            raise RuntimeError("told to fail")
        key = self._partition["task"]
        found = super().poll() or ()
        return [replace(each, key=key) for each in found if isinstance(each, SourceRecord)]


class TwinSource(SourceConnector):
    TASK = TwinTask
    JAVA_TASK = f"{NAME}$TwinTask"

    def start(self, config: Mapping[str, str]) -> None:
        self._config = {key: config[key] for key in ("topic", "pause.s")}
        self._fails = config.get(FAILS_WHILE)

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        configs = [{"task": str(n), **self._config} for n in range(tasks_max)]
        if self._fails is not None:
            return [{**each, FAILS_WHILE: f"{self._fails}-{each['task']}"} for each in configs]
        return configs


def announce(folder: Path) -> None:
    """Make `folder` an entry of ``PYTHONPATH`` with a package that announces our half as a
    connector."""
    package = folder / "twin-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: twin\nVersion: 1\n")
    (package / "entry_points.txt").write_text(
        f"[headgate.connectors]\n{NAME} = {__name__}:{TwinSource.__name__}\n"
    )
