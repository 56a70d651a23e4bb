"""The config keys that Connect itself defines for every connector, for sources and for sinks.

Source: `ConnectorConfig`, `SourceConnectorConfig`, `SinkConnectorConfig` (4.3.1). Differs: a class
is given by its name and not loaded, versions of plugins are accepted but not compared, and regular
expressions are Python's.
"""

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, Final

from headgate.connector.config import NO_DEFAULT, ConfigDef, Importance, Type, Validator, Width
from headgate.connector.converters import CONVERTERS, HEADER_CONVERTERS
from headgate.connector.transforms import PREDICATES, TRANSFORMS
from headgate.connector.transforms.registry import known_transform
from headgate.connector.validators import (
    ALIASES_MAX,
    at_least,
    between,
    connector_name,
    java_regex,
    known_class,
    non_empty,
    one_of,
    one_of_any_case,
    optional,
    unique_aliases,
    unique_values,
)

COMMON: Final = "Common"
ERRORS: Final = "Error Handling"

CLIENT_PREFIXES: Final = ("producer.override.", "consumer.override.", "admin.override.")
TASKS_MAX: Final = 100_000
"""Largest number of tasks of a connector. Java has no limit, and builds lists of that length."""
SHOWN_MAX: Final = 20
"""Number of aliases that an error lists."""
CONVERTER_KEYS: Final = ("key.converter", "value.converter", "header.converter")


def connector_keys(worker_settings: Mapping[str, str]) -> ConfigDef:
    """Return the keys of both kinds of connector. The defaults of the converters are the
    worker's."""
    keys = _Keys(COMMON)
    high, medium, low = Importance.HIGH, Importance.MEDIUM, Importance.LOW
    keys.add(
        "name",
        Type.STRING,
        NO_DEFAULT,
        connector_name,
        high,
        "Globally unique name to use for this connector.",
        "Connector name",
        Width.MEDIUM,
    )
    keys.add(
        "connector.class",
        Type.STRING,
        NO_DEFAULT,
        None,
        high,
        "Name or alias of the class for this connector.",
        "Connector class",
        Width.LONG,
    )
    keys.add(
        "connector.plugin.version",
        Type.STRING,
        None,
        None,
        medium,
        "Version of the connector.",
        "Connector version",
        Width.MEDIUM,
    )
    keys.add(
        "tasks.max",
        Type.INT,
        1,
        between(1, TASKS_MAX),
        high,
        "Maximum number of tasks to use for this connector.",
        "Tasks max",
    )
    keys.add(
        "tasks.max.enforce",
        Type.BOOLEAN,
        True,
        None,
        low,
        "Whether a connector that generates more tasks than tasks.max fails.",
        "Enforce tasks max",
    )
    _add_converter_keys(keys, worker_settings)
    _add_list_keys(keys)
    _add_error_keys(keys)
    return keys.definition


def _add_converter_keys(keys: "_Keys", worker_settings: Mapping[str, str]) -> None:
    low = Importance.LOW
    for key, known in zip(CONVERTER_KEYS, (CONVERTERS, CONVERTERS, HEADER_CONVERTERS), strict=True):
        what = key.partition(".")[0]
        keys.add(
            key,
            Type.CLASS,
            worker_settings.get(key),
            known_class(known),
            low,
            f"Converter of {what}s; by default the worker's.",
            f"{what.capitalize()} converter class",
        )
        keys.add(
            f"{key}.plugin.version",
            Type.STRING,
            None,
            None,
            low,
            f"Version of the {what} converter.",
            f"{what.capitalize()} converter version",
        )


def _add_list_keys(keys: "_Keys") -> None:
    low = Importance.LOW
    keys.add(
        "transforms",
        Type.LIST,
        "",
        unique_aliases,
        low,
        "Aliases for the transformations to be applied to records.",
        "Transforms",
        Width.LONG,
        group="Transforms",
    )
    keys.add(
        "predicates",
        Type.LIST,
        "",
        unique_aliases,
        low,
        "Aliases for the predicates used by transformations.",
        "Predicates",
        Width.LONG,
        group="Predicates",
    )
    keys.add(
        "config.action.reload",
        Type.STRING,
        "restart",
        one_of("none", "restart"),
        low,
        "What to do when a config provider's value has changed.",
        "Reload Action",
        Width.MEDIUM,
    )


