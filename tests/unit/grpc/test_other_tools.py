"""Headgate's commands can do what kcctl and kubectl can do with connectors, and a table of the docs
says how."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.grpc.worker import Served, grpc_worker
from typer.main import get_command
from typer.testing import CliRunner, Result

from headgate_grpc.v1 import connector_pb2
from headgate_runtime.command.parser import app

PAGE = Path(__file__).resolve().parents[3] / "docs/run/command-line.md"
ROW = re.compile(r"^\| `(k(?:cctl|ubectl) .*?)` \| (.*) \|$", re.MULTILINE)
SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
RUN = CliRunner()
COMMANDS = """
info; config set-context; config use-context; config get-contexts; config current-context
config remove-context; get connectors; get plugins; get offsets; get loggers; get logger
describe connector; describe plugin; apply; patch connector; patch offsets; patch logger
restart connector; restart task; pause connector; resume connector; stop connector
delete connector; delete offsets
"""
"""The commands of kcctl 1.0, without help and completions."""


def rows(tool: str) -> list[tuple[str, str]]:
    return [row for row in ROW.findall(PAGE.read_text()) if row[0].startswith(f"{tool} ")]


def ours() -> list[str]:
    """Return the commands that the tables give in place of another tool's."""
    found = [*rows("kcctl"), *rows("kubectl")]
    return [each.replace(r"\|", "|") for _, cell in found for each in re.findall("`(.*?)`", cell)]


@pytest.mark.parametrize("line", ours())
def test_what_the_tables_name_is_a_command_of_ours(line: str) -> None:
    """The command is parsed to the end, and not run."""
    program, *words = line.split("   #")[0].split()
    assert program == "headgate"
    command: click.Command = get_command(app)
    context = None
    while hasattr(command, "commands"):
        context = command.make_context(words[0], [], parent=context, resilient_parsing=True)
        assert words[0] in command.commands, line
        command, words = command.commands[words[0]], words[1:]
    command.make_context(str(command.name), shlex.split(" ".join(words)), parent=context)


def test_no_command_of_kcctl_is_left_out() -> None:
    there = [line.removeprefix("kcctl ") for line, _ in rows("kcctl")]
    missing = [
        command
        for command in re.split("[;\n]+", COMMANDS.strip())
        if not any(line.startswith(command.strip()) for line in there)
    ]
    assert not missing


def test_the_tables_are_read_as_they_are() -> None:
    assert len(rows("kcctl")) >= 20 and len(rows("kubectl")) >= 8 and len(ours()) >= 30


# -- on a worker --


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with grpc_worker(tmp_path_factory.mktemp("tools")) as served:
        for name in ("one", "two"):
            served.client.create(name, SINK, connector_pb2.TARGET_STATE_STOPPED)
            served.client.wait(name)
        served.worker.transport.record_log.create_topic("t", 1)
        yield served


@pytest.fixture(params=["grpc", "rest"])
def address(worker: Served, request: pytest.FixtureRequest) -> str:
    return worker.address if request.param == "grpc" else worker.rest.url


def headgate(address: str, *arguments: str, given: str | None = None) -> Result:
    return RUN.invoke(app, [*arguments, "--url", address], input=given)


def ok(address: str, *arguments: str, given: str | None = None) -> str:
    done = headgate(address, *arguments, given=given)
    others = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert (done.exit_code, others) == (0, []), done.output
    return done.stdout


def test_several_connectors_are_shown(address: str) -> None:
    shown = ok(address, "connectors", "show", "one", "two")
    assert [line for line in shown.splitlines() if line.startswith("name ")] == [
        "name    one",
        "name    two",
    ]
    assert ok(address, "connectors", "show", "-e", ".*o") == ok(
        address, "connectors", "show", "two"
    )
    several = json.loads(ok(address, "connectors", "show", "-e", ".*", "-o", "json"))
    assert [each["name"] for each in several] == ["one", "two"]
    assert json.loads(ok(address, "connectors", "show", "one", "-o", "json"))["name"] == "one"
    assert json.loads(ok(address, "connectors", "show", "-e", "one", "-o", "json"))[0]
    assert ok(address, "connectors", "wait", "one", "two") == "one: STOPPED\ntwo: STOPPED\n"


