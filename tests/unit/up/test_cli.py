"""The command line: exit codes, and words instead of tracebacks."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.kafka.worker_file import WORKER_FILE
from typer.main import get_command
from typer.testing import CliRunner

from headgate_runtime.command.parser import app

RUN = CliRunner()


@pytest.mark.parametrize("command", ["up", "apply"])
def test_the_pipeline_file_is_pipeline_toml_unless_another_is_given(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = RUN.invoke(app, [command])
    assert done.exit_code == 2
    assert "pipeline.toml: no such file; headgate init makes one to begin from" in done.stderr
    (tmp_path / "pipeline.toml").write_text("[cluster]\nworker = 1\n")
    assert "[cluster] worker: unknown key" in RUN.invoke(app, [command]).stderr


def test_version() -> None:
    done = RUN.invoke(app, ["--version"])
    assert (done.exit_code, done.stdout.split()[0]) == (0, "headgate")


def test_plugins_lists_what_is_installed() -> None:
    done = RUN.invoke(app, ["plugins"])
    assert done.exit_code == 0
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "source" in lines["DirectorySource"]
    assert "sink, runner spark only" in lines["SparkFileSink"]


def test_plugins_as_json_says_what_each_class_is() -> None:
    rows = {row["name"]: row for row in json.loads(RUN.invoke(app, ["plugins", "--json"]).stdout)}
    assert rows["SparkFileSink"]["type"] == "sink"
    assert rows["SparkFileSink"]["runner"] == "spark"


@pytest.mark.parametrize(
    "name", ["DirectorySource", "FileStreamSink", "SparkFileSink", "RegexRouter", "JsonConverter"]
)
def test_plugins_of_a_name_shows_every_option(name: str) -> None:
    shown = RUN.invoke(app, ["plugins", name])
    assert shown.exit_code == 0
    described = json.loads(RUN.invoke(app, ["plugins", name, "--json"]).stdout)
    rows = [line.split() for line in shown.stdout.splitlines()]
    options = described["options"] + described["options_of_every_connector"]
    assert options
    for option in options:
        (row,) = [row for row in rows if row[:2] == [option["name"], option["type"].lower()]]
        assert row[-1] == option["importance"].lower()
        assert option["documentation"]
        assert option["documentation"].split()[0] in shown.stdout


def test_plugins_of_an_unknown_name_offers_those_that_are_near() -> None:
    done = RUN.invoke(app, ["plugins", "DirectrySource"])
    assert done.exit_code == 2
    assert "Did you mean DirectorySource" in done.stderr


def test_help_has_groups() -> None:
    shown = RUN.invoke(app, ["--help"]).stdout
    order = ["Run connectors:", "up", "Look at what there is:", "doctor", "Study the protocol"]
    places = [shown.index(f"\n{'' if each[0].isupper() else '  '}{each}") for each in order]
    assert places == sorted(places)


def commands_of(group: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    for name, command in getattr(group, "commands", {}).items():
        yield (*path, name)
        yield from commands_of(command, *path, name)


COMMANDS = [" ".join(path) for path in commands_of(get_command(app))]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(command: str) -> None:
    page = RUN.invoke(app, [*command.split(), "--help"]).stdout
    assert f"  headgate {command}" in page.partition("Example")[2]


def test_commands_within_groups_are_looked_at() -> None:
    assert {"up", "connectors", "connectors wait", "offsets reset"} <= set(COMMANDS)


def test_a_worker_without_pyspark_says_so_before_it_asks_brokers(tmp_path: Path) -> None:
    """Its runner is spark where the file says nothing of it."""
    (tmp_path / "w.properties").write_text(WORKER_FILE + "listeners=http://127.0.0.1:0\n")
    hidden = "import sys; sys.modules['pyspark'] = None; "
    code = f"{hidden}from headgate_runtime.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "worker", "w.properties"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert done.stderr.endswith(
        'headgate: w.properties: this needs headgate[spark]: pip install "headgate[spark]" '
        "(headgate.task.runner is spark; process needs nothing more)\n"
    )


@pytest.mark.parametrize("arguments", [["worker", "x"], ["worker", "--", "x"], ["doctor", "x"]])
def test_a_missing_package_ends_with_the_extra_that_has_it(arguments: list[str]) -> None:
    hidden = (
        "import sys; sys.modules['javaproperties'] = None; "
        "from headgate_runtime.cli import main; main()"
    )
    command = [sys.executable, "-c", hidden, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    words = 'headgate: this needs headgate[kafka]: pip install "headgate[kafka]"\n'
    assert (done.returncode, done.stderr) == (2, words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["upp"], "No such command 'upp'. Did you mean 'up'"),
        (["up", "nowhere.toml"], "nothing was started, the pipeline file has 1 fault"),
        (["up", "p.toml", "--timeline", "t.gif"], "expected a name that ends with .svg or .png"),
        (["up", "p.toml", "--until-idel"], "No such option: --until-idel"),
        (["connector", "list"], "headgate connectors list is for connectors of a running cluster"),
        (["connectors", "drop", "a"], "No such command 'drop'. headgate connectors delete NAME"),
        (["connectors", "state", "a"], "No such command 'state'. headgate connectors show NAME"),
        (["offsets", "rewind", "a"], "No such command 'rewind'. headgate offsets set NAME FILE"),
        (["apply", "p.toml", "--dry-run"], "No such option: --dry-run (Possible options: --diff)"),
        (["apply", "p.toml", "--check"], "No such option: --check (Possible options: --diff)"),
        (
            ["connectors", "apply", "a.json", "--check"],
            "No such option: --check (Possible options: --dry-run)",
        ),
        (["connectors", "new"], "headgate connector new begins a project for a connector"),
        (["connectors", "pase"], "No such command 'pase'. Did you mean 'pause'"),
        (["run", "p.toml"], "No such command 'run'. headgate up runs a pipeline file"),
        (["describe", "a"], "No such command 'describe'. headgate connectors show NAME has config"),
        (["patch", "a"], "No such command 'patch'. headgate connectors patch is for connectors"),
        (["pause", "a"], "No such command 'pause'. headgate connectors pause is for connectors"),
        (["tasks", "list"], "No such command 'list'. headgate connectors show NAME lists the tas"),
        (["tasks", "restart", "orders"], "which tasks of orders?\n  next: headgate tasks restart "),
        (
            ["offsets", "set", "a", "-f", "a.json"],
            "No such option: -f; files are given without it.",
        ),
        (["up", "-f", "p.toml"], "No such option: -f; files are given without it."),
        (["connectors", "list", "-w"], "-w; headgate connectors watch prints each change."),
        (["connectors", "pause", "a", "--yes"], "--yes; nothing is asked, so it is not needed."),
        (["connectors", "list", "-n", "x"], "-n; connectors have no namespaces."),
        (["connectors", "list", "a"], "(a). headgate connectors show NAME has config, states"),
        (["connectors", "list", "--state", "RUNING"], "stopped; did you mean running?"),
        (["status", "-o", "yaml"], "'yaml', expected one of table, json"),
        (["down"], "No such command 'down'. Ctrl-C or SIGTERM ends headgate up"),
        (["version"], "No such command 'version'. headgate --version shows it"),
        (["--url", "a", "status"], "it stands after the command: headgate status --url ADDRESS"),
        (["--context", "a", "status"], "it stands after the command: headgate status --context "),
        (["connectors", "scale", "a", "4"], "headgate connectors patch NAME tasks.max=4 changes"),
        (["connectors", "patch", "a", "b", "4"], "expected KEY=VALUE\n  next: did you mean b=4? "),
        (["connectors", "patch", "a", "b"], "expected KEY=VALUE\n  next: --remove KEY removes a"),
        (["connectors", "apply"], "no file is given\n  next: give files or folders"),
        (["-o", "json", "status"], "No such option: -o; it stands after the command: headgate con"),
        (["config", "use-context", "a"], "headgate context set, use, list, show and delete are"),
        (["context", "use-context", "a"], "'use-context'. headgate context use NAME"),
        (["workers"], "No such command 'workers'. headgate status shows the workers"),
        (["connectors", "remove", "a"], "No such command 'remove'. headgate connectors delete NA"),
        (["connectors", "start", "a"], "No such command 'start'. headgate connectors resume NAME"),
        (["loggers", "get", "a"], "No such command 'get'. headgate loggers list shows the log"),
        (
            ["status", "--url", "host:8083"],
            "no address of a cluster, nor the name of a context\n  next: give http://HOST:PORT",
        ),
        (["assign"], "Missing option '--policy'"),
        (["replay", "nowhere.jsonl"], "nowhere.jsonl: No such file or directory"),
        (["worker"], "Missing argument"),
        (["worker", "--hlep"], "No such option: --hlep"),
        (["worker", "a.properties", "b.properties"], "unexpected extra argument"),
        (["worker", "--", "nowhere"], "nowhere: there is no such file"),
        (["standalone"], "Missing argument"),
    ],
)
def test_wrong_usage_is_2(arguments: list[str], words: str) -> None:
    done = RUN.invoke(app, arguments)
    assert done.exit_code == 2
    assert words in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words", "lookalike"),
    [
        (["logs"], "'logs'. headgate up writes the logs of its workers to logs/", "loggers"),
        (["connectors", "status", "a"], "'status'. headgate connectors show NAME", "restart"),
        (["offsets", "get", "a"], "'get'. headgate offsets show NAME shows them", "'set'"),
        (["offsets", "see", "a"], "'see'. headgate offsets show NAME shows them", "'set'"),
    ],
)
def test_who_asks_to_see_something_is_not_led_to_what_changes_it(
    arguments: list[str], words: str, lookalike: str
) -> None:
    done = RUN.invoke(app, arguments)
    assert done.exit_code == 2
    assert words in done.stderr and lookalike not in done.stderr


@pytest.mark.parametrize("command", ["up", "apply"])
@pytest.mark.parametrize("option", ["--dry-run", "--prun", "--prune-all"])
def test_an_option_that_deletes_is_never_offered(command: str, option: str) -> None:
    done = RUN.invoke(app, [command, "p.toml", option])
    assert done.exit_code == 2
    assert f"No such option: {option}" in done.stderr
    assert "--prune" not in done.stderr.replace(option, "")


@pytest.mark.parametrize(
    ("arguments", "offered"),
    [
        (["offsets", "rest", "a"], ""),
        (["offsets", "resume", "a"], ""),
        (["offsets", "sets", "a"], " Did you mean 'set'?"),
        (["connectors", "select", "a"], ""),
        (["connectors", "relete", "a"], " Did you mean 'create'?"),
    ],
)
def test_a_command_that_deletes_is_never_offered(arguments: list[str], offered: str) -> None:
    done = RUN.invoke(app, arguments)
    assert done.exit_code == 2
    assert f"No such command '{arguments[1]}'.{offered}\n" in done.stderr


def test_all_faults_of_a_pipeline_file(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('[cluster]\nworkrs = 1\n[connectors.a]\n"connector.class" = "DirectrySource"\n')
    done = RUN.invoke(app, ["up", str(file)])
    assert done.exit_code == 2
    head, *faults = done.stderr.splitlines()
    assert head == "headgate: nothing was started, the pipeline file has 2 faults:"
    assert faults[0] == f"  {file}:2: [cluster] workrs: unknown key; did you mean workers?"
    assert faults[1].startswith(f"  {file}:4: [connectors.a] connector.class: ")


def test_invalid_connector_configs_are_told_with_their_keys(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        '[cluster]\nrunner = "process"\n'
        '[connectors.lake]\n"connector.class" = "SparkFileSink"\ntopics = "t"\n'
        'format = "parqet"\npth = "out"\n"tasks.max" = "two"\n'
    )
    done = RUN.invoke(app, ["up", str(file)])
    assert done.exit_code == 2
    for words in (
        ':3: [connectors.lake] path: Missing required configuration "path"',
        ":4: [connectors.lake] connector.class: Connector SparkFileSink runs its tasks on the",
        ":6: [connectors.lake] format: Invalid value parqet",
        ":7: [connectors.lake] pth: unknown key; did you mean path?",
        ":8: [connectors.lake] tasks.max: Invalid value two",
    ):
        assert words in done.stderr
    assert not (tmp_path / "state").exists()


def test_replay_reads_a_file_or_standard_input(tmp_path: Path) -> None:
    line = json.dumps({"offset": 4, "key": "connector-a", "value": '{"properties":{"x":"1"}}'})
    (tmp_path / "log.jsonl").write_text(line + "\n")
    from_file = RUN.invoke(app, ["replay", str(tmp_path / "log.jsonl")])
    from_input = RUN.invoke(app, ["replay", "-"], input=line)
    assert from_file.exit_code == 0
    assert from_file.stdout == from_input.stdout
    assert json.loads(from_file.stdout)["connectors"]["a"]["config"] == {"x": "1"}


def test_replay_names_the_line_it_cannot_read() -> None:
    done = RUN.invoke(app, ["replay", "-"], input='{"offset": "x"}\n')
    assert done.exit_code == 1
    assert "line 1" in done.stderr


@pytest.mark.parametrize(
    ("policy", "delays_ms"),
    [("kip415", [0, 500, 400]), ("connect", [0, 500, 0]), ("eager", [0, 0, 0])],
)
def test_assign_answers_line_by_line_until_a_bad_one(policy: str, delays_ms: list[int]) -> None:
    """A worker leaves, and then the leader: Apache's next one knows of no delay."""
    config = {"connectors": {"c": 2}}
    w1, w2 = {"connectors": ["c"], "tasks": ["c-0"]}, {"tasks": ["c-1"]}
    lines = (
        {"reset": True, "max_delay_ms": 500},
        {"config": config, "members": {"w1": w1, "w2": w2, "w3": {}}},
        {"members": {"w1": w1, "w3": {}}},
        {"now_ms": 100, "members": {"w3": {}}},
        {"m": 1},
    )
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = RUN.invoke(app, ["assign", "--policy", policy], input=text)
    assert done.exit_code == 1
    first, *rounds = map(json.loads, done.stdout.splitlines())
    assert first == {"ok": True}
    assert [each["members"]["w3"]["delay"] for each in rounds] == delays_ms
    everything = {"connectors": ["c"], "tasks": ["c-0", "c-1"]}
    nothing = {"connectors": [], "tasks": []}
    given = rounds[2]["members"]["w3"]["assigned"]
    assert given == (nothing if delays_ms[2] else everything)
    assert "line 5" in done.stderr


@pytest.mark.parametrize("arguments", [["worker", "nowhere"], ["standalone", "nowhere", "c.json"]])
def test_a_worker_keeps_nothing_of_the_parser_of_command_lines(arguments: list[str]) -> None:
    shown = (
        "import atexit, sys; from headgate_runtime.cli import main; "
        "atexit.register(lambda: print(*{name.partition('.')[0] for name in sys.modules})); main()"
    )
    command = [sys.executable, "-c", shown, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "headgate: nowhere: there is no such file\n")
    loaded = set(done.stdout.split())
    assert "headgate_kafka" in loaded
    assert not loaded & {"typer", "click", "pydantic"}


@pytest.mark.parametrize("module", ["worker", "standalone"])
def test_ctrl_c_while_a_worker_is_loaded_ends_it_without_a_traceback(module: str) -> None:
    interrupted = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == 'headgate_runtime.command.{module}':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from headgate_runtime.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", interrupted, module, "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