def _add_error_keys(keys: "_Keys") -> None:
    medium, width = Importance.MEDIUM, Width.MEDIUM
    keys.start(ERRORS)
    keys.add(
        "errors.retry.timeout",
        Type.LONG,
        0,
        None,
        medium,
        "How long in milliseconds a failed operation is tried again; -1 is without end.",
        "Retry Timeout for Errors",
        width,
    )
    keys.add(
        "errors.retry.delay.max.ms",
        Type.LONG,
        60000,
        None,
        medium,
        "Longest wait in milliseconds between two attempts.",
        "Maximum Delay Between Retries for Errors",
        width,
    )
    keys.add(
        "errors.tolerance",
        Type.STRING,
        "none",
        one_of("none", "all"),
        medium,
        "'none': an error fails the task; 'all': problematic records are skipped.",
        "Error Tolerance",
    )
    keys.add(
        "errors.log.enable",
        Type.BOOLEAN,
        False,
        None,
        medium,
        "Log each error that is tolerated too.",
        "Log Errors",
    )
    keys.add(
        "errors.log.include.messages",
        Type.BOOLEAN,
        False,
        None,
        medium,
        "Log the record that an error is about.",
        "Log Error Details",
    )


def source_keys(worker_settings: Mapping[str, str]) -> ConfigDef:
    keys = _Keys("Topic Creation", connector_keys(worker_settings))
    low, medium = Importance.LOW, Importance.MEDIUM
    keys.add(
        "topic.creation.groups",
        Type.LIST,
        "",
        unique_aliases,
        low,
        "Groups of configurations for topics created by source connectors",
        "Topic Creation Groups",
        Width.LONG,
    )
    keys.start("Exactly Once Support", order=1)
    keys.add(
        "exactly.once.support",
        Type.STRING,
        "requested",
        one_of_any_case("requested", "required"),
        medium,
        "'required': refuse the connector unless it can deliver exactly once.",
        "Exactly once support",
    )
    keys.add(
        "transaction.boundary",
        Type.STRING,
        "poll",
        one_of_any_case("interval", "poll", "connector"),
        medium,
        "What ends a transaction: each poll, an interval, or the connector.",
        "Transaction Boundary",
    )
    keys.add(
        "transaction.boundary.interval.ms",
        Type.LONG,
        None,
        optional(at_least(0)),
        low,
        "The interval of 'interval'; by default the worker's offset.flush.interval.ms.",
        "Transaction boundary interval",
    )
    keys.start("offsets.topic")
    keys.add(
        "offsets.storage.topic",
        Type.STRING,
        None,
        non_empty,
        low,
        "An offsets topic of the connector's own.",
        "Offsets topic",
        Width.LONG,
    )
    return keys.definition


def sink_keys(worker_settings: Mapping[str, str]) -> ConfigDef:
    keys = _Keys(COMMON, connector_keys(worker_settings), order=3)
    high, medium = Importance.HIGH, Importance.MEDIUM
    keys.add(
        "topics",
        Type.LIST,
        "",
        unique_values,
        high,
        "List of topics to consume, separated by commas",
        "Topics",
        Width.LONG,
    )
    keys.start(COMMON, order=3)  # both have order 4 in Connect
    keys.add(
        "topics.regex",
        Type.STRING,
        "",
        java_regex,
        high,
        "Regular expression giving topics to consume.",
        "Topics regex",
        Width.LONG,
    )
    keys.start(ERRORS, order=5)
    prefix = "errors.deadletterqueue."
    keys.add(
        prefix + "topic.name",
        Type.STRING,
        "",
        None,
        medium,
        "Topic for records that could not be processed; empty for none.",
        "Dead Letter Queue Topic Name",
        Width.MEDIUM,
    )
    keys.add(
        prefix + "topic.replication.factor",
        Type.SHORT,
        3,
        None,
        medium,
        "Replication factor of that topic when it is created.",
        "Dead Letter Queue Topic Replication Factor",
        Width.MEDIUM,
    )
    keys.add(
        prefix + "context.headers.enable",
        Type.BOOLEAN,
        False,
        None,
        medium,
        "Add headers that tell of the error.",
        "Enable Error Context Headers",
        Width.MEDIUM,
    )
    return keys.definition


