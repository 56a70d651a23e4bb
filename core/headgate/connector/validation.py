"""Validation of a connector config, answered as Connect does: every key with its value and errors.

Pure: the connector's class is passed in. Its own code (`config_def`, `validate`, the preflight
hooks) runs here, so call it where that may take time. Source: `AbstractHerder`,
`DistributedHerder`.

Differs: a null is an error for the connector's own keys too (Connect accepts it), and the task
runner is checked.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from headgate.connector.api import (
    Connector,
    DataError,
    ExactlyOnceSupport,
    PlannedSinkTask,
    RetriableError,
    SinkConnector,
    SourceConnector,
)
from headgate.connector.config import (
    ConfigDef,
    ConfigError,
    ConfigInfo,
    ConfigInfos,
    ConfigKey,
    ConfigKeyInfo,
    ConfigValue,
    Type,
    java_text,
    parse_type,
)
from headgate.connector.converters import CONVERTERS, HEADER_CONVERTERS, config_def_of
from headgate.connector.error_handling import LETTERS_KEYS, source_letter_errors
from headgate.connector.framework import (
    CLIENT_PREFIXES,
    CONVERTER_KEYS,
    add_chain_keys,
    prefixes_of_unknown_classes,
    sink_keys,
    source_keys,
)
from headgate.connector.nearest import nearest
from headgate.connector.restart_policy import KEYS as RESTART_KEYS
from headgate.connector.secret_keys import without_login
from headgate.connector.topic_creation import topic_creation_errors, topic_keys
from headgate.java.pattern import compile_java

Config: TypeAlias = Mapping[str, Any]
Results: TypeAlias = dict[str, ConfigValue]
NO_ERRORS: Final[Mapping[str, str]] = MappingProxyType({})
Matches: TypeAlias = Callable[[str, str], bool | None]
"""Function of a Java expression and a text. It returns whether they match; None if that takes too
long."""

# Exceptions by which a preflight hook refuses a config. Any other is a bug of the connector, and is
# left to the caller.
_REFUSALS: Final = (ConfigError, DataError, RetriableError, ValueError, OSError, RuntimeError)


def _matches(pattern: str, text: str) -> bool:
    return compile_java(pattern).match(text) is not None


def validate_connector(
    connector_class: type[Connector],
    config: Config,
    *,
    worker_settings: Mapping[str, str],
    exactly_once_enabled: bool,
    runner: str,
    known_converters: Collection[str] = (),
    override_errors: Mapping[str, str] = NO_ERRORS,
    matches: Matches = _matches,
) -> ConfigInfos:
    """Return everything that Connect reports about `config`, and what our runner adds.

    Args:
        config: Config with `name` and `connector.class`. Values are text, or None, which is an
            error.
        worker_settings: Texts; `group.id` and the converters are used.
        exactly_once_enabled: `exactly.once.source.support` of the worker is enabled.
        runner: The worker's task runner ("spark", "process", "thread").
        known_converters: Names of converters beside those of `headgate.connector.converters`.
        override_errors: Errors by key, about overrides for Kafka clients, which an adapter checks.
        matches: Tells whether a Java expression matches a whole text; a user's may take for ever.
    """
    definition, chain_errors = framework_definition(connector_class, config, worker_settings)
    results = definition.validate(config)
    _accept_converters(results, known_converters)
    _add(results, config, chain_errors)
    if issubclass(connector_class, SourceConnector):
        _check_exactly_once(connector_class, config, exactly_once_enabled, results)
        _check_transaction_boundary(connector_class, config, results)
        _add(results, config, topic_creation_errors(config))
        _add(results, config, source_letter_errors(config))
    elif issubclass(connector_class, SinkConnector):
        _check_topics(config, results, matches)
        _check_group(config, worker_settings.get("group.id", ""), results)
        _check_instance(config, results)
    own = connector_class.config_def()
    results.update(own.validate(config))  # the connector's definition replaces the framework's
    _add(results, config, connector_class.validate(config))
    _check_runner(connector_class, config, runner, results)
    _add(results, config, {key: [text] for key, text in override_errors.items()})
    _add(
        results,
        config,
        {key: [f"{_NULL_VALUE} Key: {key}"] for key, value in config.items() if value is None},
    )
    keys = {**definition.keys, **own.keys}
    return _infos(config, keys, [*definition.groups, *own.groups], results)


_NULL_VALUE: Final = "Null value can not be supplied as the configuration value."


def error_message(infos: ConfigInfos) -> str:
    """Return the text of Connect's answer 400."""
    return "\n".join(
        [
            "Connector configuration is invalid and contains the following "
            f"{infos.error_count} error(s):",
            *infos.errors,
            "You can also find the above list of errors at the endpoint "
            "`/connector-plugins/{connectorType}/config/validate`",
        ]
    )


