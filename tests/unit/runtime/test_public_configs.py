"""Configs after public examples of Kafka Connect: everything in them except the connector resolves.

Names and values are those of the documentation. A file may join what several of its pages show.
Each file of `tests/data/public_configs` names the page of the config, the kind of the connector,
and the classes that come with the connector alone (``own``). A stand-in takes the config in place
of the connector's class, which is not installed. Then every error must name an own class.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from headgate.connector.converters import task_converters
from headgate.connector.topic_creation import topic_keys
from headgate.connector.transforms import make_transforms
from headgate.testing import Message, run_sink, run_source
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.plugins.converters import converter_maker
from headgate_runtime.plugins.rest import RestPlugins

FOLDER: Final = Path(__file__).resolve().parents[2] / "data" / "public_configs"
NAMES: Final = sorted(path.stem for path in FOLDER.glob("*.json"))
COUNT: Final = 41
OURS: Final = ("file_source", "file_source_transforms", "file_source_filter", "file_sink")
"""Configs whose connector comes with Headgate."""
SETTINGS: Final = {"headgate.task.runner": "process", "exactly.once.source.support": "enabled"}

FAMILIES: Final = ("errors.", "topic.creation.", "transforms", "predicates", "exactly.", "tasks.")
OF_TOPICS: Final = (".groups", ".include", ".exclude", ".partitions", ".replication.factor")
"""Endings of the keys below ``topic.creation.``; any other is a config of the topic."""
CONVERTERS: Final = ("key.converter", "value.converter", "header.converter")


def shown(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def stood_in(name: str) -> dict[str, str]:
    """The config with a stand-in for its connector."""
    public = shown(name)
    if name in OURS:
        return dict(public["config"])
    stand_in = f"support.data.stand_ins:StandIn{public['kind'].capitalize()}"
    return {**public["config"], "connector.class": stand_in}


@pytest.fixture(scope="module")
def plugins() -> RestPlugins:
    return RestPlugins(WorkerSettings.parse(SETTINGS))


def test_there_are_as_many_as_are_said() -> None:
    assert len(NAMES) == COUNT
    assert len({json.dumps(shown(name)["config"], sort_keys=True) for name in NAMES}) == COUNT


@pytest.mark.parametrize("name", NAMES)
def test_the_one_error_is_the_connectors_own_class(name: str, plugins: RestPlugins) -> None:
    if name in OURS:
        return  # below: it is valid as it is
    config = shown(name)["config"]
    with pytest.raises(ValueError, match="Failed to find any class") as caught:
        plugins.validate(config["connector.class"].rpartition(".")[2], config)
    assert f"which name matches {config['connector.class']}." in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_all_but_the_connector_resolves(name: str, plugins: RestPlugins) -> None:
    config, own = stood_in(name), shown(name)["own"]
    answer = plugins.validate(config["connector.class"], config)
    errors = {
        each["value"]["name"]: each["value"]["errors"]
        for each in answer["configs"]
        if each["value"]["errors"]
    }
    own_keys = {key for key, value in config.items() if value in own}
    assert set(errors) == own_keys, errors
    for key in own_keys:
        assert all(config[key] in text for text in errors[key]), errors[key]
    if not own:
        make_transforms(config)
        task_converters(config, SETTINGS, converter_maker({"kind": "kafka"}))


@pytest.mark.parametrize("name", NAMES)
def test_every_key_of_connects_own_is_known(name: str, plugins: RestPlugins) -> None:
    """A key that nothing defines is taken, since a connector may read it, and does nothing."""
    config, own = stood_in(name), shown(name)["own"]
    answer = plugins.validate(config["connector.class"], config)
    known = {each["value"]["name"] for each in answer["configs"] if each["definition"]}
    known |= topic_keys(config)  # as with Java, groups of new topics have no definitions here
    foreign = {key for key, value in config.items() if value in own}
    unresolved = (*(key.removesuffix("type") for key in foreign), *foreign)
    unknown = {
        key
        for key in config
        if (key.startswith(FAMILIES) or key in CONVERTERS)
        and (not key.startswith("topic.creation.") or key.endswith(OF_TOPICS))
        and key not in known
        and not key.startswith(unresolved)
    }
    assert unknown == set()


@pytest.mark.parametrize("name", [name for name in OURS if name != "file_sink"])
def test_a_source_that_is_ours_runs(name: str, tmp_path: Path) -> None:
    config = {**stood_in(name), "file": str(tmp_path / "test.txt")}
    (tmp_path / "test.txt").write_text("foo\nbar\n")
    run = run_source(config["connector.class"], config)
    made = {"line": "foo", "data_source": "test-file-source"}
    first = json.dumps(made, separators=(",", ":")) if name == "file_source_transforms" else "foo"
    assert run.messages[0].value == first
    assert len(run.messages) == 2


@pytest.mark.parametrize(("topic", "count"), [("foo", 0), ("bar", 2), ("connect-test", 2)])
def test_the_predicates_of_one_that_is_ours_decide(topic: str, count: int, tmp_path: Path) -> None:
    """The config drops the records of the topic foo. From all records except those of bar it takes
    a field of the key."""
    config = {**stood_in("file_source_filter"), "file": str(tmp_path / "test.txt"), "topic": topic}
    (tmp_path / "test.txt").write_text("a\nb\n")
    run = run_source(config["connector.class"], config)
    assert [message.value for message in run.messages] == ["a", "b"][:count]


def test_the_sink_that_is_ours_runs(tmp_path: Path) -> None:
    config = {**stood_in("file_sink"), "file": str(tmp_path / "test.sink.txt")}
    messages = [Message(text, topic="connect-test") for text in ("foo", "bar")]
    assert run_sink("FileStreamSink", config, messages).complete
    assert (tmp_path / "test.sink.txt").read_text() == "foo\nbar\n"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("transforms.createKey.type", "org.apache.kafka.connect.transforms.ValueToKeys"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConvertor"),
        ("errors.tolerance", "some"),
        ("tasks.max", "one"),
    ],
)
def test_a_mistake_in_one_is_an_error_of_its_key(
    key: str, value: str, plugins: RestPlugins
) -> None:
    config = {**stood_in("jdbc_source_keys"), key: value}
    answer = plugins.validate(config["connector.class"], config)
    wrong = {each["value"]["name"] for each in answer["configs"] if each["value"]["errors"]}
    assert wrong == {key}
