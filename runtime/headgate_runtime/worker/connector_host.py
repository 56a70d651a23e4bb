"""Connector instances of one worker, each on a thread of its own.

Connector code never runs on the herder's thread: one blocked connector must not hang the worker. An
instance that does not stop in time is abandoned. Its thread goes on by itself, and what it reports
later is ignored.
"""

import logging
import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final, cast

from headgate.connector.api import Connector, OffsetReader, SourceConnector
from headgate.connector.config_providers import reverse_transform
from headgate.herder.messages import (
    Command,
    ConnectorFailed,
    ConnectorStarted,
    ConnectorStopped,
    GenerateTaskConfigs,
    ResolvedConnector,
    StartConnector,
    StopConnector,
    TaskConfigsGenerated,
    TaskReconfigurationRequested,
)
from headgate.herder.tasks_given import tasks_max, tasks_max_enforced
from headgate.topics.config_events import Config
from headgate_runtime.config.transformer import (
    NO_PROVIDERS,
    ResolvedConfig,
    WorkerConfigTransformer,
)
from headgate_runtime.plugins.find import find_connector
from headgate_runtime.tasks import long_calls
from headgate_runtime.worker.connector_calls import ConnectorCalls
from headgate_runtime.worker.log_format import work_on

log = logging.getLogger(__name__)

SHOWN_MAX: Final = 100
"""Longest part of a value that an error shows, in characters."""
Post = Callable[[Command], None]
Offsets = Callable[[str, Mapping[str, str]], OffsetReader]
"""Function that returns a reader of the source offsets of the connector with this name and
config."""


class _Context:
    """The connector's link to its worker. Source: `ConnectorContext`."""

    def __init__(
        self, instance: "_Instance", post: Post, offsets: Callable[[], OffsetReader] | None
    ) -> None:
        self._instance = instance
        self._post = post
        self._offsets = offsets

    @cached_property
    def offset_reader(self) -> OffsetReader:
        if self._offsets is None:
            raise AttributeError(
                f"{self._instance.name} is a sink connector, which has no source offsets"
            )
        return self._offsets()

    def request_task_reconfiguration(self) -> None:
        if not self._instance.over.is_set():
            self._post(TaskReconfigurationRequested(self._instance.name, self._instance.run))

    def raise_error(self, error: BaseException) -> None:
        if not self._instance.over.is_set():
            self._post(_failed(self._instance, error))


