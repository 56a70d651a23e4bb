"""Values that a config names instead of holding them: ``${provider:path:key}``.

A *reference* says which provider knows the value and under what path and key. References are what
users write, what the config topic keeps and what the REST API shows; connectors and tasks are given
what they stand for. Source: KIP-297, `ConfigTransformer`, `AbstractHerder.reverseTransform`.

Pure: providers are given, and do what reading there is, so call `transform` where that may take its
time. ``specs/config-providers`` has what Kafka 4.3.1 made of the same configs.
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
"""A value of fewer characters is hidden only where it stands by itself: as part of longer words it
would be found in texts that do not speak of it."""


class ConfigProviderError(CoreError):
    """A provider cannot say what it is asked. The text is shown to users and kept in statuses: it
    may name the path, and must not have anything of what is secret."""


class ConfigProvider(ABC):
    """Where values come from that configs only refer to. Source: `ConfigProvider`.

    One instance serves a worker for as long as it runs, and is called from several threads. Of an
    exception that is no `ConfigProviderError` users are told the class alone, for its text may have
    secrets in it.
    """

    def configure(self, params: Mapping[str, str]) -> None:  # noqa: B027  most have none
        """Called once, first: what the worker's file says under ``config.providers.NAME.param.``.

        Raises:
            ConfigProviderError: the provider cannot work with these.
        """

    @abstractmethod
    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        """Values of those `keys` that exist under `path` (empty where the reference has none), with
        their values. A reference to one that is not there is left as it stands.

        Raises:
            ConfigProviderError: what is asked of this connector or task fails.
        """

    def close(self) -> None:  # noqa: B027  as above
        """The worker ends."""


@dataclass(frozen=True, slots=True)
class Reference:
    text: str
    """As it stands in the config, such as ``${file:/run/secrets.properties:password}``."""
    provider: str
    path: str
    """Empty where there is none: ``${env:HOME}``."""
    key: str


@dataclass(frozen=True, slots=True)
class Transformed:
    config: Config
    """With what references stand for."""
    found: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Text of a reference -> what it stands for."""
    missing: tuple[Reference, ...] = ()
    """References to a key that its provider does not have. They are left as they stand."""


def references(value: str | None) -> Iterator[Reference]:
    """References in one value, from left to right. A path has no colon: the first one ends it."""
    for match in _REFERENCE.finditer(value or ""):
        yield Reference(match[0], match[1], match[3] or "", match[4])


def has_references(config: Config) -> bool:
    return any(value and _REFERENCE.search(value) for value in config.values())


def transform(config: Config, providers: Mapping[str, ConfigProvider]) -> Transformed:
    """`config` with what its references stand for; each path is asked for once.

    What was found is not looked at again. A reference to a provider that is not among `providers`
    is left as it stands, as in Connect.

    Raises:
        ConfigProviderError: names the provider, the path and the keys.
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
    """A task config as it is written to the config topic: where the connector's own value of a key
    has a reference, that value, whatever the connector made of it.

    A value that the connector puts under another key is written as it is, as in Connect.
    """
    return {
        key: connector_config[key] if any(references(connector_config.get(key))) else value
        for key, value in task_config.items()
    }


class HiddenValues:
    """Puts references in place of what they stand for, in texts that are meant for a log, a status
    or an answer."""

    def __init__(self, found: Iterable[tuple[str, str]]) -> None:
        """`found`: references and their values, as `Transformed.found` has them."""
        self._references: dict[str, str] = {}
        for reference, value in found:
            # As it is, without blanks around it, and with Python's escapes.
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
    except Exception as error:  # an author's own code: its text may have secrets in it
        raise ConfigProviderError(
            f"{where}: {type(provider).__name__} raised {type(error).__name__}"
        ) from None
