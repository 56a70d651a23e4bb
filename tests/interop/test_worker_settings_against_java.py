"""The table of a worker's settings has the keys and the defaults of Kafka 4.3.1's definitions."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from support.depth import first

from headgate_runtime.config.settings import DISTRIBUTED, STANDALONE, Key, keys_of

pytestmark = pytest.mark.slow

ALLOWLIST = "connector.client.config.override.allowlist"
ELSEWHERE = {DISTRIBUTED: {ALLOWLIST}, STANDALONE: {ALLOWLIST, "client.id"}}
"""Of the policy's own class; and of clients, while Java's standalone worker does not know it."""
NUMBERS = ("SHORT", "INT", "LONG")
NUMBER_TEXTS = [
    *("-9223372036854775809", "-2147483649", "-2", "-1", "0", "1", "7", "8", "9", "10", "99"),
    *(
        "100",
        "32767",
        "32768",
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
    ),
    *("+5000", " 5000 ", "007", "1_000", "1.0", "1e3", "0x10", "-", "soon"),
]
WORD_TEXTS = {
    "connect.protocol": ["eager", "Compatible", "SESSIONED", "soon"],
    "exactly.once.source.support": ["disabled", "preparing", "enabled", "true", "soon"],
    "ssl.client.auth": ["none", "requested", "required", "soon"],
    "topic.creation.enable": ["true", "FALSE", " True ", "yes", "1"],
    "topic.tracking.enable": ["true", "FALSE", " True ", "yes", "1"],
    "topic.tracking.allow.reset": ["true", "FALSE", " True ", "yes", "1"],
}
LEAST = {
    "heartbeat.interval.ms": 10,
    "inter.worker.key.size": 8,
    "offset.flush.interval.ms": 1,
    "rebalance.timeout.ms": 100,
    "rest.advertised.port": 1,
    "session.timeout.ms": 100,
    "task.shutdown.graceful.timeout.ms": 0,
    "worker.sync.timeout.ms": 1,
}
"""Java takes any number of its type there, and fails later or spins."""


def takes(key: Key, text: str) -> bool:
    try:
        key.parse(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("kind", first(1, [DISTRIBUTED, STANDALONE]))
def test_what_both_have_is_the_same(
    java_program: Callable[..., "subprocess.Popen[str]"], kind: str
) -> None:
    process = java_program("WorkerConfigs")
    ours = keys_of(kind)
    texts = {name: WORD_TEXTS.get(name, NUMBER_TEXTS) for name in ours}
    answer, _ = process.communicate(json.dumps({"kind": kind, "texts": texts}) + "\n")
    javas: dict[str, Any] = json.loads(answer)
    both = {name: (key, javas[name]) for name, key in ours.items() if name in javas}
    only = {name for name in ours.keys() - both.keys() if not name.startswith("headgate.")}
    assert only == ELSEWHERE[kind]
    wrong: list[str] = []
    for name, (key, java) in both.items():
        default = None if kind in key.required else key.default
        if default != (java["default"] or "" if "default" in java else None):
            wrong.append(f"{name}: default {default!r}, Java {java.get('default')!r}")
        if java["type"] in NUMBERS or name in WORD_TEXTS:
            ours_takes = {text for text in texts[name] if takes(key, text)}
            javas_takes = {text for text in java["taken"] if not _too_small(name, text)}
            if ours_takes != javas_takes:
                wrong.append(f"{name}: taken by one of both {sorted(ours_takes ^ javas_takes)}")
    assert not wrong, "\n".join(wrong)


def _too_small(name: str, text: str) -> bool:
    """Return whether a value is too small for ours alone."""
    try:
        return int(text) < LEAST.get(name, int(text))
    except ValueError:
        return False
