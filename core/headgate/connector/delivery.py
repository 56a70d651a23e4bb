"""Notes for users about configs with which records are delivered only at least once.

Notes are no errors: the config is accepted. Connect's answer to a validation has no place for them.
"""

from collections.abc import Mapping
from typing import Any

from headgate.connector.api import Connector, ExactlyOnceSupport, SinkConnector, SourceConnector
from headgate.connector.error_handling import LETTERS_TOPIC

SUPPORT = "exactly.once.support"
CLASS = "connector.class"


def delivery_notes(
    connector: type[Connector], config: Mapping[str, Any], *, exactly_once_enabled: bool
) -> list[tuple[str, str]]:
    """Return notes as (key, text); none if every record is delivered once.

    Args:
        exactly_once_enabled: Whether the worker has `exactly.once.source.support` enabled. If not,
            all sources deliver at least once, and there is no note about them.
    """
    given = {key: str(value) for key, value in config.items() if value is not None}
    if issubclass(connector, SourceConnector):
        required = given.get(SUPPORT, "").strip().lower() == "required"
        if not exactly_once_enabled or required:
            return []  # a requirement that cannot be met is an error
        return _source_notes(connector, given)
    return _sink_notes(connector, given) if issubclass(connector, SinkConnector) else []


def _source_notes(
    connector: type[SourceConnector], config: Mapping[str, str]
) -> list[tuple[str, str]]:
    support = _support(connector, config)
    if support is ExactlyOnceSupport.SUPPORTED:
        return []
    seen = (
        f"{connector.__name__} does not say whether it reads exactly once"
        if support is None
        else f"{connector.__name__} reads at least once with this config"
    )
    text = (
        f"{seen}: after a failure a record may be written to its topic again, though the worker "
        f"has exactly-once sources. {SUPPORT} = required refuses such a config"
    )
    return [(SUPPORT, text)]


def _sink_notes(connector: type[SinkConnector], config: Mapping[str, str]) -> list[tuple[str, str]]:
    notes: list[tuple[str, str]] = []
    support = _support(connector, config)
    if support is not ExactlyOnceSupport.SUPPORTED:
        seen = (
            f"{connector.__name__} does not say that it writes exactly once"
            if support is None
            else f"{connector.__name__} writes at least once with this config"
        )
        text = (
            f"{seen}: its consumer group commits offsets apart from what it writes, so after a "
            "failure a record may be written again"
        )
        notes.append((CLASS, text))
    if letters := config.get(LETTERS_TOPIC, "").strip():
        text = (
            f"dead letters are written to {letters} at least once: offsets are committed after "
            "them, so after a failure a dead letter may be there twice"
        )
        notes.append((LETTERS_TOPIC, text))
    return notes


def _support(
    connector: type[SourceConnector] | type[SinkConnector], config: Mapping[str, str]
) -> ExactlyOnceSupport | None:
    try:
        return connector.exactly_once_support(config)
    except Exception:  # code of connector authors; validation reports the error where it matters
        return None
