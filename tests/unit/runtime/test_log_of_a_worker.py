"""A worker's log has statuses in words, the name of the connector or task in each line, and JSON on
request."""

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest

from headgate.connector.restart_policy import RestartPolicy
from headgate.ids import State, TaskId
from headgate.topics.status import (
    Status,
    TopicActivity,
    encode_connector_status,
    encode_task_status,
    encode_topic_activity,
)
from headgate_runtime.tasks.log_lines import relog
from headgate_runtime.tasks.protocol import Logged
from headgate_runtime.up.processes import warnings_of
from headgate_runtime.worker.log_format import (
    JsonFormatter,
    TextFormatter,
    subject,
    warning_of,
    work_on,
)
from headgate_runtime.worker.status_log import log_status
from headgate_runtime.worker.traces import first_words

TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1\nOSError: the disk is full\n'


class Written:
    """The output of a log with one of our formats."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self._out = io.StringIO()
        self.handler = logging.StreamHandler(self._out)
        self.handler.setFormatter(formatter)

    @property
    def text(self) -> str:
        return self._out.getvalue()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


@pytest.fixture(params=[TextFormatter, JsonFormatter])
def written(request: pytest.FixtureRequest) -> Iterator[Written]:
    made = Written(request.param())
    root = logging.getLogger()
    level = root.level
    root.addHandler(made.handler)
    root.setLevel(logging.INFO)
    yield made
    root.removeHandler(made.handler)
    root.setLevel(level)


@pytest.fixture
def text(written: Written) -> Written:
    if not isinstance(written.handler.formatter, TextFormatter):
        written.handler.setFormatter(TextFormatter())
    return written


@pytest.mark.parametrize("state", list(State))
def test_a_status_is_told_in_words_and_only_failures_are_errors(
    text: Written, state: State
) -> None:
    log_status(*encode_task_status(TaskId("c", 0), Status(state, "w", 7)))
    (line,) = text.lines
    assert "{" not in line
    if state is State.FAILED:
        assert line.endswith("ERROR headgate_runtime.worker.status: task c-0 FAILED")
    else:
        assert line.endswith(f"task c-0 is {state} (generation 7)")
        assert " INFO " in line


def test_a_failure_is_one_line_and_its_trace_follows(text: Written) -> None:
    log_status(*encode_connector_status("c", Status(State.FAILED, "w", 7, TRACE)))
    assert text.lines[0].endswith("connector c FAILED: OSError: the disk is full")
    assert text.text.endswith(TRACE + "\n")


def test_a_restart_has_its_reason(text: Written) -> None:
    why = "lost: its process is gone; started anew, attempt 1"
    log_status(*encode_task_status(TaskId("c", 0), Status(State.RESTARTING, "w", 7, why)))
    assert text.lines[0].endswith(f"task c-0 is RESTARTING (generation 7): {why}")


def test_a_failure_in_json_is_one_object(written: Written) -> None:
    written.handler.setFormatter(JsonFormatter())
    log_status(*encode_task_status(TaskId("c", 3), Status(State.FAILED, "w", 7, TRACE)))
    found = json.loads(written.text)
    assert found.pop("timestamp").endswith("Z")
    assert found == {
        "level": "ERROR",
        "logger": "headgate_runtime.worker.status",
        "message": "task c-3 FAILED: OSError: the disk is full",
        "connector": "c",
        "task": 3,
        "trace": TRACE,
    }


def test_other_records_of_the_status_topic(text: Written) -> None:
    log_status(*encode_topic_activity(TopicActivity("t", "c", 0, 1)))
    log_status("status-task-c-0", None)
    log_status("status-connector-c", None)
    log_status("status-topic-t:connector-c", None)
    assert [line.partition("status: ")[2] for line in text.lines] == [
        "connector c uses topic t",
        "task c-0: its status is deleted",
        "connector c: its status is deleted",
        "connector c: the record of topic t is deleted",
    ]


def test_the_terminal_is_not_told_of_failures_from_the_log(written: Written) -> None:
    """`headgate up` tells of them itself, once; of all else that is a warning it tells."""
    log_status(*encode_task_status(TaskId("c", 0), Status(State.FAILED, "w", 7, TRACE)))
    logging.getLogger("headgate.task").warning("c-0: skipped one: f.csv")
    logging.getLogger("headgate.task").info("c-0: fine")
    assert warnings_of(written.lines) == ["c-0: skipped one: f.csv"]


@pytest.mark.parametrize(
    "line", ["", "{", "{}", "[1]", "Traceback (most", '{"level": "ERROR"}', "a b ERROR c", "1 2 3"]
)
def test_lines_that_are_no_warnings(line: str) -> None:
    assert warning_of(line) is None


def test_a_line_has_the_name_of_what_its_thread_works_on(text: Written) -> None:
    def work() -> None:
        work_on(TaskId("lake", 2))
        logging.getLogger("mine").info("written")
        logging.getLogger("mine").info("task lake-2: said already")
        work_on("lake")
        logging.getLogger("mine").info("asked")
        logging.getLogger("mine").info("about another", extra=subject(TaskId("b", 0)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    logging.getLogger("mine").info("not about any")
    assert [line.partition("mine: ")[2] for line in text.lines] == [
        "lake-2: written",
        "task lake-2: said already",
        "lake: asked",
        "b-0: about another",
        "not about any",
    ]


def test_a_line_of_a_tasks_process_is_about_that_task(written: Written) -> None:
    written.handler.setFormatter(JsonFormatter())
    relog("lake-2", Logged(logging.INFO, "mine", "written"))
    found = json.loads(written.text)
    assert (found["connector"], found["task"], found["message"]) == ("lake", 2, "lake-2: written")


def test_an_exception_in_json_is_in_its_object(written: Written) -> None:
    written.handler.setFormatter(JsonFormatter())
    try:
        raise ValueError("bad")
    except ValueError:
        logging.getLogger("mine").exception("it broke")
    found = json.loads(written.text)
    assert found["message"] == "it broke"
    assert found["trace"].endswith("ValueError: bad")


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        (TRACE + "\n\nThe above exception was the direct cause...\n\n" + TRACE, "the disk is full"),
        (
            "Traceback (most recent call last):\n  File x\nValueError: bad\nsecond\n  third",
            "ValueError: bad",
        ),
        (RestartPolicy(5).announced(TRACE, 0, 2_000), "full (it is restarted in 2 s; restarts"),
        (
            RestartPolicy(5).announced("in cannot be listed; mend it", 0, 2_000),
            "in cannot be listed; mend it (it is restarted in 2 s; restarts left: 5)",
        ),
        (
            RestartPolicy(5).announced("java.io.IOException: full\n\tat y", 5, None),
            "java.io.IOException: full (it stays FAILED: headgate.restart.",
        ),
        (RestartPolicy(5).announced(TRACE, 5, None), "full (it stays FAILED: headgate.restart."),
    ],
)
def test_the_reason_in_a_trace(trace: str, words: str) -> None:
    assert words in first_words(trace)
    assert "\n" not in first_words(trace)


def test_a_note_before_a_trace_that_has_its_reason_is_the_reason() -> None:
    note = "Connector c gave no task configs: OSError: the disk is full"
    assert first_words(f"{note}\n{TRACE}") == note
