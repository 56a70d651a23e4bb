"""References to config providers resolve to what Kafka 4.3.1 made of them:
specs/config-providers."""

from pathlib import Path
from typing import Any

import pytest
from support.commands.config_provider_table import cases, lay_out, placed, unplaced

from headgate.connector.config_providers import (
    ConfigProvider,
    ConfigProviderError,
    reverse_transform,
    transform,
)
from headgate_runtime.config.properties import Properties
from headgate_runtime.config.providers import (
    DirectoryConfigProvider,
    EnvVarConfigProvider,
    FileConfigProvider,
)
from headgate_runtime.config.settings import DISTRIBUTED
from headgate_runtime.config.worker_file import WorkerFileError, check_worker_file

OUTSIDE = "the path is outside of allowed.paths"
OURS = {
    "a file that is not allowed": OUTSIDE,
    "a file that dots lead out to": OUTSIDE,
    "a folder that is not allowed": OUTSIDE,
    "a path outside, with nothing in it to be found": OUTSIDE,
    "a provider without a class is none": "the provider's class is missing",
}
"""Cases that are an error here, where Java leaves the reference as it stands."""
LENIENT = {
    "allowed.paths with a blank after the comma": {"k": "s3cr3t"},
    "blanks between names": {"group.id": "s3cr3t"},
    "blanks around a class": {"group.id": "s3cr3t"},
}
"""Cases in which blanks make a difference to Java alone."""
BASE = {
    "bootstrap.servers": "localhost:9092",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.storage.topic": "o",
    "config.storage.topic": "c",
    "status.storage.topic": "s",
}


def outcome(case: dict[str, Any]) -> tuple[str, Any]:
    """Return the expected outcome of ours: ``gives`` and a config, or ``refused`` and a part of the
    text."""
    if case["about"] in OURS:
        return "refused", OURS[case["about"]]
    if case["about"] in LENIENT:
        return "gives", LENIENT[case["about"]]
    return ("refused", "") if "refused" in case else ("gives", case["gives"])


def ids(kind: str) -> dict[str, Any]:
    found = cases(kind)
    return {"argvalues": found, "ids": [case["about"] for case in found]}


def providers(case: dict[str, Any]) -> dict[str, ConfigProvider]:
    made: dict[str, ConfigProvider] = {
        "file": FileConfigProvider(),
        "directory": DirectoryConfigProvider(),
        "env": EnvVarConfigProvider(case["environment"]),
    }
    for name, provider in made.items():
        provider.configure(case.get("params", {}).get(name, {}))
    return made


@pytest.fixture
def files(tmp_path: Path) -> Path:
    lay_out(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", **ids("transform"))
def test_configs(case: dict[str, Any], files: Path) -> None:
    what, expected = outcome(case)
    asked = placed(case, files)
    if what == "refused":
        with pytest.raises(ConfigProviderError) as refused:
            transform(asked["config"], providers(asked))
        assert expected in str(refused.value)
    else:
        found = transform(asked["config"], providers(asked)).config
        assert unplaced(dict(found), files) == expected


@pytest.mark.parametrize("case", **ids("reverse"))
def test_task_configs(case: dict[str, Any]) -> None:
    found = [reverse_transform(case["connector"], task) for task in case["tasks"]]
    assert found == case["gives"]


@pytest.mark.parametrize("case", **ids("worker"))
def test_properties_of_a_worker(case: dict[str, Any], files: Path) -> None:
    what, expected = outcome(case)
    values = {**BASE, **placed(case["config"], files)}
    file = Properties("w.properties", values, {})
    if what == "refused":
        with pytest.raises(WorkerFileError) as refused:
            check_worker_file(file, DISTRIBUTED)
        assert expected in str(refused.value)
        return
    found = unplaced(dict(check_worker_file(file, DISTRIBUTED).properties), files)
    for key, value in expected.items():
        if not key.startswith("config.providers."):  # those are the providers' own
            assert found[key] == value
