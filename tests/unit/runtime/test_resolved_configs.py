"""Configs are resolved on their way from the herder to plugins, and the values are hidden in the
answers."""

import logging
import queue
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from headgate.connector.api import SinkConnector, SinkTask, SourceConnector, SourceTask
from headgate.connector.config_providers import ConfigProvider, ConfigProviderError
from headgate.herder.messages import (
    AlterConnectorOffsets,
    Command,
    ConnectorFailed,
    ConnectorStarted,
    ConnectorStopped,
    FenceProducers,
    GenerateTaskConfigs,
    ProducersFenced,
    ReadConnectorOffsets,
    StartConnector,
    StopConnector,
    TaskConfigsGenerated,
)
from headgate.task.messages import TaskKind
from headgate_embedded import transport_settings
from headgate_runtime.command import doctor
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.config.transformer import NO_PROVIDERS, WorkerConfigTransformer
from headgate_runtime.worker import connector_offsets, perform
from headgate_runtime.worker.connector_host import ConnectorHost
from headgate_runtime.worker.connector_offsets import ConnectorOffsets
from headgate_runtime.worker.log_format import JsonFormatter, TextFormatter, subject
from headgate_runtime.worker.loop import Worker, WorkerConfig

SECRET = "s3cr3t-word"
CONFIG = {
    "connector.class": f"{__name__}:Source",
    "password": "${vault:password}",
    "url": "//me:${vault:password}@host",
    "tasks.max": "${vault:tasks}",
}
SEALED = "config provider vault, path 'sealed', key 'x': it is sealed"


class Vault(ConfigProvider):
    def __init__(self) -> None:
        self.values = {"password": SECRET, "tasks": "2"}
        self.closed = 0

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if path:
            raise ConfigProviderError("it is sealed")
        return {key: self.values[key] for key in keys if key in self.values}

    def close(self) -> None:
        self.closed += 1


class Source(SourceConnector):
    """Echoes its config, and copies the password to another key. Fails as it is told."""

    TASK: ClassVar[type[SourceTask]] = SourceTask
    started: ClassVar[Mapping[str, str]] = {}
    fails_in: ClassVar[str] = ""

    def start(self, config: Mapping[str, str]) -> None:
        type(self).started = config
        self.fail("start")

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        self.fail("task_configs")
        return [{**self.started, "n": str(n)} for n in range(tasks_max)]

    def stop(self) -> None:
        self.fail("stop")

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Sequence[Any]) -> bool:
        cls.started = config
        cls.fail("alter_offsets")
        return True

    @classmethod
    def fail(cls, where: str) -> None:
        if where == cls.fails_in:
            raise ValueError(f"no login with {cls.started['url']}")


class Sink(SinkConnector):
    TASK: ClassVar[type[SinkTask]] = SinkTask


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "started", {})
    monkeypatch.setattr(Source, "fails_in", "")


@pytest.fixture
def vault() -> Vault:
    return Vault()


class Host:
    def __init__(self, vault: Vault) -> None:
        self.said: queue.Queue[Command] = queue.Queue()
        transformer = WorkerConfigTransformer({"vault": vault})
        self.host = ConnectorHost(self.said.put, lambda *_: None, transformer)  # type: ignore[arg-type, return-value]

    def start(self, config: Mapping[str, str]) -> Command:
        self.host.start(StartConnector("c", 1, config))
        return self.said.get(timeout=10)

    def generate(self) -> TaskConfigsGenerated:
        self.host.generate(GenerateTaskConfigs(7, "c", 1, 1))
        answer = self.said.get(timeout=10)
        assert isinstance(answer, TaskConfigsGenerated)
        return answer


@pytest.fixture
def host(vault: Vault) -> Host:
    return Host(vault)


def test_a_connector_gets_values_and_its_task_configs_are_logged_with_references(
    host: Host,
) -> None:
    assert host.start(CONFIG) == ConnectorStarted("c", 1)
    assert Source.started["url"] == f"//me:{SECRET}@host"
    answer = host.generate()
    assert answer.resolved is not None
    assert (answer.resolved.tasks_max, answer.resolved.tasks_max_enforced) == (2, True)
    for n, config in enumerate(answer.configs):
        echoed = {key: value for key, value in config.items() if key in CONFIG}
        assert echoed == CONFIG and config["n"] == str(n)
    assert SECRET not in repr(answer)


def test_the_digest_tells_of_changed_values_though_the_connector_has_the_old_ones(
    host: Host, vault: Vault
) -> None:
    host.start(CONFIG)
    first, second = host.generate().resolved, host.generate().resolved
    vault.values["password"] = "another-word"
    third = host.generate().resolved
    assert first is not None and first == second and third is not None
    assert first.digest != third.digest
    other = Host(vault)
    other.start(CONFIG)
    salted = other.generate().resolved
    assert salted is not None and salted.digest != third.digest


def test_a_config_without_references_has_no_digest(host: Host) -> None:
    host.start({"connector.class": f"{__name__}:Source", "url": "${other:x:y}"})
    assert host.generate().resolved is None


