"""Checks of a connector config, as far as possible before anything runs."""

import contextlib
import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from headgate.connector.api import Connector
from headgate.connector.error_handling import LETTERS_TOPIC
from headgate.connector.restart_policy import restart_errors
from headgate.connector.topic_names import topic_fault
from headgate.connector.validation import unknown_keys, validate_connector
from headgate_runtime.plugins.find import PluginError, find_connector
from headgate_runtime.tasks.tools import task_class

_OTHERS_CALL_IT: Final[Mapping[str, str]] = dict.fromkeys(("ndjson", "ldjson", "jl"), "jsonl")
"""Other tools' names for a choice. By its letters, ``ndjson`` is nearer to ``json``, an array."""


def connector_problems(
    config: Mapping[str, str], settings: Mapping[str, str], folder: Path
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with `config`: key (empty: the connector as a whole) and text.

    Args:
        config: with ``name`` and ``connector.class``.
        settings: those of the worker, defaults filled in.
        folder: where relative paths in the config start.
    """
    try:
        connector = find_connector(config["connector.class"])
        task_class(connector)
    except PluginError as error:
        yield "connector.class", str(error)
        return
    yield from restart_errors(config).items()
    letters = (config.get(LETTERS_TOPIC) or "").strip()
    if letters and (fault := topic_fault(letters)):
        yield LETTERS_TOPIC, fault
    for key, near in unknown_keys(connector, config).items():
        hint = f"did you mean {near}?" if near else f"{connector.__name__} has no such key"
        yield key, f"unknown key; {hint}"
    yield from _invalid(connector, config, settings, folder)


def needs_spark(config: Mapping[str, str]) -> bool:
    """Return whether its tasks run on Spark only, or whether that is not known."""
    try:
        return find_connector(config.get("connector.class", "")).REQUIRES_RUNNER is not None
    except PluginError:
        return True


def _invalid(
    connector: type[Connector],
    config: Mapping[str, str],
    settings: Mapping[str, str],
    folder: Path,
) -> Iterator[tuple[str, str]]:
    try:
        with contextlib.chdir(folder):
            infos = validate_connector(
                connector,
                config,
                worker_settings=settings,
                exactly_once_enabled=settings["exactly.once.source.support"] == "enabled",
                runner=settings["headgate.task.runner"],
            )
    except Exception as error:  # the connector's own code: any error of it refuses the config
        yield "", f"the validation of {connector.__name__} raised {type(error).__name__}: {error}"
        return
    told: set[str] = set()
    # A fault of two keys together is reported at both. It is shown once, at a key that is present.
    values = sorted(
        (info.value for info in infos.configs), key=lambda value: value.name not in config
    )
    for value in values:
        for number, text in enumerate(value.errors):
            # A value that did not parse is null to the key's validator, which complains again.
            echo = number > 0 and text.startswith("Invalid value null for configuration")
            if text not in told and not echo:
                told.add(text)
                yield value.name, text + _nearest(config.get(value.name, ""), text)


def _nearest(value: str, text: str) -> str:
    """Return a hint at the choice that is meant, if a value is none of those that its error
    lists."""
    _, found, choices = text.partition("String must be one of: ")
    known = choices.split(", ") if found else []
    meant = _OTHERS_CALL_IT.get(value.lower(), value.lower())
    near = [each for each in known if each.lower() == meant]
    near = near or difflib.get_close_matches(value, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""
