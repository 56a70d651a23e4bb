"""Checks that a connector refuses a wrong config by the key that is wrong."""

from collections.abc import Mapping

from headgate.connector.api import Connector
from headgate.connector.config import NO_DEFAULT, Type
from headgate_runtime.testing.job import NO_SETTINGS, config_errors

NUMBERS = (Type.SHORT, Type.INT, Type.LONG, Type.DOUBLE)


def config_problems(
    connector: type[Connector],
    config: Mapping[str, str],
    worker_settings: Mapping[str, str] = NO_SETTINGS,
) -> list[str]:
    """Return problems of validations: of `config`, which is valid, and of variants with one key
    left out or spoiled."""
    problems = [
        f"{key}: the valid config is refused: {text}"
        for key, texts in config_errors(connector, config, worker_settings).items()
        for text in texts
    ]
    for name, key in connector.config_def().keys.items():
        if key.default is NO_DEFAULT:
            without = {other: text for other, text in config.items() if other != name}
            problems += _refused(connector, without, name, f"without {name}", worker_settings)
        if key.type in NUMBERS:
            spoiled = {**config, name: "no number"}
            problems += _refused(
                connector, spoiled, name, f"with {name}=no number", worker_settings
            )
    return problems


def _refused(
    connector: type[Connector],
    config: Mapping[str, str],
    key: str,
    what: str,
    worker_settings: Mapping[str, str],
) -> list[str]:
    try:
        errors = config_errors(connector, config, worker_settings)
    except Exception as error:  # the connector's own code
        text = f"{type(error).__name__}: {error}"
        return [f"a config {what}: validate raised {text}, expected an error of {key}"]
    if key in errors:
        return []
    return [f"a config {what} is taken, expected an error of {key}"]
