"""The converters that SparkFileSink can do without.

It reads the bytes of the log on the executors: as text, as JSON and as TypedConverter and
JsonConverter write them. Other converters are refused by name. Their bytes are valid text for many
values, and would be written as that text.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from headgate.connector.config import ConfigError
from headgate.connector.converters import CONVERTERS, ByteArrayConverter, converter_class
from headgate.connector.json_converter import JsonConverter
from headgate.connector.text_converters import StringConverter, TypedConverter

KEY: Final = "value.converter"
OF_KEYS: Final = "key.converter"
_NULLS: Final = f"{KEY}.replace.null.with.default"
_READ: Final = (StringConverter, JsonConverter, TypedConverter, ByteArrayConverter)


def refusals(
    config: Mapping[str, str], worker_settings: Mapping[str, str], *, writes_keys: bool
) -> Iterator[tuple[str, ConfigError]]:
    """Yield the settings by which values, or written keys, have a converter that SparkFileSink does
    not read, each with its error.

    Args:
        worker_settings: apply if `config` names no converter.
        writes_keys: a column has the records' keys.
    """
    for key in (KEY, OF_KEYS) if writes_keys else (KEY,):
        name = converter_class(key, config, worker_settings)
        found = CONVERTERS.get(name)
        if found is None or not issubclass(found, _READ):
            *some, last = (each.__name__ for each in _READ)
            text = (
                f"SparkFileSink reads the bytes of the log itself, as {', '.join(some)} and {last} "
                "do, and no others. Use SparkSink or DirectorySink, which take what any converter "
                "gives"
            )
            yield key, ConfigError.of(key, name, text)
    given = _settings(config, worker_settings)
    if has_envelope(config, worker_settings) and given.get(_NULLS, "").strip().lower() == "false":
        text = (
            "SparkFileSink puts the default of a field in place of its null. Use SparkSink or "
            "DirectorySink to keep nulls"
        )
        yield _NULLS, ConfigError.of(_NULLS, given[_NULLS], text)


def has_envelope(config: Mapping[str, str], worker_settings: Mapping[str, str]) -> bool:
    """Return whether values are ``{"schema", "payload"}``. Source: JsonConverter's
    `schemas.enable`, which is true by default."""
    if CONVERTERS.get(converter_class(KEY, config, worker_settings)) is not JsonConverter:
        return False
    enabled = _settings(config, worker_settings).get(f"{KEY}.schemas.enable", "true")
    return enabled.strip().lower() == "true"


def _settings(config: Mapping[str, str], worker_settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the config in which the converter is named. Its own keys are read from there."""
    return config if KEY in config else worker_settings