def missing_class_message(config: Config) -> str:
    """Return Connect's text for a config without `connector.class`."""
    return f"Connector config {java_text(dict(config))} contains no connector type"


def unknown_keys(connector_class: type[Connector], config: Config) -> dict[str, str | None]:
    """Return the keys that no definition has, each with the nearest defined key if one is near.
    Keys of an unknown transform, predicate or converter are not included.

    This is for the pipeline file. Over the REST API Connect accepts such keys, since a connector
    may read them.
    """
    definition, _ = framework_definition(connector_class, config, {})
    known = {*definition.keys, *connector_class.config_def().keys, *RESTART_KEYS}
    for key in CONVERTER_KEYS:
        names = _converter_definition(str(config.get(key, "")))
        known.update(f"{key}.{name}" for name in (names.keys if names else ()))
    if issubclass(connector_class, SourceConnector):
        known.update(LETTERS_KEYS, topic_keys(config))
    families = (
        *CLIENT_PREFIXES,
        *connector_class.PASSED_ON,
        *prefixes_of_unknown_classes(config),
    )
    return {
        key: nearest(key, known)
        for key in config
        if key not in known and not key.startswith(families)
    }


def framework_definition(
    connector_class: type[Connector], config: Config, worker_settings: Mapping[str, str]
) -> tuple[ConfigDef, dict[str, list[str]]]:
    """Return the keys that Connect defines for this kind of connector, including those of the
    transforms and predicates that it names, and errors that involve several keys."""
    if issubclass(connector_class, SourceConnector):
        definition = source_keys(worker_settings)
    else:
        definition = sink_keys(worker_settings)
    return definition, add_chain_keys(definition, config)


def _accept_converters(results: Results, known: Collection[str]) -> None:
    for key in CONVERTER_KEYS:
        if results[key].value in known:
            results[key].errors.clear()


def _add(results: Results, config: Config, errors: Mapping[str, Iterable[str]]) -> None:
    for key, texts in errors.items():
        results.setdefault(key, ConfigValue(key, config.get(key))).errors.extend(
            map(without_login, texts)
        )


def _check_exactly_once(
    connector: type[SourceConnector], config: Config, enabled: bool, results: Results
) -> None:
    """Check `exactly.once.support`. Source: KIP-618."""
    result = results["exactly.once.support"]
    if result.errors or result.value.lower() != "required":
        return
    if not enabled:
        result.errors.append("This worker does not have exactly-once source support enabled.")
    try:
        support = connector.exactly_once_support(config)
    except _REFUSALS as error:
        result.errors.append(_unexpected(error))
        return
    if support is None:
        result.errors.append(
            "The connector does not implement the API required for preflight validation of "
            "exactly-once source support. Please consult the documentation for the connector to "
            "determine whether it supports exactly-once semantics, and then consider reconfiguring "
            'the connector to use the value "requested" for this property (which will disable this '
            "preflight check and allow the connector to be created)."
        )
    elif support is not ExactlyOnceSupport.SUPPORTED:
        result.errors.append(
            "The connector does not support exactly-once semantics with the provided configuration."
        )


