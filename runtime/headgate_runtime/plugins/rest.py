"""The plugins of this worker as Connect's REST API shows them. Source: `ConnectorPluginsResource`,
`AbstractHerder.connectorPluginConfig`, KIP-769.

Differs: a connector that is announced under several names is listed once, by its fullest name. A
config without `connector.class`, or with a class that is not installed here, is answered 400 (Java:
500).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final

from headgate.connector.api import SinkConnector
from headgate.connector.config import ConfigDef, ConfigKeyInfo
from headgate.connector.framework import sink_keys, source_keys
from headgate.connector.validation import missing_class_message
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.config.transformer import NO_PROVIDERS, WorkerConfigTransformer
from headgate_runtime.plugins.find import PluginError, available, connector_kind, find_connector
from headgate_runtime.plugins.parts import PARTS, part_definition
from headgate_runtime.plugins.threads import HangError, PluginThreads
from headgate_runtime.plugins.validation import config_infos, config_notes
from headgate_runtime.tasks import long_calls
from headgate_runtime.worker.connector_calls import ConnectorCalls

_SUFFIX: Final = "Connector"


class RestPlugins:
    """The plugins. Their methods run connectors' own code: call them where that may take its
    time."""

    def __init__(
        self, settings: WorkerSettings, transformer: WorkerConfigTransformer = NO_PROVIDERS
    ) -> None:
        """Take the worker's settings, and the `transformer` of references in configs."""
        self._settings = settings
        self._transformer = transformer
        self._threads = PluginThreads("plugins")
        self.calls = ConnectorCalls()
        """Calls of validations that users ask for. Their connector may not exist, or only its
        class."""

    def submit(self, plugin: str, work: Callable[[], None]) -> None:
        """Have a thread do `work`, which asks `plugin`. Raises PluginsHangError: too many of the
        plugin's calls hang."""
        from headgate_rest.side_requests import PluginsHangError

        try:
            self._threads.submit(plugin, work)
        except HangError as error:
            raise PluginsHangError(str(error)) from None

    def listed(self, *, connectors_only: bool) -> Sequence[Mapping[str, Any]]:
        found = _connectors()
        if connectors_only:
            return found
        own = version("headgate")
        for kind, table in PARTS:
            names = sorted(name for name in table if "." in name)  # not the shorter spellings
            found += [{"class": name, "type": kind, "version": own} for name in names]
        return found

    def config(self, plugin: str) -> Sequence[Mapping[str, Any]]:
        """Return the options of a plugin, its own first. Raises LookupError: it is unknown."""
        definition = part_definition(plugin)
        if definition is not None:
            return _keys(definition)
        try:
            connector = find_connector(plugin)
        except PluginError as error:
            raise LookupError(f"Unknown plugin {plugin}.") from error
        texts = self._settings.texts
        framework = sink_keys(texts) if issubclass(connector, SinkConnector) else source_keys(texts)
        own = connector.config_def()
        return [
            *_keys(own),
            *(each for each in _keys(framework) if each["name"] not in own.keys),
        ]

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> Mapping[str, Any]:
        """Return ConfigInfos, also for a config with errors. Raises ValueError: no class, a class
        other than `plugin`, or one that is not installed here."""
        named = config.get("connector.class")
        if named and not _short(named).endswith(_short(plugin)):
            raise ValueError(
                f"Included connector type {named} does not match request type {plugin}"
            )
        if not named:
            raise ValueError(missing_class_message(config))
        try:
            with self._validation(config):
                return config_infos(config, self._settings, self._transformer).plain()
        except PluginError as error:
            raise ValueError(str(error)) from error

    def notes(self, config: Mapping[str, str | None]) -> Sequence[tuple[str, str]]:
        """Return keys of a config, each with a note that is no error. Raises ValueError: its class
        is not installed here."""
        try:
            with self._validation(config):
                return config_notes(config, self._settings, self._transformer)
        except PluginError as error:
            raise ValueError(str(error)) from error

    @contextmanager
    def _validation(self, config: Mapping[str, str | None]) -> Iterator[None]:
        of = config.get("name") or config.get("connector.class") or ""
        with self.calls.watched(of), long_calls.call("validate"):
            yield


def _connectors() -> list[Mapping[str, Any]]:
    """Return sinks, then sources, as Connect does. A class that cannot be imported is left out."""
    by_target: dict[str, str] = {}
    for name, target in available().items():
        if "." in name or target not in by_target:
            by_target[target] = name
    found: list[Mapping[str, Any]] = []
    for name in by_target.values():
        try:
            connector = find_connector(name)
        except PluginError:
            continue
        kind = connector_kind(connector)
        found.append({"class": name, "type": kind, "version": connector.VERSION})
    return sorted(found, key=lambda each: (each["type"], each["class"]))


def _keys(definition: ConfigDef) -> list[dict[str, Any]]:
    return [ConfigKeyInfo.of(key).plain() for key in definition.keys.values()]


def _short(name: str) -> str:
    """Return Connect's shorter spelling of a class."""
    return name.removesuffix(_SUFFIX) if len(name) > len(_SUFFIX) else name
