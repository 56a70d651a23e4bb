"""The logins of a connector's clients. Clients may log in to different brokers, as different
principals, and so have different permissions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from headgate_kafka.clients.roles import (
    WORKERS_ONLY,
    connection,
    connector_admin_properties,
    connector_clients,
    connector_properties,
    not_inherited,
    own_offsets_reader,
)
from headgate_kafka.clients.settings import ClientSettingsError, kafka_python, librdkafka
from headgate_kafka.logs.offset_stores import own_topic, servers_of

Kind: TypeAlias = Literal["source", "sink"]


class Role(StrEnum):
    """The purpose of a connector's client, in users' words."""

    PRODUCER = "producer"
    READER = "offsets reader"
    CONSUMER = "consumer"
    ADMIN = "admin client"


@dataclass(frozen=True, slots=True)
class Login:
    """One login, shared by all clients that go to the same brokers as the same principal."""

    roles: tuple[Role, ...]
    settings: Mapping[str, Any]
    """librdkafka's settings of an admin client with this login."""
    kafka_python: Callable[[], dict[str, Any]]
    """Returns kafka-python's arguments for the same login, or nothing if only offsets are read with
    it. Raises `ClientSettingsError` if kafka-python cannot log in so."""
    refused: str = ""
    """Why no client can be made with this login. Empty: one can."""
    hint: str = ""
    """Advice, beyond the brokers' reason, for the case that brokers refuse the login."""

    @property
    def identity(self) -> object:
        """A value that is equal for the same brokers and the same principal. Brokers are the same
        if their ``bootstrap.servers`` have the same entries."""
        if self.refused:
            return self.refused
        found = connection(self.settings)
        servers = servers_of(str(found.pop("bootstrap.servers", "")))
        return servers, frozenset(found.items())


def connector_logins(
    worker: Mapping[str, str],
    config: Mapping[str, str],
    name: str,
    kind: Kind,
    *,
    reads_own_offsets: bool,
    client_id: str,
) -> list[Login]:
    """Return the logins of a connector's clients, each once: first of its producers or consumers,
    then of its admin client, then of the reader of its own offsets topic."""
    role: Literal["producer", "consumer"] = "consumer" if kind == "sink" else "producer"
    found = [
        _of_role(worker, config, role, client_id),
        _made(
            Role.ADMIN,
            lambda: connector_admin_properties(worker, config, name, kind, _warn_nobody),
            client_id,
        ),
    ]
    if reads_own_offsets:
        # The reader is last: a shared login then has kafka-python's arguments from another client.
        found.append(_of_reader(worker, config, name, client_id))
    shared: dict[object, Login] = {}
    for login in found:
        first = shared.setdefault(login.identity, login)
        if first is not login:
            roles = (*first.roles, *login.roles)
            shared[login.identity] = Login(
                roles, first.settings, first.kafka_python, first.refused, first.hint
            )
    return list(shared.values())


def own_offsets_topic(
    worker: Mapping[str, str], config: Mapping[str, str], *, exactly_once: bool
) -> str | None:
    """As `own_topic`, for a source connector's config."""
    servers = connector_properties(worker, config, "producer")["bootstrap.servers"]
    return own_topic(worker, config, servers, exactly_once=exactly_once)


def _of_role(
    worker: Mapping[str, str],
    config: Mapping[str, str],
    role: Literal["producer", "consumer"],
    client_id: str,
) -> Login:
    properties = connector_properties(worker, config, role)
    return _made(Role(role), lambda: properties, client_id, not_inherited(worker, config, role))


def _of_reader(
    worker: Mapping[str, str], config: Mapping[str, str], name: str, client_id: str
) -> Login:
    """Return the login of the own offsets topic's reader. Its settings, which are librdkafka's, are
    combined from a consumer's and a producer's."""
    try:
        clients = connector_clients(worker, config, _warn_nobody)
        settings = connection(own_offsets_reader(worker, config, name, clients))
    except ClientSettingsError as error:
        return Login((Role.READER,), {}, dict, str(error))
    forgotten = worker.get("security.protocol") and settings["security.protocol"] == "plaintext"
    hint = WORKERS_ONLY.format("consumer") if forgotten else ""
    return Login((Role.READER,), {**settings, "client.id": client_id}, dict, hint=hint)


def _made(
    role: Role, properties_of: Callable[[], dict[str, str]], client_id: str, hint: str = ""
) -> Login:
    try:
        properties = {**properties_of(), "client.id": client_id}
        settings = librdkafka(properties, "admin")
    except ClientSettingsError as error:
        return Login((role,), {}, dict, str(error))
    return Login((role,), settings, lambda: kafka_python(properties), hint=hint)


def _warn_nobody(_line: str) -> None:
    pass
