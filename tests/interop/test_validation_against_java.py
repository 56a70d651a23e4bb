"""Java's worker and ours answer a validation with the same errors and the same keys."""

from typing import Any

import pytest
from support.java.connect import FoundWorker

from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.plugins.rest import RestPlugins
from local_kafka.java_connect import SINK, SOURCE

pytestmark = pytest.mark.slow

JSON = "org.apache.kafka.connect.json.JsonConverter"
CONFIGS: dict[str, dict[str, str]] = {
    "a source": {"connector.class": SOURCE, "name": "a", "file": "/x", "topic": "t"},
    "a bad source": {
        "connector.class": SOURCE,
        "tasks.max": "0",
        "file": "/x",
        "errors.tolerance": "some",
        "transaction.boundary": "now",
        "x.y": "z",
    },
    "a source that asks for much": {
        "connector.class": SOURCE,
        "name": "a",
        "file": "/x",
        "topic": "t",
        "exactly.once.support": "required",
        "transaction.boundary": "connector",
        "topic.creation.groups": "g",
        "topic.creation.g.include": "x",
    },
    "a sink without topics": {"connector.class": SINK, "name": "s", "file": "/x"},
    "a sink with too many": {
        "connector.class": SINK,
        "name": "s",
        "file": "/x",
        "topics": "a,b",
        "topics.regex": "c.*",
        "errors.deadletterqueue.topic.name": "a",
    },
}


ONLY_OURS = frozenset({"on.missing.output"})
"""Options of FileStreamSink that Java's has not."""


def comparable(infos: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without our own texts, without `ONLY_OURS`, and without what Java fills from
    its class path.

    The latter are versions, lists, defaults and values of ``*.plugin.version``, and recommended
    values.
    """
    configs = []
    for each in infos["configs"]:
        if each["value"]["name"] in ONLY_OURS:
            continue
        definition = None if each["definition"] is None else dict(each["definition"])
        value = {**each["value"], "recommended_values": []}
        if definition is not None:
            del definition["documentation"]
            if definition["name"].endswith(".plugin.version"):
                definition["default_value"] = value["value"] = None
        configs.append({"definition": definition, "value": value})
    return {**infos, "configs": configs}


def test_configs_are_validated_as_by_java(java_connect: FoundWorker) -> None:
    texts = {"headgate.task.runner": "process", "key.converter": JSON, "value.converter": JSON}
    ours = RestPlugins(WorkerSettings.parse({**texts, "group.id": "g"}))
    for what, config in CONFIGS.items():
        plugin = config["connector.class"].rsplit(".", 1)[1]
        reply = java_connect.rest.put(f"/connector-plugins/{plugin}/config/validate", config)
        assert reply.status == 200, reply
        assert comparable(dict(ours.validate(plugin, config))) == comparable(reply.body), what
    for plugin in (SOURCE, SINK):
        listed = java_connect.rest.get(f"/connector-plugins/{plugin}/config").body
        names = [key["name"] for key in ours.config(plugin) if key["name"] not in ONLY_OURS]
        assert names == [key["name"] for key in listed]
