"""Rows of connectors by pages are the same, whatever is cached and however they are asked for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.herder.calls import ShowConnectors
from headgate.herder.rows import KEPT_MS, KeptRows, rows
from headgate.herder.settings import HerderSettings
from headgate.ids import State
from headgate.topics.config_records import decode, encode_connector
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate.topics.status import (
    Status,
    StatusView,
    decode_status,
    encode_connector_status,
    fold_statuses,
)

SETTINGS = HerderSettings(worker_id="w", url="w")
NAMES = st.text(st.sampled_from("ab-é\U0001f30a"), min_size=1, max_size=4)
STATES = st.sampled_from([State.RUNNING, State.FAILED])


def world(found: dict[str, State | None]) -> tuple[ConfigState, StatusView]:
    configs = [encode_connector(name, {"connector.class": "Source"}) for name in found]
    events = [decode(n, key, value) for n, (key, value) in enumerate(configs)]
    statuses = [
        encode_connector_status(name, Status(state, "w", 1))
        for name, state in found.items()
        if state
    ]
    read = [decode_status(key.encode(), value) for key, value in statuses]
    return fold(ConfigState(), events), fold_statuses(StatusView(), read)


def names_of(answer: dict[str, Any]) -> list[str]:
    return [row["name"] for row in answer["rows"]]


@given(
    st.dictionaries(NAMES, st.none() | STATES, max_size=8),
    st.sampled_from(["", "a", "b", "é", "\U0001f30a", "ab"]),
    st.just("") | NAMES,
    st.none() | st.integers(0, 4),
    st.sets(STATES),
    st.lists(NAMES, max_size=3),
)
def test_a_page_has_what_was_asked_for(
    found: dict[str, State | None],
    prefix: str,
    after: str,
    limit: int | None,
    states: set[State],
    names: list[str],
) -> None:
    state, statuses = world(found)
    call = ShowConnectors(tuple(names), prefix, tuple(states), after, limit)
    wanted = [
        name
        for name in sorted(found)
        if (not names or name in names)
        and name.startswith(prefix)
        and (not after or name > after)
        and (not states or found[name] in states)
    ]
    kept = KeptRows(SETTINGS)
    for _ in range(2):
        answer = rows(state, statuses, call, SETTINGS, kept)
        assert names_of(answer) == (wanted if limit is None else wanted[:limit])
        assert answer["more"] is (limit is not None and limit < len(wanted))
        assert answer == rows(state, statuses, call, SETTINGS)


@given(st.dictionaries(NAMES, st.none() | STATES, max_size=8), st.integers(1, 3))
def test_pages_one_after_the_other_are_the_whole(
    found: dict[str, State | None], limit: int
) -> None:
    state, statuses = world(found)
    kept, seen, after, more = KeptRows(SETTINGS), list[str](), "", True
    while more:
        page = rows(state, statuses, ShowConnectors(after=after, limit=limit), SETTINGS, kept)
        seen += names_of(page)
        after, more = seen[-1] if seen else "", page["more"]
    assert seen == sorted(found)


def test_rows_are_kept_until_they_change_or_nobody_asks_for_long() -> None:
    state, statuses = world({"a": State.RUNNING, "b": None})
    kept = KeptRows(SETTINGS)
    kept.asked(0)
    a, b = (kept.row(state, statuses, name) for name in "ab")
    kept.forget(["b", "unknown"])
    kept.expire(KEPT_MS)
    assert kept.row(state, statuses, "a") is a
    assert kept.row(state, statuses, "b") is not b
    kept.expire(KEPT_MS + 1)
    assert kept.row(state, statuses, "a") is not a
    assert kept.row(state, statuses, "a", ("tasks",)) is not kept.row(
        state, statuses, "a", ("tasks",)
    ), "what is large is not kept"


def test_so_many_rows_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row takes more than a kilobyte, and there is no limit to connectors."""
    monkeypatch.setattr("headgate.herder.rows.KEPT_MAX", 2)
    state, statuses = world({"a": State.RUNNING, "b": None, "c": None})
    kept = KeptRows(SETTINGS)
    first = {name: kept.row(state, statuses, name) for name in "abc"}
    again = {name: kept.row(state, statuses, name) for name in "abc"}
    assert first == again
    assert [name for name in "abc" if first[name] is again[name]] == ["a", "b"]
    kept.forget(["a"])
    assert kept.row(state, statuses, "c") is kept.row(state, statuses, "c"), "there is room again"
