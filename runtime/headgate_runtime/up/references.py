"""References in pipeline files: ``${env:NAME}``, ``${file:PATH:KEY}``, ``${directory:PATH:FILE}``.

Configs of connectors keep them as they are, as on Kafka. Workers resolve them each time a connector
or a task starts. Here they are checked before anything starts.
"""

from collections.abc import Mapping
from typing import Any, Final

from headgate.connector.config_providers import (
    ConfigProviderError,
    HiddenValues,
    has_references,
    transform,
)
from headgate.topics.config_events import Config
from headgate_runtime.config.providers import pipeline_providers

PROVIDERS: Final = pipeline_providers()


def resolved(config: Config) -> Config:
    """Return `config` with references replaced by their present values. If one cannot be found,
    return it as it is."""
    if not has_references(config):
        return config
    try:
        return transform(config, PROVIDERS).config
    except ConfigProviderError:
        return config


def checked(config: Mapping[str, str]) -> tuple[dict[str, str], HiddenValues, dict[str, str]]:
    """Check the references in a config. Return it with their values, what hides these values in
    texts, and errors by key. A wrong reference is left as it is."""
    found: dict[str, str] = {}
    values, problems = _looked_up(config, found)
    return values, HiddenValues(found.items()), problems


def _looked_up(
    config: Mapping[str, str], found: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the values and the errors by key. `found` gets references and their values."""
    values: dict[str, str] = {}
    problems: dict[str, str] = {}
    for key, value in config.items():
        values[key] = value
        try:
            done = transform({key: value}, PROVIDERS)
        except ConfigProviderError as error:
            problems[key] = str(error)
            continue
        if done.missing:
            one = done.missing[0]
            problems[key] = f"{one.text}: {_missing(one.provider, one.path, one.key)}"
            continue
        values[key] = done.config[key] or ""
        found.update(done.found)
    return values, problems


def _missing(provider: str, path: str, key: str) -> str:
    match provider:
        case "env":
            return f"there is no environment variable {key}"
        case "directory":
            return f"there is no file {key} in {path}"
        case _:
            return f"there is no key {key} in {path or provider}"


def table_checked(
    table: Mapping[str, Any], problems: dict[tuple[str, ...], str], found: dict[str, str]
) -> dict[str, Any]:
    """Check the references in a table of the file and in its inner tables. `problems` gets errors
    by place, and `found` gets references and their values."""
    done: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            inner: dict[tuple[str, ...], str] = {}
            done[key] = table_checked(value, inner, found)
            problems.update({(key, *place): text for place, text in inner.items()})
        elif isinstance(value, str):
            values, wrong = _looked_up({key: value}, found)
            done[key] = values[key]
            if wrong:
                problems[key,] = wrong[key]
        else:
            done[key] = value
    return done