def _check_transaction_boundary(
    connector: type[SourceConnector], config: Config, results: Results
) -> None:
    """Check `transaction.boundary`, whether or not exactly-once is on, as in Connect."""
    result = results["transaction.boundary"]
    if result.errors or result.value.lower() != "connector":
        return
    try:
        support = connector.can_define_transaction_boundaries(config)
    except _REFUSALS as error:
        result.errors.append(_unexpected(error))
        return
    if support is None:
        result.errors.append(
            "This connector has returned a null value from its canDefineTransactionBoundaries "
            "method, which is not permitted. The connector will be treated as if it cannot define "
            "its own transaction boundaries, and cannot be configured with 'transaction.boundary' "
            "set to 'connector'."
        )
    elif support is not ExactlyOnceSupport.SUPPORTED:
        result.errors.append(
            "The connector does not support connector-defined transaction boundaries with the "
            "given configuration. Please reconfigure it to use a different transaction boundary "
            "definition."
        )


def _unexpected(error: Exception) -> str:
    text = str(error).strip()
    tail = f": {text}" if text else "; please see the worker logs for more details."
    return f"An unexpected error occurred during validation{tail}"


def _check_topics(config: Config, results: Results, matches: Matches) -> None:
    """Check that exactly one of `topics` and `topics.regex` is set, and that neither includes the
    dead letter queue. The errors are reported on both keys."""
    topics = str(config.get("topics") or "").strip()
    pattern = str(config.get("topics.regex") or "").strip()
    if bool(topics) == bool(pattern):
        text = (
            "topics and topics.regex are mutually exclusive options, but both are set."
            if topics
            else "Must configure one of topics or topics.regex"
        )
        _add(results, config, {"topics": [text], "topics.regex": [text]})
    letters = str(config.get("errors.deadletterqueue.topic.name") or "").strip()
    names = parse_type("topics", topics, Type.LIST)
    if letters and letters in names:
        text = (
            f"The DLQ topic '{letters}' may not be included in the list of topics "
            f"('topics={java_text(names)}') consumed by the connector"
        )
        _add(results, config, {"topics": [text]})
    valid = pattern and not any("Invalid regex" in e for e in results["topics.regex"].errors)
    matched = matches(pattern, letters) if letters and valid else False
    if matched is None:
        text = (
            f"Invalid value {pattern} for configuration topics.regex: it takes too long to tell "
            f"whether it matches the DLQ topic '{letters}'. Write it without repetitions inside "
            "of repetitions"
        )
        _add(results, config, {"topics.regex": [text]})
    elif matched:
        text = (
            f"The DLQ topic '{letters}' may not be matched by the regex for the topics "
            f"('topics.regex={pattern}') consumed by the connector"
        )
        _add(results, config, {"topics.regex": [text]})


def _check_group(config: Config, worker_group: str, results: Results) -> None:
    override = "consumer.override.group.id"
    if override in config:
        if config[override] == worker_group:
            text = (
                f"Consumer group {worker_group} conflicts with Connect worker group {worker_group}"
            )
            _add(results, config, {override: [text]})
        return
    name = results["name"].value
    if worker_group == f"connect-{name}":
        results["name"].errors.append(
            f"Consumer group for sink connector named {name} conflicts with Connect worker group "
            f"{worker_group}"
        )


def _check_instance(config: Config, results: Results) -> None:
    """Check `group.instance.id`. Differs: Java starts the tasks, and each fences the one before
    it."""
    override, tasks_max = "consumer.override.group.instance.id", results["tasks.max"]
    if config.get(override) and not tasks_max.errors and tasks_max.value != 1:
        text = (
            f"Invalid value {config[override]} for configuration {override}: it is of one "
            f"consumer, and with tasks.max = {tasks_max.value} tasks would shut each other out. "
            "Leave it out, or set tasks.max to 1."
        )
        _add(results, config, {override: [text]})