@pytest.mark.parametrize("where", ["start", "task_configs", "stop"])
def test_what_a_connector_raises_is_told_with_references(
    host: Host, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Source, "fails_in", where)
    said: Command = host.start(CONFIG)
    if where == "task_configs":
        said = host.generate()
        assert isinstance(said, TaskConfigsGenerated)
        text = said.error or ""
    elif where == "stop":
        host.host.stop(StopConnector("c", 1, 10_000))
        said = host.said.get(timeout=10)
        assert isinstance(said, ConnectorStopped)
        text = said.error or ""
    else:
        assert isinstance(said, ConnectorFailed)
        text = said.reason
        assert "${vault:password}@host" in (said.trace or "")
    assert text == "ValueError: no login with //me:${vault:password}@host"
    assert SECRET not in repr(said) + caplog.text


def test_a_provider_that_fails_fails_the_connector(host: Host) -> None:
    failed = host.start({**CONFIG, "x": "${vault:sealed:x}"})
    assert isinstance(failed, ConnectorFailed)
    assert failed.reason == f"ConfigProviderError: {SEALED}"


# -- offsets and fencing --


@pytest.fixture
def offsets(tmp_path: Path, vault: Vault) -> ConnectorOffsets:
    return ConnectorOffsets(
        transport_settings(tmp_path),
        WorkerSettings.parse({}),
        lambda _effect: True,
        WorkerConfigTransformer({"vault": vault}),
    )


def altered(offsets: ConnectorOffsets, config: Mapping[str, str]) -> Any:
    change = (({"file": "a"}, {"n": 1}),)
    effect = AlterConnectorOffsets(1, "c", config, TaskKind.SOURCE, change, None, "m", 1, 5)
    offsets.expect(effect.token)
    return offsets.alter(effect)


