"""The pages for users have every setting of a worker, with its real default and its description."""

import re
from pathlib import Path

from headgate_rest.limits import KEYS as LIMIT_KEYS
from headgate_rest.limits import Limits
from headgate_runtime.config.rest_limits import REST_LIMITS
from headgate_runtime.config.settings import DISTRIBUTED, KEYS, ON_KAFKA, PIPELINE_KEYS, STANDALONE

PAGES = Path(__file__).resolve().parents[3] / "docs" / "run"
OTHER_WORDS = {"headgate.task.runner": "runner"}
"""Settings that a pipeline file calls otherwise."""


def rows_of(page: str) -> list[tuple[str, ...]]:
    """Rows of three cells whose first cell is a setting."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.+) \|$", text, re.MULTILINE)


def test_every_setting_of_a_worker_is_on_the_page_of_settings_once() -> None:
    wanted = []
    for name, key in KEYS.items():
        if key.files & ON_KAFKA:
            place = DISTRIBUTED if DISTRIBUTED in key.files else STANDALONE
            shown = f"`{key.default}`" if key.default else "–"
            wanted.append((name, "required" if place in key.required else shown, key.doc))
    assert sorted(rows_of("settings.md")) == sorted(wanted)


def test_every_setting_of_a_pipeline_file_is_on_its_page() -> None:
    text = (PAGES / "pipeline.md").read_text(encoding="utf-8")
    assert [
        name for name in PIPELINE_KEYS if f"| `{OTHER_WORDS.get(name, name)}` |" not in text
    ] == []


def test_the_limits_of_the_rest_server_are_the_settings_with_their_defaults() -> None:
    wanted = {key: str(getattr(Limits(), field)) for field, key in LIMIT_KEYS.items()}
    assert {name: default for name, default, _ in REST_LIMITS} == wanted
