"""What a connector's config may say to its Kafka clients, and whether it can be understood.

Source: KIP-458, AbstractHerder.validateAllConnectorClientOverrides. Differs: a value that no client
would take is an error of the config, answered 400 (Java: 500).
"""

from headgate.connector.api import Connector, SinkConnector
from headgate.events import Config
from headgate_runtime.settings import WorkerSettings, brokers

_DEAD_LETTERS = "errors.deadletterqueue.topic.name"
SERVERS = "bootstrap.servers"
_OWN_TOPIC = "offsets.storage.topic"


def client_override_errors(
    connector: type[Connector], config: Config, settings: WorkerSettings
) -> dict[str, str]:
    """Key -> what is wrong with it; of the clients that the connector will use. None where there
    is no Kafka."""
    if not settings[SERVERS]:
        return {}
    from headgate_kafka.client_settings import ROLES, ClientSettingsError, librdkafka, secures
    from headgate_kafka.override_policy import override_errors

    used = _clients_of(connector, config, settings)
    refused = override_errors(
        settings["connector.client.config.override.policy"],
        config,
        frozenset(settings["connector.client.config.override.allowlist"]),
    )
    errors = {key: text for key, text in refused.items() if key.partition(".")[0] in used}
    for role in ROLES:
        prefix = f"{role}.override."
        for key, value in config.items():
            name = key.removeprefix(prefix)
            # Of a login the parts may stand at the worker; they are looked at together, later.
            if role not in used or name == key or secures(name):
                continue
            try:
                if name == SERVERS and value is not None:
                    brokers(value)
                librdkafka({name: value}, role)
            except ClientSettingsError as error:
                errors.setdefault(key, f"Invalid value {value} for configuration {error}")
            except ValueError as error:
                text = f"Invalid value {value} for configuration {name}: {error}"
                errors.setdefault(key, text)
    return errors


def _clients_of(connector: type[Connector], config: Config, settings: WorkerSettings) -> set[str]:
    if issubclass(connector, SinkConnector):
        return {"consumer", "producer", "admin"} if config.get(_DEAD_LETTERS) else {"consumer"}
    exactly_once = settings["exactly.once.source.support"] == "enabled"
    if exactly_once or config.get(_OWN_TOPIC):
        return {"producer", "consumer", "admin"}
    return {"producer"}
