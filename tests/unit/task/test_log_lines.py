"""Lines that a task's process prints become log records of the worker. A line that must go over a
lifeline waits in a bounded queue, and does not hold up the task."""

import contextlib
import logging
from collections.abc import Iterator

import pytest

from headgate_runtime.tasks.log_lines import (
    KEPT_MAX,
    MARK,
    TEXT_MAX,
    LineFormatter,
    Outbox,
    logging_to,
    relog_line,
)
from headgate_runtime.tasks.protocol import Logged
from headgate_runtime.worker.loggers import Loggers

TASK = "headgate.task"


def line(level: int, name: str, text: str) -> str:
    return LineFormatter().format(logging.LogRecord(name, level, "f.py", 1, text, None, None))


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def shown(log: pytest.LogCaptureFixture) -> list[tuple[str, int, str]]:
    return [each for each in log.record_tuples if each[0] != "headgate_runtime.worker.loggers"]


@pytest.mark.parametrize("text", ["c-0: no file", "no file"])
def test_the_tasks_name_is_there_once(log: pytest.LogCaptureFixture, text: str) -> None:
    relog_line("c-0", line(logging.WARNING, TASK, text))
    assert shown(log) == [(TASK, logging.WARNING, "c-0: no file")]


def test_a_record_is_one_line_whatever_is_in_it(log: pytest.LogCaptureFixture) -> None:
    text = f"one\ntwo\r\n%s {MARK} \udcff"
    told = line(logging.ERROR, "acme", text)
    assert len(told.encode().splitlines()) == 1
    relog_line("c-0", told)
    assert shown(log) == [("acme", logging.ERROR, f"c-0: one\ntwo\r\n%s {MARK} \\udcff")]


def test_a_record_behind_a_print_without_an_end(log: pytest.LogCaptureFixture) -> None:
    relog_line("c-0", "50 % done" + line(logging.ERROR, "acme", "c-0: oh"))
    assert shown(log) == [
        (TASK, logging.INFO, "c-0: 50 % done"),
        ("acme", logging.ERROR, "c-0: oh"),
    ]


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "%3|1732286000.1|FAIL|rdkafka#producer-1| refused",
        "WARNING acme: as a task might print it",
        MARK,
        f"{MARK}no JSON",
        f'{MARK}{{"type":"Logged","level":"high"}}',
        f"{MARK}[]",
    ],
)
def test_what_is_no_record_of_ours(log: pytest.LogCaptureFixture, printed: str) -> None:
    relog_line("c-0", printed)
    assert shown(log) == [(TASK, logging.INFO, f"c-0: {printed}")]


def test_levels_that_operators_set(log: pytest.LogCaptureFixture) -> None:
    known = logging.getLogger(TASK).level
    try:
        Loggers().set_level(TASK, "ERROR")
        for level in (logging.INFO, logging.WARNING, logging.ERROR):
            relog_line("c-0", line(level, TASK, "c-0: it"))
        relog_line("c-0", "printed")
    finally:
        logging.getLogger(TASK).setLevel(known)
    assert shown(log) == [(TASK, logging.ERROR, "c-0: it")]


@contextlib.contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """A root logger as in a process in which nobody has configured logging."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    try:
        yield root
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def taken(outbox: Outbox) -> list[Logged]:
    return list(iter(outbox.next, None))


def test_all_that_is_logged_waits_and_warnings_are_told_here_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outbox, logger = Outbox(), logging.getLogger("acme")
    with bare_root() as root:
        with logging_to(outbox):
            logger.debug("fine")
            logger.info("as %s", "asked")
            logger.warning("not as asked")
        logger.info("later")
        assert (root.handlers, root.level) == ([], logging.WARNING)
        with logging_to(None):
            assert (root.handlers, root.level) == ([], logging.WARNING)
    assert taken(outbox) == [
        Logged(logging.INFO, "acme", "as asked"),
        Logged(logging.WARNING, "acme", "not as asked"),
    ]
    assert capsys.readouterr().err == "not as asked\n"


def test_what_comes_too_fast_is_counted(log: pytest.LogCaptureFixture) -> None:
    outbox = Outbox()
    for _ in range(KEPT_MAX + 7):
        outbox.handle(logging.LogRecord("acme", logging.INFO, "", 1, "x" * 100_000, None, None))
    found = taken(outbox)
    assert found[:-1] == [Logged(logging.INFO, "acme", "x" * TEXT_MAX)] * KEPT_MAX
    assert found[-1].level == logging.WARNING
    assert found[-1].text.startswith("7 more log records ")
    assert taken(outbox) == []
