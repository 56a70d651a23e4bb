"""The REST API lists, describes and validates connectors and their parts."""

import pytest

from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.plugins.rest import RestPlugins

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


@pytest.fixture
def plugins() -> RestPlugins:
    return RestPlugins(WorkerSettings.parse({"headgate.task.runner": "process"}))


def test_a_connector_is_listed_once_by_its_fullest_name(plugins: RestPlugins) -> None:
    listed = {each["class"]: each["type"] for each in plugins.listed(connectors_only=True)}
    assert listed[SOURCE] == "source"
    assert listed[SINK] == "sink"
    assert listed["DirectorySource"] == "source"
    assert "FileStreamSource" not in listed
    kinds = [each["type"] for each in plugins.listed(connectors_only=True)]
    assert kinds == sorted(kinds)


def test_all_kinds_of_plugins(plugins: RestPlugins) -> None:
    found = {(each["type"], each["class"]) for each in plugins.listed(connectors_only=False)}
    assert {kind for kind, _ in found} == {
        *("source", "sink", "transformation", "predicate", "converter", "header_converter")
    }
    assert ("transformation", "org.apache.kafka.connect.transforms.RegexRouter") in found
    string = "org.apache.kafka.connect.storage.StringConverter"
    assert {("converter", string), ("header_converter", string)} < found


def test_the_keys_of_a_connector_come_before_those_of_the_framework(plugins: RestPlugins) -> None:
    names = [key["name"] for key in plugins.config("FileStreamSource")]
    assert names[:3] == ["file", "topic", "batch.size"]
    assert plugins.config("FileStreamSource")[0]["group"] is None  # as Java: not an empty text
    assert len(names) == len(set(names))
    assert {"connector.class", "exactly.once.support"} < set(names[3:])
    assert "topics" in [key["name"] for key in plugins.config(SINK)]


@pytest.mark.parametrize(
    ("plugin", "key"),
    [
        ("RegexRouter", "regex"),
        ("TopicNameMatches", "pattern"),
        ("JsonConverter", "schemas.enable"),
        ("org.apache.kafka.connect.storage.StringConverter", "converter.encoding"),
    ],
)
def test_the_keys_of_other_plugins(plugins: RestPlugins, plugin: str, key: str) -> None:
    assert key in [each["name"] for each in plugins.config(plugin)]


def test_an_unknown_plugin(plugins: RestPlugins) -> None:
    with pytest.raises(LookupError, match=r"^Unknown plugin nope\.$"):
        plugins.config("nope")


@pytest.mark.parametrize("plugin", ["FileStreamSource", "FileStreamSourceConnector", SOURCE])
def test_a_config_is_validated_whole(plugins: RestPlugins, plugin: str) -> None:
    config = {"connector.class": SOURCE, "tasks.max": "0", "topic": "t", "file": "f"}
    infos = plugins.validate(plugin, config)
    assert infos["name"] == SOURCE
    errors = [text for each in infos["configs"] for text in each["value"]["errors"]]
    assert sorted(errors) == [
        "Invalid value 0 for configuration tasks.max: Value must be at least 1",
        'Missing required configuration "name" which has no default value.',
    ]
    assert infos["error_count"] == 2


@pytest.mark.parametrize(
    ("plugin", "config", "text"),
    [
        ("FileStreamSink", {"connector.class": "FileStreamSource"}, "does not match request type"),
        ("FileStreamSource", {"a": "b"}, r"Connector config \{a=b\} contains no connector type"),
        ("nope", {"connector.class": "nope"}, "Failed to find any class that implements Connector"),
    ],
)
def test_a_config_that_cannot_be_validated(
    plugins: RestPlugins, plugin: str, config: dict[str, str | None], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        plugins.validate(plugin, config)
