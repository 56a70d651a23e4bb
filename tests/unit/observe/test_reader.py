"""`headgate observe` looks at a cluster again and again.

From one description of the group to the next it finds who was in the group meanwhile. Some brokers
do not answer.
"""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.topics.config_records import encode_connector, encode_task_count
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_kafka.group.describe import DescribedGroup, DescribedMember
from headgate_kafka.logs import reading
from headgate_kafka.observer import other_servers
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


def looked(
    transport: EmbeddedTransport, patience_s: float, *groups: DescribedGroup, **more: object
) -> Look:
    described = iter(groups)
    source: Any = SimpleNamespace(
        config_log=transport.config_log,
        status_log=transport.status_log,
        offset_log=lambda _topic: transport.offset_log,
        topics=TOPICS,
        describe_group=lambda: next(described),
        **{"worker": {}, **more},
    )
    look = ClusterReader(source).look(patience_s)
    assert next(described, None) is None
    return look


ONE, BOTH = group("Stable", "a1"), group("Stable", "a1", "b1")
ROUND = group("PreparingRebalance", "a1", "b1")
HERE = "a:1, b:1"


@pytest.mark.parametrize(
    ("worker", "override", "elsewhere"),
    [
        ({}, None, None),
        ({}, "a:1,b:1", None),
        ({}, "b:1 ,a:1", None),
        ({}, "b:1", None),
        ({}, "c:1,d:1", "c:1,d:1"),
        ({"producer.bootstrap.servers": "c:1"}, None, "c:1"),
        ({"producer.bootstrap.servers": "c:1"}, "a:1", None),
        ({}, "${env:THERE}", "${env:THERE}"),
    ],
)
def test_producers_that_write_to_another_cluster_are_known_by_their_servers(
    worker: dict[str, str], override: str | None, elsewhere: str | None
) -> None:
    config = {"producer.override.bootstrap.servers": override}
    assert other_servers({"bootstrap.servers": HERE, **worker}, config) == elsewhere


KEPT = "s keeps its offsets in topic {} at c:1: not looked at. Shown are the copies in offsets,"
MAY_KEEP = "s may keep its offsets in topic offsets at c:1, if exactly.once.source.support is"


@pytest.mark.parametrize(
    ("support", "counted", "named", "said"),
    [
        (None, True, None, MAY_KEEP),
        (None, False, None, None),
        ("disabled", True, None, None),
        ("preparing", True, None, None),
        ("enabled", False, None, KEPT.format("offsets")),
        (None, False, "own", KEPT.format("own")),
        ("disabled", False, " own ", KEPT.format("own")),
    ],
)
def test_offsets_on_another_cluster_are_told_as_far_as_that_is_known(
    transport: EmbeddedTransport,
    support: str | None,
    counted: bool,
    named: str | None,
    said: str | None,
) -> None:
    """And the copies are shown in any case."""
    config = {"connector.class": "FileStreamSource", "offsets.storage.topic": named}
    records = [encode_connector("s", config), *([encode_task_count("s", 1)] if counted else [])]
    transport.config_log.append(records, privileged=False)
    transport.offset_log.append([(b'["s",{"f":"a"}]', b'{"n":1}')])
    worker = {} if support is None else {"exactly.once.source.support": support}
    look = looked(transport, 0.0, ONE, worker=worker, elsewhere=lambda _config: "c:1")
    assert [dict(one.offset or {}) for one in look.source_offsets["s"]] == [{"n": 1}]
    assert [each.startswith(said or "?") for each in look.problems] == [True] * (said is not None)


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
    """In this way two clusters in one group are found, each of which is alone in its turns."""
    look = looked(transport, PATIENCE_S, *groups)
    assert look.passing == passing
    said = [each for each in describe(look)["findings"] if "compare its config.storage" in each]
    assert len(said) == len(passing)


def test_who_looks_again_and_again_asks_once_each_time(transport: EmbeddedTransport) -> None:
    assert looked(transport, 0.0, ROUND).passing == ()
