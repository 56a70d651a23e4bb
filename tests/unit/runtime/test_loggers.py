"""Levels of loggers are shown and set with the names and words of Connect's /admin/loggers."""

import logging
from collections.abc import Iterator

import pytest

from headgate_runtime.worker.loggers import TRACE, Loggers

TREE = ("lg", "lg.a", "lg.a.b", "lga")


@pytest.fixture(autouse=True)
def tree() -> Iterator[None]:
    """All levels are as they were: setting the root's sets those of all loggers there are."""
    for name in TREE:
        logging.getLogger(name).setLevel(logging.NOTSET)
    before = {logger: logger.level for logger in _loggers()}
    yield
    for logger in _loggers():
        logger.setLevel(before.get(logger, logging.NOTSET))


def _loggers() -> list[logging.Logger]:
    return [logging.getLogger(), *map(logging.getLogger, list(logging.root.manager.loggerDict))]


def test_a_level_is_for_the_logger_and_those_below() -> None:
    loggers = Loggers()
    logging.getLogger("lg.a.b").setLevel(logging.ERROR)
    assert loggers.set_level("lg.a", "debug") == ["lg.a", "lg.a.b"]
    assert logging.getLogger("lg.a.b").isEnabledFor(logging.DEBUG)
    assert logging.getLogger("lga").level == logging.NOTSET
    shown = loggers.levels()
    assert {name for name in shown if name.startswith("lg")} == {"lg.a", "lg.a.b"}
    assert shown["lg.a"]["level"] == "DEBUG"
    assert shown["lg.a"]["last_modified"] > 1_700_000_000_000
    assert "root" in shown


def test_a_level_in_force_is_inherited() -> None:
    loggers = Loggers()
    loggers.set_level("lg", "TRACE")
    assert (loggers.level("lg.a") or {})["level"] == "TRACE"
    assert logging.getLogger("lg.a").getEffectiveLevel() == TRACE
    assert loggers.level("lg.never.seen") is None


def test_the_root_is_above_all() -> None:
    loggers = Loggers()
    assert set(TREE) < set(loggers.set_level("root", "ERROR"))
    assert logging.getLogger().level == logging.ERROR
    assert (loggers.level("root") or {})["level"] == "ERROR"


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (5, "TRACE"),
        (10, "DEBUG"),
        (25, "INFO"),
        (30, "WARN"),
        (50, "FATAL"),
        (100, "OFF"),
        (1, "TRACE"),
    ],
)
def test_words(number: int, word: str) -> None:
    logging.getLogger("lg").setLevel(number)
    assert (Loggers().level("lg") or {})["level"] == word


def test_unknown_levels_change_nothing() -> None:
    loggers = Loggers()
    assert not loggers.is_level("bogus")
    assert loggers.is_level("warn")
    assert loggers.set_level("lg", "bogus") == []
    assert logging.getLogger("lg").level == logging.NOTSET
