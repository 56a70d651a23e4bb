"""How `headgate observe` looks: who was in the group meanwhile, from how the coordinator describes
it one time after the other, and brokers that do not answer."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_kafka import reading
from headgate_kafka.group_describe import DescribedGroup, DescribedMember
from headgate_runtime.observe.command import ObserveError, ObserveOptions, run
from headgate_runtime.observe.reader import ClusterReader
from headgate_runtime.observe.view import Look, describe

TOPICS = {"config": "configs", "status": "statuses", "offset": "offsets"}
PATIENCE_S = 60.0


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    made = open_transport(transport_settings(tmp_path))
    yield made
    made.close()


def group(state: str, *ids: str) -> DescribedGroup:
    members = tuple(DescribedMember(each, f"worker-{each[0]}", "/h", b"", b"") for each in ids)
    return DescribedGroup("g", state, "connect", "sessioned", members, "h:9092")


def looked(transport: EmbeddedTransport, patience_s: float, *groups: DescribedGroup) -> Look:
    described = iter(groups)
    source: Any = SimpleNamespace(
        config_log=transport.config_log,
        status_log=transport.status_log,
        offset_log=lambda _topic: transport.offset_log,
        topics=TOPICS,
        describe_group=lambda: next(described),
    )
    look = ClusterReader(source).look(patience_s)
    assert next(described, None) is None
    return look


@pytest.mark.parametrize("topics", [None, {kind: f"{kind}s" for kind in TOPICS}])
def test_brokers_that_do_not_answer_are_told_once(
    topics: dict[str, str] | None,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "REQUEST_S", 1.0)
    with pytest.raises(ObserveError, match=r"127\.0\.0\.1:1"):
        run(ObserveOptions(bootstrap_servers="127.0.0.1:1", group="g", topics=topics))
    assert capfd.readouterr() == ("", "")


ONE, BOTH = group("Stable", "a1"), group("Stable", "a1", "b1")
ROUND = group("PreparingRebalance", "a1", "b1")


@pytest.mark.parametrize(
    ("groups", "passing"),
    [
        ((ONE, ONE), ()),
        ((ROUND, BOTH, BOTH), ()),
        ((ROUND, ONE, ONE), ("worker-b",)),
        ((ONE, ROUND), ("worker-b",)),
        ((BOTH, ONE), ("worker-b",)),
        ((BOTH, group("PreparingRebalance", "a1", "b2")), ("worker-b",)),
    ],
)
def test_who_came_or_left_meanwhile_is_named(
    transport: EmbeddedTransport, groups: tuple[DescribedGroup, ...], passing: tuple[str, ...]
) -> None:
    """So two clusters in one group are seen, each of which takes its turns alone."""
    look = looked(transport, PATIENCE_S, *groups)
    assert look.passing == passing
    said = [each for each in describe(look)["findings"] if "compare its config.storage" in each]
    assert len(said) == len(passing)


def test_who_looks_again_and_again_asks_once_each_time(transport: EmbeddedTransport) -> None:
    assert looked(transport, 0.0, ROUND).passing == ()
