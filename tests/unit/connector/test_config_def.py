"""`ConfigDef` beyond the scenarios in ``specs/connector``, and the shape of its answer."""

from collections.abc import Mapping
from typing import Any

import pytest

from headgate.connector.api import (
    ExactlyOnceSupport,
    PlannedSinkTask,
    SinkConnector,
    SourceConnector,
)
from headgate.connector.config import (
    ConfigDef,
    ConfigError,
    Password,
    Type,
    java_text,
    parse_type,
)
from headgate.connector.validation import (
    error_message,
    missing_class_message,
    nearest,
    validate_connector,
)
from headgate.connector.validators import at_least, between


class Offered:
    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> list[Any]:
        if parsed["a"] == 3:
            raise ConfigError("no values for 3")
        return [1, parsed["a"]]

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        return parsed["a"] != 2


def test_parse_fills_in_defaults_and_leaves_out_what_is_not_defined() -> None:
    definition = ConfigDef().define("a", Type.INT, "5").define("b", Type.LIST, None)
    assert definition.parse({"c": "1"}) == {"a": 5, "b": None}
    assert definition.parse({"a": " 7 ", "b": "x , y"}) == {"a": 7, "b": ["x", "y"]}
    with pytest.raises(
        ConfigError, match='Missing required configuration "n" which has no default'
    ):
        ConfigDef().define("n").parse({})


def test_definitions_that_are_wrong() -> None:
    with pytest.raises(ConfigError, match="defined twice"):
        ConfigDef().define("a").define("a")
    with pytest.raises(ConfigError, match="Value must be at least 1"):
        ConfigDef().define("a", Type.INT, 0, at_least(1))


def test_bounds() -> None:
    with pytest.raises(
        ConfigError, match=r"Invalid value 9 for configuration a: Value must be no m"
    ):
        between(1, 8)("a", 9)


def test_dependents_and_recommenders() -> None:
    definition = (
        ConfigDef()
        .define("a", Type.INT, 1, dependents=["b", "ghost"])
        .define("b", Type.INT, 0, recommender=Offered())
    )
    results = definition.validate({"a": "2"})
    assert results["b"].recommended_values == [1, 2]
    assert not results["b"].visible
    assert results["ghost"].errors == ["ghost is referred in the dependents, but not defined."]
    assert definition.validate({"a": "3"})["b"].errors == ["no values for 3"]


