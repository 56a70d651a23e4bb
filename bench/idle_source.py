"""A source, for `bench.packed`, whose tasks each give one record and then nothing."""

from collections.abc import Iterable, Mapping, Sequence

from headgate.connector.api import SkippedRecord, SourceConnector, SourceRecord, SourceTask


class IdleTask(SourceTask):
    def start(self, config: Mapping[str, str]) -> None:
        self._partition = {"task": config["task"]}
        self._done = self.context.offsets.offset(self._partition) is not None

    def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
        if self._done:
            self.context.wait(5.0)
            return None
        self._done = True
        return [SourceRecord(self._partition, {"done": True}, "t", "a record")]


class IdleSource(SourceConnector):
    TASK = IdleTask

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        note = self.config.get("note", "")
        return [{"task": str(number), "note": note} for number in range(tasks_max)]
