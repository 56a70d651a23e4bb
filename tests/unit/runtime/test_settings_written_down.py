"""docs/kafka.md has every setting, with the default that it really has."""

import re
from pathlib import Path

from headgate_runtime.config.settings import DISTRIBUTED, KEYS, ON_KAFKA, STANDALONE

PAGE = Path(__file__).resolve().parents[3] / "docs" / "kafka.md"


def test_every_setting_is_on_the_page() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    wanted = []
    for name, key in KEYS.items():
        if key.files & ON_KAFKA:
            place = DISTRIBUTED if DISTRIBUTED in key.files else STANDALONE
            shown = f"`{key.default}`" if key.default else "–"
            wanted.append((name, "required" if place in key.required else shown, key.doc))
    assert rows == wanted