def _check_runner(
    connector: type[Connector], config: Config, runner: str, results: Results
) -> None:
    """Check that the worker's task runner can run the connector. Java has no such check."""
    needed = connector.REQUIRES_RUNNER
    refused = results["connector.class"].errors
    if needed is not None and needed != runner:
        refused.append(
            f"Connector {connector.__name__} runs its tasks on the task runner {needed} only, but "
            f"this worker has headgate.task.runner={runner}. Set it to {needed}, or choose another "
            "connector."
        )
    task = getattr(connector, "TASK", None)
    if not (isinstance(task, type) and issubclass(task, PlannedSinkTask)):
        return
    if runner == "thread" and needed is None:
        refused.append(
            f"Connector {connector.__name__} commits files by itself; the task runner thread "
            "cannot kill a task that hangs, so two could write at once. Use the runner process or "
            "spark."
        )
    tasks_max = results["tasks.max"]
    if not tasks_max.errors and tasks_max.value != 1:
        tasks_max.errors.append(
            f"Invalid value {tasks_max.value} for configuration tasks.max: a sink of planned "
            "batches has one task; its parallelism is the partitions of its job. Set it to 1."
        )
    if refusal := no_transforms(config):
        _add(results, config, {"transforms": [refusal]})


def no_transforms(config: Config) -> str:
    """Return why a sink of planned batches refuses the transforms in `config`; empty if there are
    none. Such a sink reads the log itself."""
    named = str(config.get("transforms") or "").strip()
    if not named:
        return ""
    return (
        f"Invalid value {named} for configuration transforms: a sink of planned batches reads the "
        "log itself, and no transform would change its records. Leave transforms out, or use "
        "another sink."
    )


def _infos(
    config: Config, keys: Mapping[str, ConfigKey], groups: Iterable[str], results: Results
) -> ConfigInfos:
    """Return the infos in Connect's order, which its answer 400 shows: unknown keys, then known
    keys in order, then the converters' keys."""
    infos = [ConfigInfo(None, None, result) for key, result in results.items() if key not in keys]
    infos += [
        ConfigInfo(ConfigKeyInfo.of(key), key.type, results[name]) for name, key in keys.items()
    ]
    count = sum(len(info.value.errors) for info in infos)
    for key in CONVERTER_KEYS:
        if key in config and not results[key].errors:
            below = _converter_infos(key, config)
            count += sum(bool(info.value.errors) for info in below)  # Connect counts keys here
            infos += below
    name = config.get("connector.class")
    return ConfigInfos(str(name), count, tuple(dict.fromkeys(groups)), tuple(infos))


def _converter_infos(key: str, config: Config) -> list[ConfigInfo]:
    definition = _converter_definition(str(config[key]))
    if definition is None:
        return []
    prefix = key + "."
    below = {name[len(prefix) :]: text for name, text in config.items() if name.startswith(prefix)}
    infos: list[ConfigInfo] = []
    for name, result in definition.validate(below).items():
        described = definition.keys[name]
        result.name = prefix + name
        infos.append(ConfigInfo(ConfigKeyInfo.of(described, prefix), described.type, result))
    return infos


def converter_errors(key: str, config: Config) -> dict[str, str]:
    """Return errors about the keys of a converter's own class in a worker's config, and about keys
    that the class does not have.

    Args:
        key: One of `CONVERTER_KEYS`. An unknown class has no keys to check.
    """
    definition = _converter_definition(str(config[key]))
    if definition is None:
        return {}
    known = {f"{key}.{name}" for name in definition.keys}
    errors = {
        info.value.name: info.value.errors[0]
        for info in _converter_infos(key, config)
        if info.value.errors
    }
    for name in config:
        if name.startswith(f"{key}.") and name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else f"{config[key]} has no such key"
            errors[name] = f"unknown key; {hint}"
    return errors


def _converter_definition(class_name: str) -> ConfigDef | None:
    name = class_name.strip()
    return config_def_of(name) if name in CONVERTERS or name in HEADER_CONVERTERS else None