def test_offsets_are_altered_with_values_and_refused_with_references(
    offsets: ConnectorOffsets, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert altered(offsets, CONFIG).failure is None
    assert Source.started["url"] == f"//me:{SECRET}@host"
    monkeypatch.setattr(Source, "fails_in", "alter_offsets")
    failure = altered(offsets, CONFIG).failure
    assert failure.message == "no login with //me:${vault:password}@host"
    assert SECRET not in caplog.text and "${vault:password}@host" in caplog.text


def test_offsets_of_a_sink_are_those_of_the_group_that_is_meant(
    offsets: ConnectorOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    def note(*_: Any, **__: Any) -> Any:
        raise connector_offsets.TransportError("away")

    monkeypatch.setattr(
        connector_offsets,
        "open_task_transport",
        lambda _t, config, **_: opened.append(config) or note(),
    )
    config = {"connector.class": f"{__name__}:Sink", "consumer.override.group.id": "${vault:tasks}"}
    failure = offsets.read(ReadConnectorOffsets(1, "c", config, TaskKind.SINK)).failure
    assert failure is not None and failure.message.endswith("away")
    assert opened[0]["consumer.override.group.id"] == "2"


def test_offsets_of_a_connector_whose_provider_fails(offsets: ConnectorOffsets) -> None:
    config = {**CONFIG, "x": "${vault:sealed:x}"}
    read = offsets.read(ReadConnectorOffsets(1, "c", config, TaskKind.SOURCE)).failure
    assert read is not None
    assert read.message == f"Failed to retrieve offsets of connector c: {SEALED}"
    said = altered(offsets, config).failure.message
    assert said == f"Failed to change offsets of connector c: {SEALED}"


@pytest.fixture
def worker(tmp_path: Path, vault: Vault) -> Iterator[Worker]:
    settings = {"headgate.task.runner": "thread"}
    config = WorkerConfig("w", "w", transport_settings(tmp_path), settings)
    made = Worker(config, transformer=WorkerConfigTransformer({"vault": vault}))
    yield made
    made._performer.close()


def test_producers_are_shut_out_where_the_config_means(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    elsewhere = SimpleNamespace(fencer=SimpleNamespace(fence=lambda ids: None), close=lambda: None)
    monkeypatch.setattr(
        perform, "open_task_transport", lambda _t, config, **_: opened.append(config) or elsewhere
    )
    given = {"producer.override.bootstrap.servers": "${vault:password}:9092"}
    monkeypatch.setattr(worker._performer, "_config_of", lambda _name: given)
    worker.host.perform([FenceProducers(7, "c", ("a",))])
    assert worker._inbox.get(timeout=10) == ProducersFenced(7)
    assert opened == [{"producer.override.bootstrap.servers": f"{SECRET}:9092"}]
    given["x"] = "${vault:sealed:x}"
    worker.host.perform([FenceProducers(8, "c", ("a",))])
    assert worker._inbox.get(timeout=10) == ProducersFenced(8, SEALED)


def test_providers_are_closed_with_the_worker(worker: Worker, vault: Vault) -> None:
    worker._performer.close()
    assert vault.closed == 1


def test_the_doctor_tries_what_configs_mean(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    fake = SimpleNamespace(
        connector_rights=lambda name, config, *of: asked.append((name, config["topic"], *of)) or [],
        own_topic_fault=lambda name, config: ("own", "it is lost"),
        stale_own_topics=lambda configs: [],
    )
    entries = {
        # Three producers were recorded, and its tasks are fewer now.
        "c": SimpleNamespace(config={"topic": "${vault:password}"}, fencing_count=3),
        "d": SimpleNamespace(config={"topic": "${vault:sealed:x}"}, fencing_count=None),
    }
    state = SimpleNamespace(connector_names=lambda: entries, entries=entries, tasks=lambda _: ())
    group = SimpleNamespace(group="g", state="Stable", members=())
    monkeypatch.setattr(doctor, "describe", lambda _look: {"findings": []})
    look: Any = SimpleNamespace(state=state, group=group)
    found = list(doctor._cluster(fake, look, WorkerConfigTransformer({"vault": vault})))
    assert asked == [("c", SECRET, "source", 1, 3)]
    bad, lost = [check for check in found if check.outcome is doctor.Outcome.BAD]
    assert (bad.about, bad.text) == ("config of connector d", SEALED)
    assert lost.about == "offsets.storage.topic of connector c"
    assert lost.text == "own: it is lost"


@pytest.mark.parametrize(
    ("plugin", "kind"),
    [("SparkFileSink", "planned sink"), ("FileStreamSink", "sink"), ("no.such.Sink", "sink")],
)
def test_the_doctor_knows_sinks_that_plan_batches(
    plugin: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    fake = SimpleNamespace(
        connector_rights=lambda _name, _config, kind, *of: asked.append(kind) or [],
        stale_own_topics=lambda configs: [],
    )
    config = {"connector.class": plugin, "topics": "t"}
    entries = {"c": SimpleNamespace(config=config, fencing_count=None)}
    state = SimpleNamespace(connector_names=lambda: entries, entries=entries, tasks=lambda _: ())
    group = SimpleNamespace(group="g", state="Stable", members=())
    monkeypatch.setattr(doctor, "describe", lambda _look: {"findings": []})
    look: Any = SimpleNamespace(state=state, group=group)
    assert list(doctor._cluster(fake, look, WorkerConfigTransformer({})))
    assert asked == [kind]


# -- the log --


@pytest.fixture
def logged() -> Iterator[Callable[[], str]]:
    """Yield a function that returns the lines logged in this test."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Lines()
    logging.getLogger().addHandler(handler)
    yield lambda: "\n".join(lines)
    logging.getLogger().removeHandler(handler)


def test_whoever_logs_a_value_logs_its_reference(logged: Callable[[], str], vault: Vault) -> None:
    transformer = WorkerConfigTransformer({"vault": vault})
    transformer.resolve(CONFIG, "c")
    log = logging.getLogger("a.connectors.own")
    log.warning("login as %s, %d tasks", SECRET, 2)
    log.warning(f"{SECRET} in 2 places", extra={"x": 1})
    try:
        raise ValueError(f"not {SECRET}")
    except ValueError:
        log.exception("it failed")
    assert SECRET not in logged()
    assert "login as ${vault:password}, 2 tasks" in logged()  # a number is no secret
    assert "ValueError: not ${vault:password}" in logged()


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_trace_beside_a_line_has_references_in_either_format(
    logged: Callable[[], str], vault: Vault, formatter: logging.Formatter
) -> None:
    own = [one for one in logging.getLogger().handlers if type(one).__name__ == "Lines"]
    own[0].setFormatter(formatter)
    WorkerConfigTransformer({"vault": vault}).resolve(CONFIG, "c")
    extra = subject("c", f"Traceback ...\nValueError: not {SECRET}")
    logging.getLogger("x").error("connector c FAILED", extra=extra)
    assert SECRET not in logged()
    assert "ValueError: not ${vault:password}" in logged()


def test_a_value_that_was_replaced_stays_hidden(logged: Callable[[], str], vault: Vault) -> None:
    transformer = WorkerConfigTransformer({"vault": vault})
    words = ("the-first-word", "the-second-word")
    for word in words:
        vault.values["password"] = word
        transformer.resolve(CONFIG, "c")
    logging.getLogger("x").warning("from %s to %s", *words)
    assert logged() == "from ${vault:password} to ${vault:password}"


def test_an_unknown_key_is_told_and_nothing_else(logged: Callable[[], str], vault: Vault) -> None:
    transformer = WorkerConfigTransformer({"vault": vault})
    found = transformer.resolve({"a": "${vault:none} ${other:x}"}, "connector c")
    assert found.config == {"a": "${vault:none} ${other:x}"}
    said = "connector c: ${vault:none} stays as it is: config provider vault has no such key"
    assert logged() == said


def test_without_providers_nothing_is_resolved(logged: Callable[[], str]) -> None:
    assert not NO_PROVIDERS.resolves(CONFIG)
    assert NO_PROVIDERS.resolve(CONFIG, "c").config is CONFIG
    assert logged() == ""