@pytest.mark.parametrize(
    ("value", "type_", "message"),
    [
        (1, Type.STRING, "Expected value to be a string, but it was a int"),
        (True, Type.INT, "Expected value to be a 32-bit integer, but it was a bool"),
        (1 << 31, Type.INT, "Not a number of type INT"),
        ("x", Type.BOOLEAN, "Expected value to be either true or false"),
        (1, Type.BOOLEAN, "Expected value to be either true or false"),
        (1, Type.LIST, "Expected a comma separated list."),
    ],
)
def test_objects_of_a_wrong_type(value: Any, type_: Type, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_type("k", value, type_)


def test_passwords_are_not_shown() -> None:
    password = parse_type("k", "secret", Type.PASSWORD)
    assert password == Password("secret")
    assert "secret" not in f"{password} {password!r} {java_text(password)}"


def test_texts_of_values_are_javas() -> None:
    assert java_text({"a": [None, True, 0.5]}) == "{a=[null, true, 0.5]}"
    numbers = [0.0, -0.0, 1e7, 9999999.5, 1e-3, 9.5e-4, 1.5e300, -12345678.25, 5e-324]
    numbers += [float("nan"), float("inf"), float("-inf")]
    assert [java_text(number) for number in numbers] == [
        "0.0", "-0.0", "1.0E7", "9999999.5", "0.001", "9.5E-4", "1.5E300", "-1.234567825E7",
        "4.9E-324", "NaN", "Infinity", "-Infinity",
    ]  # fmt: skip


class Own(SourceConnector):
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("secret", Type.PASSWORD, group="Own", display_name="Secret")

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> dict[str, list[str]]:
        return {"secret": ["too short"], "other": ["not wanted"]} if "other" in config else {}

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport | None:
        if "fail" in config:
            raise ValueError(config["fail"])
        return None

    @classmethod
    def can_define_transaction_boundaries(
        cls, config: Mapping[str, str]
    ) -> ExactlyOnceSupport | None:
        return None


class Planned(SinkConnector):
    TASK = PlannedSinkTask


def infos(connector: type[SourceConnector] | type[SinkConnector], **config: str) -> Any:
    keys = {"name": "n", "connector.class": "C", "secret": "x", "topics": "t"}
    keys |= {key.replace("_", "."): value for key, value in config.items()}
    return validate_connector(
        connector, keys, worker_settings={}, exactly_once_enabled=True,
        runner=config.get("runner", "process"),
    )  # fmt: skip


def test_the_answer_as_rest_gives_it() -> None:
    plain = infos(Own, other="1").plain()
    assert plain["name"] == "C"
    assert plain["error_count"] == 2
    assert plain["groups"] == [
        "Common", "Transforms", "Predicates", "Error Handling", "Topic Creation",
        "Exactly Once Support", "offsets.topic", "Own",
    ]  # fmt: skip
    by_name = {config["value"]["name"]: config for config in plain["configs"]}
    assert by_name["other"]["definition"] is None
    assert by_name["secret"] == {
        "definition": {
            "name": "secret", "type": "PASSWORD", "required": True, "default_value": None,
            "importance": "MEDIUM", "documentation": "", "group": "Own", "order_in_group": -1,
            "width": "NONE", "display_name": "Secret", "dependents": [],
        },
        "value": {
            "name": "secret", "value": "[hidden]", "recommended_values": [],
            "errors": ["too short"], "visible": True,
        },
    }  # fmt: skip


def test_errors_name_the_key_and_what_could_be_there() -> None:
    told = error_message(infos(Own, value_converter="com.example.Mine"))
    assert "Class com.example.Mine could not be found. There are io.confluent" in told
    assert "org.apache.kafka.connect.json.JsonConverter" in told
    near = error_message(infos(Own, value_converter="JsonConverer"))
    assert "Class JsonConverer could not be found. Did you mean JsonConverter?" in near
    config = {"name": "n", "connector.class": "C", "secret": "x", "more": None}
    found = validate_connector(
        Own, config, worker_settings={}, exactly_once_enabled=False, runner="process"
    )
    null = "Null value can not be supplied as the configuration value. Key: more"
    assert null in found.errors


def test_preflight_answers() -> None:
    found = infos(Own, exactly_once_support="REQUIRED", transaction_boundary="Connector")
    assert found.error_count == 2
    assert "does not implement the API required for preflight validation" in error_message(found)
    assert "has returned a null value from its canDefineTransactionBoundaries" in found.errors[1]
    refused = infos(Own, exactly_once_support="required", fail="the file is odd")
    assert refused.errors == ("An unexpected error occurred during validation: the file is odd",)


def test_a_planned_sink_has_one_task_and_a_runner_that_can_kill() -> None:
    assert infos(Planned).error_count == 0
    (error,) = infos(Planned, tasks_max="2").errors
    assert "a sink of planned batches has one task" in error
    (error,) = infos(Planned, runner="thread").errors
    assert "cannot kill a task that hangs" in error


def test_a_planned_sink_refuses_transforms_which_it_would_not_apply() -> None:
    mask = {"transforms.mask.type": "MaskField$Value", "transforms.mask.fields": "card"}
    assert infos(Own, transforms="mask", **mask).error_count == 0
    (error,) = infos(Planned, transforms="mask", **mask).errors
    assert "no transform would change its records" in error
    assert infos(Planned, transforms="").error_count == 0


def test_words_that_are_near() -> None:
    assert nearest("topcs", ["topics", "topic.x"]) == "topics"
    assert nearest("x", ["y"]) is None
    assert nearest("colour", ["topics"]) is None


def test_a_config_without_a_class() -> None:
    assert (
        missing_class_message({"name": "a"})
        == "Connector config {name=a} contains no connector type"
    )
