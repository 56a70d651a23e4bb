"""Connect's answer to a connector config, made with the plugin's own definitions.

References in the config are resolved first, as in Connect. Differs: the answer has the references
where Connect's has their values. A provider's failure is an error of the key (Java: 500).
"""

from headgate.connector.config import ConfigInfos
from headgate.connector.config_providers import ConfigProviderError
from headgate.connector.delivery import delivery_notes
from headgate.connector.restart_policy import restart_errors
from headgate.connector.validation import (
    error_message,
    missing_class_message,
    validate_connector,
)
from headgate.topics.config_events import Config
from headgate_runtime.config.client_overrides import client_override_errors
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.config.transformer import (
    NO_PROVIDERS,
    ResolvedConfig,
    WorkerConfigTransformer,
)
from headgate_runtime.plugins.expressions import matches_in_time
from headgate_runtime.plugins.find import PluginError, find_connector


def config_error(
    name: str,
    config: Config,
    settings: WorkerSettings,
    transformer: WorkerConfigTransformer = NO_PROVIDERS,
) -> str | None:
    """Return why the config of connector `name` is refused, in the words of Connect's answer 400.
    Return None if it is valid."""
    if not config.get("connector.class"):
        return missing_class_message(config)
    try:
        infos = config_infos({**config, "name": name}, settings, transformer)
    except PluginError as error:
        return str(error)
    return error_message(infos) if infos.error_count else None


def config_infos(
    config: Config, settings: WorkerSettings, transformer: WorkerConfigTransformer
) -> ConfigInfos:
    """Return all that Connect would answer to the config, which names its class, on a worker with
    these settings.

    Raises:
        PluginError: the class is not installed here.
    """
    resolved, failures = _resolved(config, transformer)
    connector = find_connector(resolved.config.get("connector.class") or "")
    try:
        infos = validate_connector(
            connector,
            resolved.config,
            worker_settings=settings.texts,
            exactly_once_enabled=settings["exactly.once.source.support"] == "enabled",
            runner=settings["headgate.task.runner"],
            matches=matches_in_time,
            override_errors={
                **client_override_errors(connector, resolved.config, settings),
                **restart_errors(resolved.config),
                **failures,
            },
        )
    except Exception as error:  # the connector's own code
        if not resolved.found:
            raise
        text = resolved.hide(f"{type(error).__name__}: {error}")
        raise RuntimeError(f"the validation of {connector.__name__} raised {text}") from None
    _hide(infos, config, resolved)
    return infos


def config_notes(
    config: Config, settings: WorkerSettings, transformer: WorkerConfigTransformer
) -> list[tuple[str, str]]:
    """Return keys of a config, each with a note that is no error.

    Raises:
        PluginError: the class is not installed here.
    """
    resolved, _ = _resolved(config, transformer)
    connector = find_connector(resolved.config.get("connector.class") or "")
    enabled = settings["exactly.once.source.support"] == "enabled"
    notes = delivery_notes(connector, resolved.config, exactly_once_enabled=enabled)
    return [(key, resolved.hide(text)) for key, text in notes]


def _resolved(
    config: Config, transformer: WorkerConfigTransformer
) -> tuple[ResolvedConfig, dict[str, str]]:
    """Return the resolved config, and by key the errors of values that cannot be resolved. These
    stay as they are."""
    of = f"connector {config.get('name')}"
    try:
        return transformer.resolve(config, of), {}
    except ConfigProviderError:
        pass
    values: dict[str, str | None] = {}
    found: dict[str, str] = {}
    failures: dict[str, str] = {}
    for key, value in config.items():
        try:
            one = transformer.resolve({key: value}, of)
        except ConfigProviderError as error:
            one = ResolvedConfig({key: value})
            failures[key] = str(error)
        values.update(one.config)
        found.update(one.found)
    return ResolvedConfig(values, found), failures


def _hide(infos: ConfigInfos, config: Config, resolved: ResolvedConfig) -> None:
    if not resolved.found:
        return
    for value in (info.value for info in infos.configs):
        if resolved.config.get(value.name) != config.get(value.name):
            value.value = config.get(value.name)
        value.errors[:] = map(resolved.hide, value.errors)
