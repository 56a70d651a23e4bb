"""A runner around another, which resolves the references in its tasks' configs.

Providers may take their time (a file on a network). So a task whose configs have references is
resolved on a thread of its own, and handed on after that.
"""

import logging
import threading
from dataclasses import replace

from headgate.connector.config_providers import ConfigProviderError, HiddenValues, references
from headgate.ports import Reporter, Runner
from headgate.task.messages import TaskCommand, TaskEnded, TaskOutcome, TaskReleased, TaskSpec
from headgate.topics.config_events import Config
from headgate_runtime.config.transformer import WorkerConfigTransformer

_log = logging.getLogger("headgate.task")


class ResolvingRunner:
    def __init__(
        self, runner: Runner, report: Reporter, transformer: WorkerConfigTransformer
    ) -> None:
        """Take `report`, the same function that `runner` was given."""
        self._runner = runner
        self._report = report
        self._transformer = transformer
        self._lock = threading.Lock()
        self._waiting: dict[str, list[TaskCommand]] = {}
        """Runs that are being resolved, each with the commands that came early. Nothing of them is
        alive."""

    # -- the port --

    def start(self, spec: TaskSpec) -> None:
        configs = (spec.connector_config, spec.task_config)
        if not any(map(self._transformer.resolves, configs)):
            self._runner.start(spec)
            return
        with self._lock:
            if spec.run in self._waiting:
                raise ValueError(f"run {spec.run} was started before")
            self._waiting[spec.run] = []
        thread = threading.Thread(
            target=self._resolve, args=(spec,), name=f"resolve-{spec.task}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # there are too many
            with self._lock:
                if self._waiting.pop(spec.run, None) is None:
                    return  # stopped meanwhile
            self._end(spec.run, _not_launched(spec, error))

    def send(self, run: str, command: TaskCommand) -> None:
        with self._lock:
            early = self._waiting.get(run)
            if early is not None:
                early.append(command)
                return
        self._runner.send(run, command)

    def stop(self, run: str, grace_ms: int) -> None:
        with self._lock:
            waiting = self._waiting.pop(run, None) is not None
        if waiting:
            self._end(run, TaskEnded(TaskOutcome.STOPPED))
        else:
            self._runner.stop(run, grace_ms)

    def close(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
        for run in waiting:
            self._end(run, TaskEnded(TaskOutcome.LOST, "the runner was closed"))
        self._runner.close()

    # -- from the thread of one run --

    def _resolve(self, spec: TaskSpec) -> None:
        failure: TaskEnded | None = None
        try:
            spec = self._resolved(spec)
        except ConfigProviderError as error:
            _log.info("task %s cannot start: %s", spec.task, error)
            failure = TaskEnded(TaskOutcome.FAILED, str(error))
        except BaseException as error:  # an author's own code; the run must not wait for ever
            reason = self._misused(spec, error)
            _log.info("task %s cannot start: %s", spec.task, reason)
            failure = TaskEnded(TaskOutcome.FAILED, reason)
        with self._lock:  # until it is handed on, so that a stop comes before or after all of it
            early = self._waiting.pop(spec.run, None)
            if early is None:
                return  # stopped meanwhile
            if failure is None:
                failure = self._handed_on(spec)
            if failure is None:
                for command in early:
                    self._runner.send(spec.run, command)
                return
        self._end(spec.run, failure)

    def _handed_on(self, spec: TaskSpec) -> TaskEnded | None:
        """Start the task with the runner. Return None, or how the run ended if it could not be
        started."""
        try:
            self._runner.start(spec)
        except BaseException as error:  # nobody else on this thread would report it
            return _not_launched(spec, error)
        return None

    def _resolved(self, spec: TaskSpec) -> TaskSpec:
        of = f"task {spec.task}"
        connector = self._transformer.resolve(spec.connector_config, of)
        task = self._transformer.resolve(spec.task_config, of)
        return replace(
            spec,
            connector_config=_texts(connector.config),
            task_config=_texts(task.config),
            hidden={**connector.found, **task.found},
        )

    def _misused(self, spec: TaskSpec, error: BaseException) -> str:
        """Return the reason with the exception's class only: its text may have secrets, see
        `ConfigProvider`."""
        configs = (spec.connector_config, spec.task_config)
        asked = {
            found.provider
            for config in configs
            for value in config.values()
            for found in references(value)
            if self._transformer.resolves({"": found.text})
        }
        names = ", ".join(sorted(asked))
        return (
            f"what config provider {names} gave cannot be used ({type(error).__name__}): expected "
            "a mapping of keys to texts. Mend the provider, then restart the task"
        )

    def _end(self, run: str, ended: TaskEnded) -> None:
        self._report(run, ended)
        self._report(run, TaskReleased())


def _not_launched(spec: TaskSpec, error: BaseException) -> TaskEnded:
    reason = HiddenValues(spec.hidden.items()).hide(f"it could not be launched: {error}")
    _log.info("task %s cannot start: %s", spec.task, reason)
    return TaskEnded(TaskOutcome.FAILED, reason)


def _texts(config: Config) -> dict[str, str]:
    return {key: value for key, value in config.items() if value is not None}
