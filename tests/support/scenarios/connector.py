"""Commands of the scenarios in ``specs/connector``: config values, definitions and validation.

Values are written as JSON. A config is one line per key, ``<key> <value as JSON>``.
"""

import json
from typing import Any

from support.scenarios.runner import Block, World

from headgate.connector.api import ExactlyOnceSupport, SinkConnector, SourceConnector
from headgate.connector.config import ConfigDef, ConfigError, ConfigKeyInfo, Type, parse_type
from headgate.connector.config import value_text as shown
from headgate.connector.framework import sink_keys, source_keys
from headgate.connector.validation import error_message, unknown_keys, validate_connector


class Reading(SourceConnector):
    """A source with one config key of its own. It does not support exactly-once."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("topic").define("rows", Type.INT, 10)

    @classmethod
    def exactly_once_support(cls, config: Any) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.UNSUPPORTED


class Writing(SinkConnector):
    """A sink with one config key of its own. Only Spark can run it."""

    REQUIRES_RUNNER = "spark"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("path")


class ConnectorWorld(World):
    def do_parse(self, block: Block) -> list[str]:
        """Show each input text as a value of this type."""
        type_ = Type(block.words[0])
        return [self._parsed(json.loads(line), type_) for line in block.input]

    def do_keys(self, block: Block) -> list[str]:
        definition = _KINDS[block.words[0]][0]({})
        return [_key_line(ConfigKeyInfo.of(key)) for key in definition.keys.values()]

    def do_errors(self, block: Block) -> list[str]:
        """Show the errors of one key's value, for each input line."""
        definition = _KINDS[block.words[0]][0]({})
        lines: list[str] = []
        for line in block.input:
            key, _, value = line.partition(" ")
            config = {"name": "n", "connector.class": "C", key: json.loads(value)}
            errors = definition.validate(config)[key].errors
            lines += [f"{key}: {json.dumps(error, ensure_ascii=False)}" for error in errors]
            lines += [] if errors else [f"{key}: valid"]
        return lines

    def do_validate(self, block: Block) -> str:
        """Validate a whole config, and show the answer of POST /connectors."""
        options = block.options
        infos = validate_connector(
            _KINDS[block.words[0]][1],
            _config(block),
            worker_settings={"group.id": options.get("group", "connect-cluster")},
            exactly_once_enabled=options.get("exactly-once") == "enabled",
            runner=options.get("runner", "spark"),
        )
        return error_message(infos) if infos.error_count else "valid"

    def do_unknown(self, block: Block) -> list[str]:
        found = unknown_keys(_KINDS[block.words[0]][1], _config(block))
        return [f"{key}: did you mean {near}?" if near else key for key, near in found.items()]

    def _parsed(self, text: str, type_: Type) -> str:
        try:
            value = json.dumps(shown(parse_type("k", text, type_), type_), ensure_ascii=False)
            return f"{json.dumps(text)} is {value}"
        except ConfigError as error:
            return f"{json.dumps(text)}: {error}"


def _config(block: Block) -> dict[str, Any]:
    pairs = (line.partition(" ") for line in block.input)
    return {key: json.loads(value) for key, _, value in pairs}


def _key_line(key: ConfigKeyInfo) -> str:
    required = "true" if key.required else "false"
    return (
        f"{key.name} {key.type} {required} {json.dumps(key.default_value)} {key.importance} "
        f"{json.dumps(key.group)} {key.order_in_group} {key.width} {json.dumps(key.display_name)}"
    )


_KINDS: dict[str, tuple[Any, type[SourceConnector] | type[SinkConnector]]] = {
    "source": (source_keys, Reading),
    "sink": (sink_keys, Writing),
}

WORLDS = {"connector": ConnectorWorld}
