"""Which converters SparkFileSink can do without.

It reads the bytes of the log on the executors, as text, as JSON and as what TypedConverter and
JsonConverter write. What another converter would make of them is refused by name: its bytes are
text for many a value, and would come out as that.
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
    """Settings by which values, or keys that are written, are of a converter that SparkFileSink
    does not read, and what to say of each.

    Args:
        worker_settings: say what holds where `config` names no converter.
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
    """Whether values are ``{"schema", "payload"}``. Source: JsonConverter's `schemas.enable`, which
    is true by default."""
    if CONVERTERS.get(converter_class(KEY, config, worker_settings)) is not JsonConverter:
        return False
    enabled = _settings(config, worker_settings).get(f"{KEY}.schemas.enable", "true")
    return enabled.strip().lower() == "true"


def _settings(config: Mapping[str, str], worker_settings: Mapping[str, str]) -> Mapping[str, str]:
    """What the keys below the converter's own are read from: where it is named."""
    return config if KEY in config else worker_settings
