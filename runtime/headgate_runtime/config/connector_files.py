"""Connectors from files, as ``headgate standalone`` takes them. Source: ConnectStandalone,
KAFKA-16838.

A file is a JSON map of a connector's config, a JSON body as ``POST /connectors`` takes it, or
properties.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headgate.herder.messages import CreateConnector
from headgate.ids import TargetState
from headgate_runtime.config.properties import PropertiesError, properties_of

INITIAL_STATES: Final = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}
_BODY_KEYS: Final = {"name", "config", "initial_state"}


class ConnectorFileError(Exception):
    """The file describes no connector. The message names the file."""


def read_connector_file(path: str, name: str | None = None) -> CreateConnector:
    """Read the connector that a file describes. `name` is its name if the file has none.

    Raises:
        ConnectorFileError: there is no such file, it has no name, or some values are no texts.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConnectorFileError(f"{path}: {error.strerror}") from None
    return connector_of(data, path, name)


def connector_of(data: bytes, path: str, name: str | None = None) -> CreateConnector:
    """Return the connector that `data` describes. Errors name it by `path`.

    Raises:
        ConnectorFileError: as in `read_connector_file`.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = ""  # it can still be properties
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ConnectorFileError(f"{path}: not JSON of a connector: nested too deep") from None
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ConnectorFileError(
            f"{path}: half of a surrogate pair, {half!a}, which no text can have"
        ) from None
    except ValueError as error:
        if Path(path).suffix == ".toml":
            raise ConnectorFileError(
                f"{path}: expected JSON or properties of one connector, found TOML. A pipeline "
                f"file is for headgate up, and for headgate apply {path} --diff"
            ) from None
        if text.lstrip().startswith("{"):
            raise ConnectorFileError(f"{path}: not JSON: {error}") from None
        found = _properties(data, path)
    if not isinstance(found, dict):
        raise ConnectorFileError(f"{path}: expected a JSON object, found {type(found).__name__}")
    if name is not None and found.setdefault("name", name) != name:
        raise ConnectorFileError(f"{path}: the connector is named {found['name']}, not {name}")
    if isinstance(found.get("config"), dict):
        return _from_body(path, found)
    return CreateConnector(_named(path, found), _config(path, found))


def _properties(data: bytes, path: str) -> dict[str, str]:
    try:
        return dict(properties_of(data, path).values)
    except PropertiesError as error:
        raise ConnectorFileError(str(error)) from None


def _from_body(path: str, body: Mapping[str, Any]) -> CreateConnector:
    if unknown := sorted(set(body) - _BODY_KEYS):
        raise ConnectorFileError(
            f"{path}: unknown key {unknown[0]!r} beside config; expected name, config, "
            "initial_state"
        )
    name = _named(path, body)
    config = _config(path, body["config"])
    if config.get("name", name) != name:
        raise ConnectorFileError(
            f"{path}: Connector name configuration ({config['name']}) doesn't match connector "
            f"name in the request ({name})"
        )
    state = body.get("initial_state")
    if state is None:
        return CreateConnector(name, {**config, "name": name})
    if str(state).upper() not in INITIAL_STATES:
        raise ConnectorFileError(
            f"{path}: initial_state {state!r}, expected one of {', '.join(INITIAL_STATES)}"
        )
    return CreateConnector(name, {**config, "name": name}, INITIAL_STATES[str(state).upper()])


def _named(path: str, table: Mapping[str, Any]) -> str:
    name = table.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ConnectorFileError(f"{path}: expected the connector's name under the key name")
    return name


def _config(path: str, table: Mapping[str, Any]) -> dict[str, str]:
    """Return the config with numbers and booleans as texts, as Java's parser reads them."""
    config: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, str):
            config[key] = value
        elif isinstance(value, bool | int | float):
            config[key] = json.dumps(value)
        else:
            raise ConnectorFileError(
                f"{path}: {key}: expected a text, found {json.dumps(value)[:80]}"
            )
    return config
