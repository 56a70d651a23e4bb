"""Config providers: values that a config refers to instead of containing them:
``${provider:path:key}``.

A *reference* names the provider of a value, its path and its key. Users write references; the
config topic stores them and the REST API shows them. Connectors and tasks get the values. Source:
KIP-297, `ConfigTransformer`, `AbstractHerder.reverseTransform`.

This module is pure: providers are passed in and do the reading, so call `transform` where it may
take time. ``specs/config-providers`` has the results of Kafka 4.3.1 for the same configs.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.errors import CoreError
from headgate.topics.config_events import Config

_REFERENCE: Final = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
SHORT: Final = 4
"""A value with fewer characters is hidden only where it stands as a word of its own. As part of
longer words it would also be found in unrelated texts."""


class ConfigProviderError(CoreError):
    """A provider cannot return the values. The text is shown to users and kept in statuses: it may
    name the path, and must not contain secrets."""


class ConfigProvider(ABC):
    """Source of values that configs refer to. Source: `ConfigProvider`.

    One instance serves a worker for its whole life, and is called from several threads. Of
    exceptions other than `ConfigProviderError` users see only the class, since the text may contain
    secrets.
    """

    def configure(self, params: Mapping[str, str]) -> None:  # noqa: B027  most have none
        """Configure the provider; called once, before `get`. `params` are the worker's settings
        ``config.providers.NAME.param.*``.

        Raises:
            ConfigProviderError: The provider cannot work with these settings.
        """

    @abstractmethod
    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        """Return the values of those `keys` that exist under `path` (empty if the reference has
        none). A reference to a missing key is left as it stands.

        Raises:
            ConfigProviderError: The values cannot be read. The operation on the connector or task
                fails.
        """

    def close(self) -> None:  # noqa: B027  as above
        """Release resources, since the worker ends."""


@dataclass(frozen=True, slots=True)
class Reference:
    text: str
    """The reference as written in the config, such as
    ``${file:/run/secrets.properties:password}``."""
    provider: str
    path: str
    """Path; empty if there is none, as in ``${env:HOME}``."""
    key: str


@dataclass(frozen=True, slots=True)
class Transformed:
    config: Config
    """The config with its references resolved."""
    found: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Resolved values by text of the reference."""
    missing: tuple[Reference, ...] = ()
    """References to keys that their provider does not have. They are left as they stand."""


def references(value: str | None) -> Iterator[Reference]:
    """Yield the references in one value, from left to right. A path has no colon: the first one
    ends it."""
    for match in _REFERENCE.finditer(value or ""):
        yield Reference(match[0], match[1], match[3] or "", match[4])


def has_references(config: Config) -> bool:
    return any(value and _REFERENCE.search(value) for value in config.values())


def transform(config: Config, providers: Mapping[str, ConfigProvider]) -> Transformed:
    """Return `config` with its references resolved. Each path is requested once.

    References inside resolved values are not resolved. A reference to a provider that is not in
    `providers` is left as it stands, as in Connect.

    Raises:
        ConfigProviderError: The text names the provider, the path and the keys.
    """
    asked: dict[tuple[str, str], dict[str, Reference]] = {}
    for value in config.values():
        for reference in references(value):
            if reference.provider in providers:
                place = reference.provider, reference.path
                asked.setdefault(place, {})[reference.key] = reference
    found: dict[str, str] = {}
    missing: list[Reference] = []
    known: dict[tuple[str, str, str], str] = {}
    for (provider, path), keys in asked.items():
        values = _asked(provider, providers[provider], path, tuple(keys))
        for key, reference in keys.items():
            if key not in values:
                missing.append(reference)
                continue
            known[provider, path, key] = found[reference.text] = values[key]

    def value_of(match: "re.Match[str]") -> str:
        return known.get((match[1], match[3] or "", match[4]), match[0])

    resolved = {
        key: value if value is None else _REFERENCE.sub(value_of, value)
        for key, value in config.items()
    }
    return Transformed(resolved, found, tuple(missing))


def reverse_transform(connector_config: Config, task_config: Config) -> Config:
    """Return a task config as it is written to the config topic. Where the connector's own value of
    a key has a reference, that value is written, whatever the connector made of it.

    A value that the connector puts under another key is written as it is, as in Connect.
    """
    return {
        key: connector_config[key] if any(references(connector_config.get(key))) else value
        for key, value in task_config.items()
    }


class HiddenValues:
    """Replaces resolved values by their references, in texts for a log, a status or an answer."""

    def __init__(self, found: Iterable[tuple[str, str]]) -> None:
        """Prepare to hide values. `found` are references with their values, as in
        `Transformed.found`."""
        self._references: dict[str, str] = {}
        for reference, value in found:
            # The value as it is, without blanks around it, and with Python's escapes.
            for written in (value, value.strip(), repr(value)[1:-1]):
                if written.strip():
                    self._references.setdefault(written, reference)
        longest_first = sorted(self._references, key=len, reverse=True)
        self._values = re.compile("|".join(map(_pattern_of, longest_first)))

    def hide(self, text: str) -> str:
        if not self._references:
            return text
        return self._values.sub(lambda match: self._references[match[0]], text)


def _pattern_of(value: str) -> str:
    pattern = re.escape(value)
    return pattern if len(value) >= SHORT else rf"(?<!\w){pattern}(?!\w)"


def _asked(
    name: str, provider: ConfigProvider, path: str, keys: tuple[str, ...]
) -> Mapping[str, str]:
    where = f"config provider {name}, path {path!r}, {'key' if len(keys) == 1 else 'keys'} "
    where += ", ".join(map(repr, keys))
    try:
        return provider.get(path, keys)
    except ConfigProviderError as error:
        raise ConfigProviderError(f"{where}: {error}") from None
    except Exception as error:  # code of connector authors: its text may contain secrets
        raise ConfigProviderError(
            f"{where}: {type(provider).__name__} raised {type(error).__name__}"
        ) from None