def test_configs_of_tasks_are_shown_on_demand(worker: Served, address: str) -> None:
    worker.client.create("runs", {**SINK, "some.password": "hush"})
    worker.client.wait("runs")
    assert "config of task 0" not in ok(address, "connectors", "show", "runs")
    shown = ok(address, "connectors", "show", "runs", "--tasks-config")
    assert "\nconfig of task 0\n" in shown and "hush" not in shown
    assert "task.class" in shown.partition("config of task 0")[2]
    worker.client.delete("runs")
    worker.client.wait("runs", deleted=True)


def test_several_are_patched(address: str) -> None:
    patched = ok(address, "connectors", "patch", "-e", "one|two", "tasks.max=3", "--remove", "zz")
    assert patched == "one changed\n  it had no zz\ntwo changed\n  it had no zz\n"
    for name in ("one", "two"):
        row = json.loads(ok(address, "connectors", "show", name, "-o", "json"))
        assert row["config"]["tasks.max"] == "3"
    planned = ok(address, "connectors", "patch", "-e", "one|two", "tasks.max=4", "--dry-run")
    assert planned.count("+ tasks.max = 4") == 2
    named = headgate(address, "connectors", "patch", "-e", "one|two", "name=three")
    assert named.exit_code == 2 and "keeps its name" in named.stderr
    ok(address, "connectors", "patch", "-e", ".*", "--remove", "tasks.max")


def test_a_folder_and_standard_input_are_applied(address: str, tmp_path: Path) -> None:
    (tmp_path / "three.json").write_text(json.dumps(SINK))
    (tmp_path / "notes.txt").write_text("no connector")
    apply = ("connectors", "apply")
    done = headgate(address, *apply, str(tmp_path))
    assert done.exit_code == 2 and "expected the connector's name" in done.stderr
    three = str(tmp_path / "three.json")
    assert "three would be created" in ok(address, *apply, three, "--name", "three", "--dry-run")
    assert ok(address, *apply, three, "--name", "three") == "three created\n"
    (tmp_path / "three.json").write_text(json.dumps({"name": "three", **SINK}))
    properties = "".join(f"{key}={value}\n" for key, value in SINK.items())
    (tmp_path / "four.properties").write_text(f"name=four\n{properties}")
    assert ok(address, *apply, str(tmp_path)) == "four created\nthree unchanged\n"
    given = json.dumps({"name": "four", **SINK, "tasks.max": "2"})
    assert ok(address, *apply, "-", given=given) == "four changed\n"
    given = f"name=five\n{properties}"
    assert ok(address, *apply, "-f", "-", given=given) == "five created\n"
    wrong = json.dumps({"name": "five", **SINK, "tasks.max": "x"})
    done = headgate(address, *apply, "-", "--dry-run", given=wrong)
    assert done.exit_code == 1 and "fault: tasks.max" in done.stdout
    (tmp_path / "five.json").write_text(wrong)
    done = headgate(address, *apply, str(tmp_path))
    assert done.exit_code == 1 and "five" in done.stderr + done.stdout
    assert "four changed\nthree unchanged\n" in done.stdout  # the others are applied
    ok(address, "connectors", "delete", "three", "four", "five")
    ok(address, "connectors", "wait", "three", "four", "five", "--for", "deleted")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.json", "b.json", "--name", "x"], "--name is of one connector"),
        (["a.json", "a.json"], "a is in a.json and a.json"),
        (["a.json", "--name", "b"], "the connector is named a, not b"),
        (["empty"], "empty is a folder without .json or .properties files"),
        (["none"], "none: No such file or directory"),
    ],
)
def test_files_that_cannot_be_meant(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.json").write_text('{"name": "a"}')
    for command in ("apply", "create"):
        done = RUN.invoke(app, ["connectors", command, *arguments, "--url", "http://127.0.0.1:9"])
        assert done.exit_code == 2 and words in done.stderr


def test_offsets_of_several_and_of_one_partition(address: str) -> None:
    shown = ok(address, "offsets", "show", "one", "two")
    assert shown == "one\nno offsets\n\ntwo\nno offsets\n"
    both = json.loads(ok(address, "offsets", "show", "one", "two", "-o", "json"))
    assert both == {"one": {"offsets": []}, "two": {"offsets": []}}
    again = json.loads(ok(address, "offsets", "show", "one", "one", "-o", "json"))
    assert again == {"offsets": []}
    would = ok(address, "offsets", "reset", "one", "two", "--dry-run")
    assert would == "one:\nnothing would change\ntwo:\nnothing would change\n"
    option = ("--topic", "t", "--partition", "0", "--offset", "0", "--dry-run")
    where = '{"kafka_topic": "t", "kafka_partition": 0}'
    shown = ok(address, "offsets", "set", "one", *option).splitlines()
    assert shown[1] == f'{where}  null    {{"kafka_offset": 0}}'
    option = ("--partition", where, "--offset", '{"kafka_offset": 0}', "--dry-run")
    assert ok(address, "offsets", "set", "one", *option).splitlines() == shown
    option = ("--topic", "t", "--partition", "0", "--offset", "null", "--dry-run")
    assert ok(address, "offsets", "set", "one", *option) == "nothing would change\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a file, or --partition and --offset"),
        (["--partition", "0"], "give a file, or --partition and --offset"),
        (["--offset", "0"], "give a file, or --partition and --offset"),
        (["f", "--partition", "0", "--offset", "0"], "give a file, or --partition and --offset"),
        (["f", "--topic", "t"], "--topic goes with --partition and --offset"),
        (["--partition", "{a", "--offset", "0"], "expected JSON"),
        (["--topic", "t", "--partition", "{}", "--offset", "0"], "are numbers"),
        (["--topic", "t", "--partition", "0", "--offset", '"x"'], "are numbers"),
    ],
)
def test_a_single_offset_is_given_whole(arguments: list[str], words: str) -> None:
    done = RUN.invoke(app, ["offsets", "set", "a", *arguments, "--url", "http://127.0.0.1:9"])
    assert done.exit_code == 2 and words in done.stderr


