"""The chain of transforms, its predicates, and the transforms that come with Headgate."""

from dataclasses import dataclass, fields, replace

import pytest

from headgate.connector.api import DataError, SinkRecord, SourceRecord
from headgate.connector.config import ConfigError
from headgate.connector.transforms import (
    make_transforms,
    routers,
    transform_sink,
    transform_source,
)

RECORD = SourceRecord({}, {}, "old-topic", "v", headers=(("a", 1), ("b", 2)))


def chain(**config: str) -> dict[str, str]:
    names = {key.replace("__", "."): value for key, value in config.items()}
    return {key if "transforms" in key or key.startswith("pred") else f"transforms.{key}": value
            for key, value in names.items()}  # fmt: skip


def test_no_transforms_are_an_empty_chain() -> None:
    assert make_transforms({}) == []
    assert transform_source([], RECORD) is RECORD


def test_transforms_act_in_order_and_leave_the_record_as_it_was() -> None:
    stages = make_transforms(
        chain(
            transforms="r,h,d",
            r__type="org.apache.kafka.connect.transforms.RegexRouter",
            r__regex="(.*)-(.*)",
            r__replacement=r"$2.\$$1",
            h__type="InsertHeader",
            h__header="c",
            h__value__literal="x",
            d__type="DropHeaders",
            d__headers="a,b",
        )
    )
    result = transform_source(stages, RECORD)
    assert result is not None
    assert (result.topic, result.headers) == ("topic.$old", (("c", "x"),))
    assert RECORD.topic == "old-topic"
    sunk = transform_sink(stages, SinkRecord("x", 0, 0, None, None, (), 0))
    assert sunk is not None
    assert sunk.topic == "x"  # the whole name must match


def test_what_a_transform_does_not_change_stays_field_by_field() -> None:
    given = SourceRecord(*(f"its {field.name}" for field in fields(SourceRecord)))  # type: ignore[arg-type]
    config = {"r__type": "RegexRouter", "r__regex": ".*", "r__replacement": "other"}
    [router] = make_transforms(chain(transforms="r", **config))
    assert router.apply_source(given) == replace(given, topic="other")
    sunk = SinkRecord(*(f"its {field.name}" for field in fields(SinkRecord)))  # type: ignore[arg-type]
    assert router.apply_sink(sunk) == replace(sunk, topic="other")


@pytest.mark.parametrize(
    ("predicate", "more", "dropped"),
    [
        ("TopicNameMatches", {"predicates.p.pattern": "old.*"}, True),
        ("TopicNameMatches", {"predicates.p.pattern": "old"}, False),
        ("HasHeaderKey", {"predicates.p.name": "a"}, True),
        ("HasHeaderKey", {"predicates.p.name": "z"}, False),
        ("RecordIsTombstone", {}, False),
    ],
)
@pytest.mark.parametrize("negate", [False, True])
def test_predicates(predicate: str, more: dict[str, str], dropped: bool, negate: bool) -> None:
    config = {
        "transforms": "f",
        "transforms.f.type": "Filter",
        "transforms.f.predicate": "p",
        "transforms.f.negate": str(negate).lower(),
        "predicates": "p",
        "predicates.p.type": f"org.apache.kafka.connect.transforms.predicates.{predicate}",
        **more,
    }
    stages = make_transforms(config)
    assert (transform_source(stages, RECORD) is None) == (dropped != negate)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"transforms": "a"}, 'Missing required configuration "transforms.a.type"'),
        (
            {"transforms": "a", "transforms.a.type": "Nope"},
            "Class Nope could not be found. There are org.apache.kafka.connect.transforms.Cast",
        ),
        ({"transforms": "a", "transforms.a.type": "RegexRouter"}, '"regex"'),
        (
            {"transforms": "a", "transforms.a.type": "Filter", "transforms.a.predicate": "p"},
            'Missing required configuration "predicates.p.type"',
        ),
    ],
)
def test_chains_that_cannot_be_made(config: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        make_transforms(config)


def test_a_group_that_the_expression_has_not() -> None:
    stages = make_transforms(
        chain(transforms="r", r__type="RegexRouter", r__regex=".*", r__replacement="$3")
    )
    with pytest.raises(DataError, match="RegexRouter on topic old-topic"):
        transform_source(stages, RECORD)


FULL = SourceRecord({"p": 1}, {"o": 2}, "t", "v", "k", (("a", 1),), 3, 4)


@dataclass(slots=True)
class Special(SourceRecord):
    more: str = "more"


def test_nothing_else_of_a_record_changes() -> None:
    route = chain(transforms="r", r__type="RegexRouter", r__regex=".*", r__replacement="new")
    routed = transform_source(make_transforms(route), FULL)
    assert routed == replace(FULL, topic="new")
    add = chain(transforms="h", h__type="InsertHeader", h__header="c", h__value__literal="x")
    stages = make_transforms(add)
    assert transform_source(stages, FULL) == replace(FULL, headers=(("a", 1), ("c", "x")))
    bare = replace(FULL, headers=())
    assert transform_source(stages, bare) == replace(FULL, headers=(("c", "x"),))
    special = Special({}, {}, "t", "v", more="kept")
    assert transform_source(stages, special) == replace(special, headers=(("c", "x"),))


def test_a_router_of_more_topics_than_it_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "ROUTES_MAX", 3)
    (router,) = make_transforms(
        chain(transforms="r", r__type="RegexRouter", r__regex="(t.*)", r__replacement="x-$1")
    )
    for number in (*range(10), *range(10)):
        routed = router.apply_source(replace(FULL, topic=f"t{number}"))
        assert routed is not None
        assert routed.topic == f"x-t{number}"
        assert len(router._routes) <= 3  # type: ignore[attr-defined]
