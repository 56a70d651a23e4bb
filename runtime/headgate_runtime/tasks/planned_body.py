"""Performs the effects of a sink task with planned batches."""

import logging
import time
from collections.abc import Mapping, Sequence

from headgate.connector.api import PlannedSinkTask, RetriableError
from headgate.connector.config import ConfigError
from headgate.connector.sink_names import sink_group, sink_subscription, topics_now
from headgate.connector.validation import no_transforms
from headgate.ids import TargetState
from headgate.ports import RecordLog, TopicPartition, TransportError
from headgate.task.machine import start_paused
from headgate.task.messages import Measured
from headgate.task.planned import PlannedMachine
from headgate.task.steps import (
    BatchRetriable,
    BatchRun,
    BodyEffect,
    BodyInput,
    CallStart,
    RecordsSkipped,
    RunBatch,
    Started,
)
from headgate_runtime.tasks import long_calls
from headgate_runtime.tasks.dead_letter_queue import DeadLetterQueue, ErrantRecords
from headgate_runtime.tasks.lifeline import BodyLifeline
from headgate_runtime.tasks.measuring import Calls
from headgate_runtime.tasks.quietly import call_quietly, quietly
from headgate_runtime.tasks.record_errors import RecordErrors
from headgate_runtime.tasks.tools import BodyTools
from headgate_runtime.tasks.used_topics import UsedTopics
from headgate_runtime.transports.select import OPENER, TaskTransport, opener_argument

_log = logging.getLogger("headgate.task")


class PlannedContext:
    def __init__(self, lifeline: BodyLifeline, transport: TaskTransport) -> None:
        self._lifeline = lifeline
        self._log = transport.record_log
        spec = lifeline.spec
        self._subscription = sink_subscription(spec.connector_config, spec.transport)
        self.reporter: ErrantRecords | None = None
        self.told: list[RecordsSkipped] = []

    @property
    def log(self) -> RecordLog:
        return self._log

    @property
    def group(self) -> str:
        spec = self._lifeline.spec
        return sink_group(spec.task.connector, spec.connector_config, spec.transport)

    @property
    def topics(self) -> Sequence[str]:
        """Topics as of now. A pattern may match more or fewer with each batch."""
        return topics_now(self._subscription, self._log.topic_names)

    @property
    def stopping(self) -> bool:
        """Whether the task is to stop or the lifeline is lost: no further batch may be
        committed."""
        return self._lifeline.stopping or self._lifeline.lost is not None

    @property
    def log_elsewhere(self) -> tuple[str, str]:
        spec = self._lifeline.spec
        return OPENER, opener_argument(spec.transport, spec.connector_config, spec.task.connector)

    @property
    def worker_settings(self) -> Mapping[str, str]:
        return self._lifeline.spec.worker_settings

    def errant_record_reporter(self) -> ErrantRecords | None:
        return self.reporter

    def skipped(self, count: int, detail: str) -> None:
        _log.warning("%s: skipped %d: %s", self._lifeline.spec.task, count, detail)
        self.told.append(RecordsSkipped(count, detail))


class PlannedPerformer:
    def __init__(
        self, lifeline: BodyLifeline, tools: BodyTools, task_class: type[PlannedSinkTask]
    ) -> None:
        self._spec = lifeline.spec
        self._lifeline = lifeline
        self._class = task_class
        paused = start_paused(self._spec)
        self.machine = PlannedMachine(TargetState.PAUSED if paused else TargetState.STARTED)
        self._transport = tools.open_transport(self._spec)
        self._context = PlannedContext(lifeline, self._transport)
        errors = RecordErrors(self._spec)
        self._errors, self._calls = errors.counts, Calls("run_batch")
        self._letters = DeadLetterQueue(self._spec, self._transport, errors)
        if errors.settings.reports:
            self._context.reporter = ErrantRecords(self._letters, errors, None)
        self._task: PlannedSinkTask | None = None
        self._topics = UsedTopics(lifeline)
        self._told: set[str] = set()
        """Topics that are known to have records in a batch."""
        self._before: Mapping[TopicPartition, int] = {}
        """The group's offsets at the start of the task."""

    def perform(self, effect: BodyEffect) -> Sequence[BodyInput]:
        match effect:
            case RunBatch(delay_ms):
                outcome = self._run_batch(delay_ms)
            case CallStart():
                outcome = self._start()
            case _:
                raise AssertionError(f"{type(effect).__name__} is no effect of a planned sink task")
        if self._context.reporter is not None:
            count, detail = self._context.reporter.take_told()
            if count:
                self._context.skipped(count, detail)
        told, self._context.told = self._context.told, []
        return (*told, outcome)

    def _start(self) -> BodyInput:
        if refusal := no_transforms(self._spec.connector_config):
            raise ConfigError(refusal)
        self._letters.open()
        task = self._task = self._class()
        task.context = self._context
        with long_calls.call("start"):
            task.start(self._spec.task_config)
        self._before = self._transport.record_log.committed(self._context.group)
        return Started()

    def _run_batch(self, delay_ms: int) -> BodyInput:
        assert self._task is not None
        if delay_ms:
            self._lifeline.wait(delay_ms / 1000)
        if self._lifeline.stopping:
            return BatchRun(0)
        self._lifeline.check()
        began = time.monotonic()
        try:
            with long_calls.call("run_batch", long_calls.BATCH_S):
                records = self._task.run_batch()
        except RetriableError as error:
            return BatchRetriable(str(error) or type(error).__name__)
        took_s = time.monotonic() - began
        took_ms = round(took_s * 1000)
        self._calls.moved(records, took_s)
        if records:
            self._tell_topics()
        task = self._task
        return BatchRun(records, task.batch_files, took_ms, task.batch_interval_ms)

    def _tell_topics(self) -> None:
        """Report the topics of the batch's records. A batch does not name them, but the group's
        offsets do."""
        try:
            topics = self._context.topics
            if self._told.issuperset(topics):
                return
            after = self._transport.record_log.committed(self._context.group)
        except TransportError:
            return  # the next batch will do
        grown = {place[0] for place, end in after.items() if end > self._before.get(place, 0)}
        self._told |= grown.intersection(topics)
        self._topics.used(self._told)

    def measured(self) -> Measured:
        calls, errors = self._calls.read(), self._errors.read()
        return Measured(0, 0, 0, batches=calls, errors=errors, elsewhere=True)

    def close(self) -> None:
        call_quietly("stop", getattr(self._task, "stop", None), self._spec)
        quietly(self._letters.close, self._spec)
        quietly(self._transport.close, self._spec)
