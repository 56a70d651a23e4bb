"""Secret config keys, recognised by their names. For texts that are made where the definition of
the config is not at hand."""

import re
from collections.abc import Mapping
from typing import Final

from headgate.connector.config import HIDDEN

SECRET_WORDS: Final = (
    *("password", "passphrase", "secret", "token", "credential", "jaas", "private"),
    "user.info",  # basic.auth.user.info is NAME:PASSWORD
    "authorization",  # a header
)
FS_WORDS: Final = (
    "key",
    "auth",
    "kwargs",
    "headers",
    "cookie",
    "connection_string",
    "connection-string",
    "passwd",
    "sas",
)
"""Words in options fs.* and catalog.*, whose names come from the library of a file system or
catalog. Some values are JSON that contains secrets."""
_OF_A_LIBRARY: Final = re.compile(r"(^|\.)(fs|catalog)\.")
_LOGIN: Final = re.compile(r"(?<=://)([^\s/@:]*):[^\s/]*(?=@)")
_PARAMETER: Final = re.compile(
    r"(?i)([?&][\w.-]*(?:password|passwd|secret|token)=)(?!\[hidden\])[^\s&]+"
)


def looks_secret(key: str) -> bool:
    """Return whether a config key's name suggests that its value is secret."""
    name = key.lower()
    words = (*SECRET_WORDS, *FS_WORDS) if _OF_A_LIBRARY.search(name) else SECRET_WORDS
    return any(word in name for word in words)


def without_login(text: str) -> str:
    """Return `text` with the passwords in its addresses hidden: ``sftp://user:[hidden]@host/``, and
    ``postgresql://host/?password=[hidden]``."""
    return _PARAMETER.sub(rf"\1{HIDDEN}", _LOGIN.sub(rf"\1:{HIDDEN}", text))


def without_secrets(message: str, config: Mapping[str, str | None]) -> str:
    """Return `message` with two things hidden: values that `config` has for keys that look secret,
    and the passwords in addresses."""
    values = {value for key, value in config.items() if value and looks_secret(key)}
    for value in sorted(values, key=len, reverse=True):
        message = message.replace(value, HIDDEN)
    return without_login(message)
