"""Kafka 4.3.1 and Headgate resolve references to config providers in the same way."""

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands.config_provider_table import (
    ENVIRONMENT,
    PLACE,
    cases,
    lay_out,
    placed,
    unplaced,
)

from headgate.connector.config_providers import (
    ConfigProvider,
    ConfigProviderError,
    reverse_transform,
    transform,
)
from headgate_runtime.config.providers import (
    DirectoryConfigProvider,
    EnvVarConfigProvider,
    FileConfigProvider,
)

Ask = Callable[[Any], Any]

RANDOM_CONFIGS = 2_000
KEYS = ["password", "user", "url", "n"]
PIECES = [
    *("${", "}", ":", "$", "a", " ", "\\", "é", "😀", "${}", "${:}", "${::}", "${env", "file:"),
    *("${env:REGION}", "${env:LOOP}", "${env:NONE}", "${env::REGION}", "${other:a:b}"),
    f"${{file:{PLACE}/secrets.properties:password}}",
    f"${{file:{PLACE}/secrets.properties:none}}",
    f"${{directory:{PLACE}/mounted:user.name}}",
    f"${{directory:{PLACE}/mounted:../secrets.properties}}",
    f"{PLACE}/secrets.properties:twice}}",
    "${env:a path:REGION}",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    lay_out(folder)
    return folder


@pytest.fixture(scope="module")
def ask(java_program: Callable[..., "subprocess.Popen[str]"], files: Path) -> Iterator[Ask]:
    process = java_program("ConfigTransformers")
    assert process.stdin is not None and process.stdout is not None
    to, answers = process.stdin, process.stdout

    def asked(question: Any) -> Any:
        to.write(json.dumps(placed(question, files)) + "\n")
        to.flush()
        return unplaced(json.loads(answers.readline()), files)

    yield asked


@pytest.mark.parametrize("kind", ["transform", "reverse", "worker"])
def test_the_table_is_what_java_says(ask: Ask, kind: str) -> None:
    for case in cases(kind):
        expected = {"refused": case["refused"]} if "refused" in case else case["gives"]
        assert ask(case) == expected, case["about"]


def test_random_configs_come_to_the_same(ask: Ask, files: Path) -> None:
    dice = random.Random(421)
    providers: dict[str, ConfigProvider] = {
        "file": FileConfigProvider(),
        "directory": DirectoryConfigProvider(),
        "env": EnvVarConfigProvider(ENVIRONMENT),
    }
    resolved = refused = 0
    for _ in range(RANDOM_CONFIGS):
        config = {key: _value(dice) for key in dice.sample(KEYS, 2)}
        task = {key: dice.choice(PIECES) for key in dice.sample(KEYS, 3)}
        theirs = ask({"do": "transform", "environment": ENVIRONMENT, "config": config})
        try:
            ours: Any = dict(transform(placed(config, files), providers).config)
            resolved += theirs != config
        except ConfigProviderError:
            assert "refused" in theirs, config
            refused += 1
        else:
            assert unplaced(ours, files) == theirs, config
        logged = ask({"do": "reverse", "connector": config, "tasks": [task]})
        assert [reverse_transform(config, task)] == logged, (config, task)
    assert min(resolved, refused) > RANDOM_CONFIGS // 20


def _value(dice: random.Random) -> str | None:
    if dice.random() < 0.05:
        return None
    return "".join(dice.choices(PIECES, k=dice.randrange(6)))
