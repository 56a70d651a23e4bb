"""Configs of connectors that are made to cost much: each is answered, at a cost in proportion to
its size."""

import json
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack

import pytest

from headgate.connector.framework import TASKS_MAX
from headgate.connector.topic_creation import topic_keys
from headgate.connector.validators import ALIASES_MAX
from headgate.herder.tasks_given import tasks_max
from headgate.java import pattern
from headgate.java.pattern import compile_java
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.config.transformer import NO_PROVIDERS
from headgate_runtime.plugins import expressions
from headgate_runtime.plugins.expressions import is_quick, matches_in_time
from headgate_runtime.plugins.validation import config_infos

SETTINGS = WorkerSettings.parse({"headgate.task.runner": "process"})
SINK = {"connector.class": "FileStreamSink", "name": "n", "file": "f", "topics": "t"}
SOURCE = {"connector.class": "FileStreamSource", "name": "n", "file": "f", "topic": "t"}
PATTERN = {"topics": "", "topics.regex": "(a+)+b", "errors.deadletterqueue.topic.name": "a" * 60}
MIB = 1_048_576
ENDLESS = ("(a+)+b", "a" * 60)


def errors(config: Mapping[str, str | None]) -> list[str]:
    return list(config_infos(config, SETTINGS, NO_PROVIDERS).errors)


def aliases(letter: str, count: int) -> str:
    return ",".join(f"{letter}{n}" for n in range(count))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({**SINK, "transforms": aliases("t", 110_000)}, "'transforms' has 110000 aliases"),
        ({**SINK, "predicates": aliases("p", 110_000)}, "'predicates' has 110000 aliases"),
        ({**SOURCE, "topic.creation.groups": aliases("g", 9_000)}, "has 9000 aliases; expected at"),
        ({**SINK, "tasks.max": "9" * 900_000}, "Not a number of type INT"),
        ({**SINK, "topics": "", "topics.regex": "(a|b)*" * 100_000}, "it has 600000 characters"),
        ({**SINK, "topics": "", "topics.regex": "a{" + "9" * 9_000 + "}"}, "repetition range"),
        (
            {
                **SINK,
                "transforms": "r",
                "transforms.r.type": "RegexRouter",
                "transforms.r.regex": "a" * 70_000,
                "transforms.r.replacement": "a",
            },
            "it has 70000 characters",
        ),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_is_out_of_proportion_is_refused(config: Mapping[str, str], text: str) -> None:
    begun = time.thread_time()
    told = errors(config)
    assert time.thread_time() - begun < 2
    assert any(text in each for each in told), [each[:200] for each in told]


def test_leading_zeros_are_no_digits() -> None:
    assert not errors({**SINK, "tasks.max": "+" + "0" * 10_000 + "7"})


def test_predicates_that_do_not_exist_are_told_in_few_words() -> None:
    """The list of all of them, once for each transform, was a gigabyte."""
    config = {
        **SINK,
        "transforms": aliases("t", 1_000),
        "predicates": aliases("p", 1_000),
        **{f"transforms.t{n}.predicate": "nope" for n in range(1_000)},
    }
    infos = config_infos(config, SETTINGS, NO_PROVIDERS)
    assert any("no such alias in predicates (p0, p1, " in each for each in infos.errors)
    assert any("p19 and 980 more)" in each for each in infos.errors)
    assert len(json.dumps(infos.plain())) < 8 * MIB


def test_many_transforms_cost_in_proportion_to_their_number() -> None:
    def cost(count: int) -> float:
        kinds = {f"transforms.t{n}.type": "RegexRouter" for n in range(count)}
        config = {**SINK, "transforms": aliases("t", count), **kinds}
        begun = time.thread_time()
        config_infos(config, SETTINGS, NO_PROVIDERS)
        return time.thread_time() - begun

    cost(10)
    assert min(cost(1_000) for _ in range(3)) < 20 * min(cost(100) for _ in range(3))


# -- expressions --


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("orders-.*", "orders-1", True),
        ("orders-.*", "payments", False),
        ("(a|b)+(c|d)+", "abdc", True),
        ("(a|b)+(c|d)+", "abe", False),
        ("[a-z&&[^x]]*", "x", False),
    ],
)
def test_an_expression_is_tried(pattern: str, text: str, found: bool) -> None:
    assert matches_in_time(pattern, text) is found


@pytest.mark.parametrize(
    "slow", ["(a+)+b", "(a|a)*b", "(a?){30}b", "a*a*a*a*b", "(a|a)(a|a)(a|a)(a|a)", "(x+x+)+y"]
)
def test_what_may_take_long_is_known(slow: str) -> None:
    assert not is_quick(slow)
    assert is_quick("orders-.*") and is_quick("^(?!dlq-).*$") and is_quick("(a|b)-.*")


def test_an_endless_expression_stops_nobody_else() -> None:
    """`re` does not let other threads run until it has an answer: the worker stood still."""
    done, turns = threading.Event(), 0
    told: list[bool | None] = []

    def ask() -> None:
        told.append(matches_in_time(*ENDLESS))
        done.set()

    threading.Thread(target=ask, daemon=True).start()
    while not done.wait(0.01):
        turns += 1
        assert turns < 3_000
    assert told == [None]
    assert turns > 10


def test_it_is_given_up_on_a_machine_that_has_no_time_either() -> None:
    assert matches_in_time(*ENDLESS, seconds=0.05) is None


def test_a_hundred_of_them_have_two_processes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred processes held both processors, and none had an answer."""
    at_once, highest, lock, told = 0, 0, threading.Lock(), list[bool | None]()

    def tried(_pattern: str, _text: str, _seconds: float) -> bool | None:
        nonlocal at_once, highest
        with lock:
            at_once += 1
            highest = max(highest, at_once)
        time.sleep(0.002)
        with lock:
            at_once -= 1
        return True

    monkeypatch.setattr(expressions, "_tried", tried)
    asking = [
        threading.Thread(target=lambda: told.append(matches_in_time(*ENDLESS))) for _ in range(100)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert told == [True] * 100
    assert highest == expressions.AT_ONCE == 2


def test_it_waits_for_its_turn_no_longer_than_for_its_answer() -> None:
    with ExitStack() as held:
        for _ in range(expressions.AT_ONCE):
            held.enter_context(expressions._turns)
        assert matches_in_time(*ENDLESS, seconds=0.05) is None


@pytest.mark.exhaustive
def test_a_validation_with_an_endless_expression_says_so() -> None:
    [text] = errors({**SINK, **PATTERN})
    assert "it takes too long to tell whether it matches the DLQ topic" in text


def test_long_expressions_are_not_kept_compiled() -> None:
    """Hundreds of them would take gigabytes."""
    before = pattern._kept.cache_info().currsize
    compile_java("x" * (pattern._KEPT_MAX + 1))
    assert pattern._kept.cache_info().currsize == before
    compile_java(f"short and never seen {before}")
    assert pattern._kept.cache_info().currsize == before + 1


def test_tasks_max_of_thousands_of_digits_is_the_most() -> None:
    assert tasks_max({"tasks.max": "9" * 5_000}) == TASKS_MAX
    assert tasks_max({"tasks.max": "0" * 5_000 + "7"}) == 7


def test_groups_that_are_refused_name_no_keys() -> None:
    groups = {"topic.creation.groups": aliases("g", ALIASES_MAX + 1)}
    few = {"topic.creation.groups": aliases("g", ALIASES_MAX)}
    assert len(topic_keys(groups)) < 10 < ALIASES_MAX < len(topic_keys(few))