def test_the_level_of_a_logger_is_its_own_or_that_above(address: str) -> None:
    ok(address, "loggers", "set", "some.tool", "DEBUG", "--this-worker")
    assert ok(address, "loggers", "show", "some.tool") == "some.tool is DEBUG\n"
    shown = ok(address, "loggers", "show", "some.tool.deep.er")
    assert shown == "some.tool.deep.er is DEBUG, as some.tool\n"
    assert ok(address, "loggers", "show", "other").endswith(", as root\n")


def test_a_task_by_its_name(address: str) -> None:
    for name in ("one/7", "one-7"):
        done = headgate(address, "tasks", "restart", name)
        assert done.exit_code == 1 and "Unknown task" in done.stderr
    done = headgate(address, "tasks", "restart", "one", "7", "8")
    assert done.stderr.count("Unknown task") == 2


def test_plugins_by_type_and_options_by_words(address: str) -> None:
    sinks = json.loads(ok(address, "plugins", "--type", "sink", "--json"))
    assert {each["type"] for each in sinks} == {"sink"}
    both = ok(address, "plugins", "--type", "source", "--type", "predicate").splitlines()[1:]
    assert {line.split()[1] for line in both} == {"source", "predicate"}
    keys = json.loads(ok(address, "plugins", "FileStreamSource", "--search", "^FILE$", "--json"))
    assert [key["name"] for key in keys] == ["file"]
    keys = json.loads(ok(address, "plugins", "FileStreamSource", "--search", "FILE", "--json"))
    assert "file" in [key["name"] for key in keys] and "topic" not in str(keys[0]["name"])


def test_plugins_that_are_installed_here() -> None:
    found = json.loads(RUN.invoke(app, ["plugins", "--type", "predicate", "--json"]).stdout)
    assert {each["type"] for each in found} == {"predicate"}
    found = json.loads(RUN.invoke(app, ["plugins", "--type", "sink", "--json"]).stdout)
    assert {each["type"] for each in found} == {"sink"}
    shown = json.loads(
        RUN.invoke(app, ["plugins", "DirectorySource", "--search", r"csv\.H", "--json"]).stdout
    )
    assert [each["name"] for each in shown["options"]] == ["csv.header"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["FileStreamSource", "--type", "sink"], "--type is for the list"),
        (["--search", "a"], "give its NAME"),
        (["FileStreamSource", "--search", "("], "no regular expression"),
    ],
)
def test_options_of_plugins_that_do_not_go_together(arguments: list[str], words: str) -> None:
    done = RUN.invoke(app, ["plugins", *arguments])
    assert done.exit_code == 2 and words in done.stderr
