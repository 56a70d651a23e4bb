"""Checks of what a connector's config says to its Kafka clients.

Source: KIP-458, AbstractHerder.validateAllConnectorClientOverrides. Differs: a value that no client
would take is an error of the config, answered 400 (Java: 500). The same goes for values that
contradict each other, if all of them are the connector's own.

The settings of the worker's file for its connectors' clients (``producer.acks``) are not looked at.
Neither are logins, whose parts may be in that file.
"""

from typing import TYPE_CHECKING

from headgate.connector.api import Connector, SinkConnector
from headgate.topics.config_events import Config
from headgate_runtime.config.parsers import brokers
from headgate_runtime.config.settings import WorkerSettings

if TYPE_CHECKING:
    from headgate_kafka.clients.settings import Role

_DEAD_LETTERS = "errors.deadletterqueue.topic.name"
SERVERS = "bootstrap.servers"
_OWN_TOPIC = "offsets.storage.topic"


def client_override_errors(
    connector: type[Connector], config: Config, settings: WorkerSettings
) -> dict[str, str]:
    """Return key -> error, for settings of the clients that the connector will use. Empty without
    Kafka."""
    if not settings[SERVERS]:
        return {}
    from headgate_kafka.clients.override_policy import override_errors
    from headgate_kafka.clients.settings import ROLES

    used = _clients_of(connector, config, settings)
    refused = override_errors(
        settings["connector.client.config.override.policy"],
        config,
        frozenset(settings["connector.client.config.override.allowlist"]),
    )
    errors = {key: text for key, text in refused.items() if key.partition(".")[0] in used}
    transactional = not issubclass(connector, SinkConnector) and _exactly_once(settings)
    for role in ROLES:
        if role in used:
            errors = _errors_of(role, config, transactional) | errors
    return errors


def _errors_of(role: "Role", config: Config, transactional: bool) -> dict[str, str]:
    from headgate_kafka.clients.settings import ClientSettingsError, checked, secures

    prefix, errors = f"{role}.override.", {}
    given: dict[str, str | None] = {}
    for key, value in config.items():
        name = key.removeprefix(prefix)
        # Parts of a login may be in the worker's file. They are checked together later.
        if name == key or secures(name):
            continue
        given[key] = value
        try:
            if name == SERVERS and value is not None:
                brokers(value)
            checked({name: value}, role)
        except ClientSettingsError as error:
            errors[key] = f"Invalid value {value} for configuration {error}"
        except ValueError as error:
            errors[key] = f"Invalid value {value} for configuration {name}: {error}"
    if given and not errors:
        try:
            _make_settings(role, given, transactional)
        except ClientSettingsError as error:
            key = prefix + error.key
            errors[key if key in given else min(given)] = (
                f"Invalid value {given.get(key)} for configuration {error}"
            )
    return errors


def _make_settings(role: "Role", given: Config, transactional: bool) -> None:
    """Make client settings as a task does, from the given ones alone."""
    from headgate_kafka.clients import settings as client_settings

    match role:
        case "producer":
            client_settings.producer_settings(
                {}, given, client_id="", transactional_id="t" if transactional else None
            )
        case "consumer":
            client_settings.consumer_settings({}, given, client_id="", group_id="g")
        case "admin":
            client_settings.admin_settings({}, given, client_id="")


def _clients_of(connector: type[Connector], config: Config, settings: WorkerSettings) -> set[str]:
    if issubclass(connector, SinkConnector):
        return {"consumer", "producer", "admin"} if config.get(_DEAD_LETTERS) else {"consumer"}
    if _exactly_once(settings) or config.get(_OWN_TOPIC):
        return {"producer", "consumer", "admin"}
    return {"producer"}


def _exactly_once(settings: WorkerSettings) -> bool:
    return bool(settings["exactly.once.source.support"] == "enabled")