def add_chain_keys(definition: ConfigDef, config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Add the keys of each transform and predicate that `config` names by an alias.

    Returns:
        Errors by key, for errors that involve several keys.
    """
    errors: dict[str, list[str]] = {}
    predicates = dict.fromkeys(_aliases(config.get("predicates")))
    shown = ", ".join(islice(predicates, SHOWN_MAX)) or "none"
    if len(predicates) > SHOWN_MAX:
        shown += f" and {len(predicates) - SHOWN_MAX} more"
    for alias in _aliases(config.get("transforms")):
        prefix = f"transforms.{alias}."
        _embed(definition, prefix, "Transforms", TRANSFORMS, config)
        group = f"Transforms: {alias}"
        definition.define(
            prefix + "predicate",
            Type.STRING,
            None,
            None,
            Importance.MEDIUM,
            "The alias of a predicate that decides whether to apply it.",
            group=group,
        )
        definition.define(
            prefix + "negate",
            Type.BOOLEAN,
            False,
            None,
            Importance.MEDIUM,
            "Whether the predicate is negated.",
            group=group,
        )
        named = config.get(prefix + "predicate")
        if named is not None and named not in predicates:
            # Differs: Java notices this when the task starts.
            text = (
                f"Invalid value {named} for configuration {prefix}predicate: no such alias in "
                f"predicates ({shown})"
            )
            errors.setdefault(prefix + "predicate", []).append(text)
        if prefix + "negate" in config and named is None:
            text = (
                f"Config '{prefix}negate' was provided but there is no config "
                f"'{prefix}predicate' defining a predicate to be negated."
            )
            errors.setdefault(prefix + "type", []).append(text)
    for alias in predicates:
        _embed(definition, f"predicates.{alias}.", "Predicates", PREDICATES, config)
    return errors


def prefixes_of_unknown_classes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the key prefixes of transforms, predicates and converters whose class is named but
    unknown; their keys cannot be known either."""
    named: list[tuple[str, str, Collection[str]]] = []
    for kind, known in (("transforms", TRANSFORMS), ("predicates", PREDICATES)):
        for alias in _aliases(config.get(kind)):
            prefix = f"{kind}.{alias}."
            named.append((prefix, prefix + "type", known))
    converters = {*CONVERTERS, *HEADER_CONVERTERS}
    named += [(f"{key}.", key, converters) for key in CONVERTER_KEYS]
    return tuple(
        prefix
        for prefix, key, known in named
        if key in config and str(config[key]).strip() not in known
    )


def _embed(
    definition: ConfigDef,
    prefix: str,
    group: str,
    known: Mapping[str, Any],
    config: Mapping[str, Any],
) -> None:
    alias = prefix.split(".", 1)[1].removesuffix(".")
    keys = _Keys(f"{group}: {alias}", definition, order=-1)
    kind = "transformation" if group == "Transforms" else "predicate"
    keys.add(
        prefix + "type",
        Type.CLASS,
        NO_DEFAULT,
        known_transform(known),
        Importance.HIGH,
        f"Class for the '{alias}' {kind}.",
        f"{kind.capitalize()} type for {alias}",
        Width.LONG,
    )
    keys.add(
        prefix + "plugin.version",
        Type.STRING,
        None,
        None,
        Importance.HIGH,
        f"Version of the '{alias}' {kind}.",
        f"{kind.capitalize()} version for {alias}",
        Width.LONG,
    )
    found = known.get(str(config.get(prefix + "type")).strip())
    for key in found.CONFIG.keys.values() if found else ():
        keys.add(
            prefix + key.name,
            key.type,
            key.default,
            key.validator,
            key.importance,
            key.documentation,
            key.display_name,
            key.width,
        )


def _aliases(text: object) -> list[str]:
    """Return the aliases in order, without duplicates; none if there are so many that
    `unique_aliases` refuses them."""
    parts = text.split(",") if isinstance(text, str) else []
    if len(parts) > ALIASES_MAX:
        return []
    return [alias for alias in dict.fromkeys(part.strip() for part in parts) if alias]


class _Keys:
    """Adds keys to one group and counts their order in it."""

    def __init__(self, group: str, definition: ConfigDef | None = None, order: int = 0) -> None:
        self.definition = ConfigDef() if definition is None else definition
        self.start(group, order)

    def start(self, group: str, order: int = 0) -> None:
        self._group = group
        self._order = order

    def add(
        self,
        name: str,
        type: Type,
        default: Any,
        validator: Validator | None,
        importance: Importance,
        documentation: str,
        display_name: str,
        width: Width = Width.SHORT,
        *,
        group: str | None = None,
    ) -> None:
        self._order += 1
        self.definition.define(
            name,
            type,
            default,
            validator,
            importance,
            documentation,
            group=self._group if group is None else group,
            order=self._order,
            width=width,
            display_name=display_name,
        )
