"""Connectors without config keys of their own, in place of classes that are not installed here."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from headgate.connector.api import (
    ExactlyOnceSupport,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceConnector,
    SourceTask,
)


class IdleTask(SourceTask):
    def poll(self) -> None:
        self.context.wait(1.0)


class StandInSource(SourceConnector):
    TASK: ClassVar[type[SourceTask]] = IdleTask

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.SUPPORTED

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{}]


class NothingTask(SinkTask):
    def put(self, records: Sequence[SinkRecord]) -> None:
        pass


class StandInSink(SinkConnector):
    TASK: ClassVar[type[SinkTask]] = NothingTask

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{}]
