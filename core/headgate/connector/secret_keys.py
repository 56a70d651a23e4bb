"""Keys of configs whose values nobody else is to read, told by their names: for texts that are made
where the definition of the config is not at hand."""

from collections.abc import Mapping
from typing import Final

from headgate.connector.config import HIDDEN

SECRET_WORDS: Final = (
    *("password", "secret", "token", "credential", "jaas", "private"),
    "user.info",  # basic.auth.user.info is NAME:PASSWORD
)


def looks_secret(key: str) -> bool:
    """Whether the name of a config's key says that its value is a secret."""
    return any(word in key.lower() for word in SECRET_WORDS)


def without_secrets(message: str, config: Mapping[str, str | None]) -> str:
    """`message` without the values that `config` has for keys that look like secrets."""
    values = {value for key, value in config.items() if value and looks_secret(key)}
    for value in sorted(values, key=len, reverse=True):
        message = message.replace(value, HIDDEN)
    return message