@dataclass
class _Instance:
    name: str
    run: int
    calls: "queue.SimpleQueue[Callable[[], None] | None]" = field(default_factory=queue.SimpleQueue)
    over: threading.Event = field(default_factory=threading.Event)
    """Set once the instance is stopped or abandoned. Nothing is reported about it any more."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    connector: Connector | None = None
    raw: Config = field(default_factory=dict)
    """Config as the herder has it, with references."""
    resolved: ResolvedConfig = field(default_factory=lambda: ResolvedConfig({}))
    """Config with which the connector was started, with the references resolved."""

    def finish(self) -> bool:
        """Declare the instance over. Return whether this call was the first to do so."""
        with self.lock:
            first = not self.over.is_set()
            self.over.set()
            return first


class ConnectorHost:
    """Performs the effects on connector instances, and posts their outcomes to `post`."""

    def __init__(
        self,
        post: Post,
        offsets: Offsets,
        transformer: WorkerConfigTransformer = NO_PROVIDERS,
        configs_bytes: int = 33_554_432,
        calls: ConnectorCalls | None = None,
    ) -> None:
        """
        Args:
            transformer: resolves references in configs.
            configs_bytes: how many characters the task configs of one connector may have together.
            calls: told of calls that do not return.
        """
        self._configs_bytes = configs_bytes
        self._calls = calls or ConnectorCalls()
        self._post = post
        self._offsets = offsets
        self._transformer = transformer
        self._instances: dict[tuple[str, int], _Instance] = {}
        self._lock = threading.Lock()

    def start(self, effect: StartConnector) -> None:
        instance = _Instance(effect.connector, effect.run, raw=effect.config)
        with self._lock:
            self._instances[effect.connector, effect.run] = instance
        thread = threading.Thread(
            target=self._serve, args=(instance,), name=f"connector-{effect.connector}", daemon=True
        )
        instance.calls.put(lambda: self._start(instance))
        try:
            thread.start()
        except RuntimeError as error:  # too many threads: the instance has not begun
            with self._lock:
                del self._instances[effect.connector, effect.run]
            log.info("connector %s cannot start: %s", effect.connector, error)
            self._post(_failed(instance, error))

    def generate(self, effect: GenerateTaskConfigs) -> None:
        instance = self._instances.get((effect.connector, effect.run))
        if instance is None:
            self._post(
                TaskConfigsGenerated(
                    effect.token, effect.connector, error="the connector instance is gone"
                )
            )
            return
        instance.calls.put(lambda: self._generate(instance, effect))

    def stop(self, effect: StopConnector) -> None:
        """Stop an instance. It is abandoned after `deadline_ms` of the effect."""
        with self._lock:
            instance = self._instances.pop((effect.connector, effect.run), None)
        if instance is None:
            self._post(ConnectorStopped(effect.connector, effect.run))
            return
        instance.calls.put(lambda: self._stop(instance))
        instance.calls.put(None)
        timer = threading.Timer(effect.deadline_ms / 1000, self._abandon, (instance,))
        timer.daemon = True
        timer.start()

    # -- on the instance's thread --

    def _serve(self, instance: _Instance) -> None:
        work_on(instance.name)
        with self._calls.watched(instance.name):
            while (call := instance.calls.get()) is not None:
                call()

    def _start(self, instance: _Instance) -> None:
        try:
            of = f"connector {instance.name}"
            instance.resolved = self._transformer.resolve(instance.raw, of)
            config = _strings(instance.resolved.config)
            kind = find_connector(config.get("connector.class", ""))
            connector = kind()
            is_source = issubclass(kind, SourceConnector)
            offsets = partial(self._offsets, instance.name, config) if is_source else None
            connector.context = _Context(instance, self._post, offsets)
            with long_calls.call("start"):
                connector.start(config)
            instance.connector = connector
        except BaseException as error:  # connector code may raise anything, SystemExit too
            failed = _failed(instance, error)
            log.info("connector %s failed to start: %s", instance.name, failed.reason)
            self._say(instance, failed)
            return
        version = None if kind.VERSION == Connector.VERSION else kind.VERSION
        self._say(instance, ConnectorStarted(instance.name, instance.run, version))

    def _generate(self, instance: _Instance, effect: GenerateTaskConfigs) -> None:
        connector = instance.connector
        if connector is None:
            self._say(
                instance,
                TaskConfigsGenerated(effect.token, instance.name, error="it is not started"),
            )
            return
        try:
            resolved = self._resolved_now(instance)
            limit = effect.tasks_max if resolved is None else resolved.tasks_max
            with long_calls.call("task_configs"):
                configs = _task_configs(connector, limit, self._configs_bytes)
        except BaseException as error:  # as in _start
            text = instance.resolved.hide(_line(error))
            log.info("connector %s gave no task configs: %s", instance.name, text)
            trace = instance.resolved.hide("".join(traceback.format_exception(error)))
            failed = TaskConfigsGenerated(effect.token, instance.name, error=text, trace=trace)
            self._say(instance, failed)
            return
        logged = tuple(reverse_transform(instance.raw, config) for config in configs)
        self._say(
            instance,
            TaskConfigsGenerated(effect.token, instance.name, logged, resolved=resolved),
        )

    def _resolved_now(self, instance: _Instance) -> ResolvedConnector | None:
        """Return what the tasks would be started with now, if the config has references. The
        connector may have been started with older values."""
        if not self._transformer.resolves(instance.raw):
            return None
        config = self._transformer.resolve(instance.raw, f"connector {instance.name}").config
        return ResolvedConnector(
            self._transformer.digest(config), tasks_max(config), tasks_max_enforced(config)
        )

    def _stop(self, instance: _Instance) -> None:
        error: str | None = None
        if instance.connector is not None:
            try:
                with long_calls.call("stop"):
                    instance.connector.stop()
            except BaseException as raised:  # as in _start
                error = instance.resolved.hide(_line(raised))
                log.warning("connector %s failed to stop: %s", instance.name, error)
        if instance.finish():
            self._post(ConnectorStopped(instance.name, instance.run, error))

    def _abandon(self, instance: _Instance) -> None:
        if not instance.finish():
            return
        log.warning("connector %s did not stop in time and is abandoned", instance.name)
        self._post(ConnectorStopped(instance.name, instance.run, "did not stop in time, abandoned"))

    def _say(self, instance: _Instance, command: Command) -> None:
        if not instance.over.is_set():
            self._post(command)


def _strings(config: Mapping[str, str | None]) -> dict[str, str]:
    """Return a config as connectors get it: keys without a value are left out."""
    return {key: value for key, value in config.items() if value is not None}


def _task_configs(
    connector: Connector, tasks_max: int, configs_bytes: int
) -> Sequence[dict[str, str]]:
    """Call the connector's `task_configs` and return the checked result, with ``task.class`` set.

    Raises:
        TypeError: the result is no list of mappings of strings. The message says what was seen.
        ValueError: the result is too large for the config topic and the workers' memory.
    """
    task_class = getattr(type(connector), "TASK", None)
    if not isinstance(task_class, type):
        raise TypeError(
            f"{type(connector).__name__}.TASK is {_shown(task_class)}; expected the class of its "
            "tasks: TASK = ..."
        )
    name = connector.JAVA_TASK or f"{task_class.__module__}:{task_class.__qualname__}"
    returned: object = connector.task_configs(tasks_max)
    if isinstance(returned, str | bytes | Mapping) or not isinstance(returned, Iterable):
        raise TypeError(f"task_configs returned {_shown(returned)}; {_EXPECTED}")
    configs: list[dict[str, str]] = []
    size = 0
    for number, config in enumerate(cast(Iterable[object], returned)):
        if not isinstance(config, Mapping):
            raise TypeError(f"task_configs returned {_shown(config)} as no. {number}; {_EXPECTED}")
        texts: dict[str, str] = {}
        for key, value in cast(Mapping[object, object], config).items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(
                    f"task_configs returned {key!r}: {value!r}; keys and values must be strings"
                )
            texts[key] = value
            size += len(key) + len(value)
        if size > configs_bytes:
            raise ValueError(
                f"task_configs returned more than {configs_bytes} characters in its first "
                f"{number + 1} configs: lower tasks.max, shorten the connector's config, or raise "
                "headgate.rest.task.configs.max.bytes"
            )
        configs.append({**texts, "task.class": name})
    return configs


_EXPECTED: Final = "expected a list with a mapping of strings for each task, empty for no tasks"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _failed(instance: _Instance, error: BaseException) -> ConnectorFailed:
    hide = instance.resolved.hide
    trace = "".join(traceback.format_exception(error))
    return ConnectorFailed(instance.name, instance.run, hide(_line(error)), hide(trace))


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
