"""What a pipeline file may say, and the errors of a wrong one."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headgate.connector.converters import task_converters
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.up import pipeline as module
from headgate_runtime.up.pipeline import Pipeline, PipelineError, connect_text, load, parse

GOOD = """\
[cluster]
workers = 2
data = "state"                    # folder of the embedded log
runner = "process"
session.timeout.ms = 6000
"heartbeat.interval.ms" = "2000"

[spark]
master = "local[2]"
[spark.conf]
"spark.executor.memory" = "1g"
spark.sql.shuffle.partitions = 4

[connectors.events]
"connector.class" = "DirectorySource"
path = "in"
topic = "events"
"tasks.max" = 2
flag = true
share = 0.5
list = ["a", 1, false]
transforms = "x"
"transforms.x.type" = "T"

[connectors."the lake.1"]
"connector.class" = "FileStreamSink"
topics = "events"
"""


@pytest.fixture
def _any_connector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Accept any connector class: only the file is checked."""

    def nothing(*_: object) -> Iterator[tuple[str, str]]:
        return iter(())

    monkeypatch.setattr(module, "connector_problems", nothing)
    monkeypatch.setattr(module, "look_at", lambda *_, **__: None)
    yield


def _parse(text: str, folder: Path = Path("/somewhere")) -> Pipeline:
    return parse(text, folder / "p.toml", "p.toml")


def _refused(text: str, folder: Path = Path("/somewhere")) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        _parse(text, folder)
    return str(caught.value).splitlines()


@pytest.mark.usefixtures("_any_connector")
class TestGoodFile:
    def test_cluster(self) -> None:
        pipeline = _parse(GOOD)
        assert pipeline.workers == 2
        assert pipeline.runner == "process"
        assert pipeline.data == Path("/somewhere/state")
        assert pipeline.folder == Path("/somewhere")

    def test_worker_settings_with_the_defaults_of_up(self) -> None:
        assert _parse(GOOD).settings == {
            "group.id": "headgate",
            "exactly.once.source.support": "enabled",
            "scheduled.rebalance.max.delay.ms": "3000",
            "value.converter": "TypedConverter",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "2000",
            "headgate.task.runner": "process",
        }

    def test_spark(self) -> None:
        spark = _parse(GOOD).spark
        assert (spark.master, spark.remote) == ("local[2]", None)
        assert spark.conf == {
            "spark.executor.memory": "1g",
            "spark.sql.shuffle.partitions": "4",
        }

    def test_connectors_in_order_with_values_as_connect_has_them(self) -> None:
        connectors = _parse(GOOD).connectors
        assert list(connectors) == ["events", "the lake.1"]
        assert connectors["events"] == {
            "name": "events",
            "connector.class": "DirectorySource",
            "path": "in",  # as written: offset keys must not change when the folder moves
            "topic": "events",
            "tasks.max": "2",
            "flag": "true",
            "share": "0.5",
            "list": "a,1,false",
            "transforms": "x",
            "transforms.x.type": "T",
        }

    def test_defaults_of_an_almost_empty_file(self) -> None:
        pipeline = _parse("[connectors]")
        assert (pipeline.workers, pipeline.runner) == (1, "spark")
        assert pipeline.data == Path("/somewhere/state")
        assert pipeline.spark.master == "local[2]"

    def test_how_long_a_driver_may_be_silent(self) -> None:
        text = "[cluster]\nheadgate.spark.driver.timeout.ms = {}\n[connectors]"
        assert _parse("[connectors]").spark.driver_timeout_ms == 60_000
        assert _parse(text.format(5000)).spark.driver_timeout_ms == 5_000
        assert _parse(text.format(0)).spark.driver_timeout_ms == 0

    def test_remote_spark_starts_none_of_our_own(self) -> None:
        text = '[spark]\nremote = "sc://h:15002"\nhost = "10.0.0.5"\n[connectors]'
        spark = _parse(text).spark
        assert spark.host == "10.0.0.5"
        assert (spark.master, spark.remote) == (None, "sc://h:15002")


@pytest.mark.usefixtures("_any_connector")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[cluster]\nworkrs = 2", "p.toml:2: [cluster] workrs: unknown key; did you mean workers?"),
        (
            '[cluster]\n\nworkers = "2"',
            'p.toml:3: [cluster] workers: the text "2", expected a whole number: workers = 2',
        ),
        ("[cluster]\nworkers = 0", "p.toml:2: [cluster] workers: 0, expected 1 to 1000"),
        ("[cluster]\nworkers = true", "p.toml:2: [cluster] workers: true, expected a whole number"),
        ("[cluster]\ndata = 3", "p.toml:2: [cluster] data: 3, expected the folder"),
        (
            '[cluster]\nrunner = "sprk"',
            'p.toml:2: [cluster] runner: the text "sprk", expected one of "spark", "process", '
            '"thread"; did you mean spark?',
        ),
        (
            '[cluster]\nsession.timeout.ms = "soon"',
            "p.toml:2: [cluster] session.timeout.ms: 'soon' is not a whole number",
        ),
        (
            "[cluster]\nsession.timout.ms = 1",
            "p.toml:2: [cluster] session.timout.ms: unknown key; did you mean session.timeout.ms?",
        ),
        (
            '[cluster]\n"bootstrap.servers" = "x"',
            "p.toml:2: [cluster] bootstrap.servers: means nothing here: there is no broker",
        ),
        (
            '[cluster]\nrunner = "thread"\nheadgate.task.runner = "spark"',
            "p.toml:3: [cluster] headgate.task.runner: spark, but runner is thread",
        ),
        ("[clutser]\nworkers = 2", "p.toml:1: clutser: unknown table; did you mean cluster?"),
        ("workers = 2", "p.toml:1: workers: a key outside of every table; put it under [cluster]"),
        ("cluster = 1", "p.toml:1: [cluster]: 1, expected a table: [cluster]"),
        ('[spark]\nmastr = "x"', "p.toml:2: [spark] mastr: unknown key; did you mean master?"),
        ("[spark]\nmaster = 2", "p.toml:2: [spark] master: 2, expected a text"),
        ('[spark]\nremote = "h:1"', 'p.toml:2: [spark] remote: "h:1", expected sc://host:port'),
        (
            '[spark]\nmaster = "local"\nremote = "sc://h"',
            "p.toml:3: [spark] remote: stands beside master",
        ),
        (
            '[spark]\nspark.executor.memory = "1g"',
            "p.toml:2: [spark] spark: unknown key; Spark's own settings stand in the table",
        ),
        (
            '[spark.conf]\nexecutor.memory = "1g"',
            "p.toml:2: [spark] conf.executor.memory: settings of Spark begin with spark.: "
            "spark.executor.memory",
        ),
        ("[connectors]\nevents = 1", "p.toml:2: [connectors.events]: 1, expected a table"),
        (
            '[connectors.a]\nclass = "X"',
            'p.toml:2: [connectors.a] class: the key is "connector.class", not class',
        ),
        (
            '[connectors.a]\nx = "X"',
            "p.toml:1: [connectors.a]: no connector.class; headgate plugins lists",
        ),
        (
            '[connectors.a.b]\n"connector.class" = "X"',
            'A name with a dot is quoted: [connectors."a.b"]',
        ),
        (
            '[connectors.a]\nconnector.class = "X"\nname = "b"',
            'p.toml:3: [connectors.a] name: "b", but the table names the connector a',
        ),
        (
            '[connectors.a]\nconnector.class = "X"\n"x.y" = 1\nx.y = 2',
            "p.toml:4: [connectors.a] x.y: x.y stands in line 3 already; keep one of them",
        ),
        (
            '[connectors.a]\nconnector.class = "X"\nx = ["a,b"]',
            'p.toml:3: [connectors.a] x: "a,b" in a list holds a comma',
        ),
        (
            '[connectors.a]\nconnector.class = "X"\nx = [[1]]',
            "p.toml:3: [connectors.a] x: a list that holds a list",
        ),
        ('[connectors."a/b"]\nconnector.class = "X"', "'/' in the name of a connector"),
        ("[cluster]\nworkers = 1", "p.toml: no connectors: name at least one"),
        # -- not TOML at all --
        (
            "[connectors.a]\nx = 1\n[connectors.b]\n\n[connectors.'a']\nx = 2",
            "p.toml:5: [connectors.a]: two connectors named a, the first in line 1; rename one",
        ),
        (
            "[cluster]\nworkers = 1\nworkers = 2",
            "p.toml:3: [cluster] workers: stands twice, first in line 2; keep one of them",
        ),
        ("[cluster]\ndata = state", "p.toml:2: not valid TOML: Invalid value; texts are quoted"),
        ("[cluster]\ndata\n", "p.toml:2: not valid TOML: Expected '=' after a key"),
        ('[cluster]\ndata = "x\n', "a text ends with its quote in the same line"),
        ("[cluster\n", "p.toml:1: not valid TOML: Expected ']'"),
        ("[cluster]\nx = [1,", "p.toml: not valid TOML at its end"),
        ("[cluster]\nworkers = " + "9" * 5_000, "p.toml: not valid TOML: Exceeds the limit"),
        ("x = " + "[" * 5_000 + "]" * 5_000, "lists and tables in it are nested too deep"),
        ("x = " + "{a=" * 5_000 + "1" + "}" * 5_000, "lists and tables in it are nested too deep"),
        ("[[cluster]]\nworkers = 2", "p.toml:1: [cluster]: a list, expected a table: [cluster]"),
        ("[[connectors.a]]", "p.toml:1: [connectors.a]: a list, expected a table: [connectors.a]"),
        ('[cluster]\ndata = "~nobody-here/x"', "~nobody-here/x begins with ~, which is expanded"),
        ('[cluster]\ndata = "a\\u0000"', "cannot be looked at: embedded null byte"),
        (f'[cluster]\ndata = "/{"a" * 300}"', "File name too long"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, expected: str) -> None:
    assert any(expected in line for line in _refused(text)), _refused(text)


@pytest.mark.usefixtures("_any_connector")
def test_a_file_as_windows_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").replace("= ", "=\t").encode())
    assert load(file).connectors == _parse(GOOD).connectors


def test_the_file_of_a_worker_is_told_as_such(tmp_path: Path) -> None:
    file = tmp_path / "w.properties"
    file.write_text("group.id=g\n")
    with pytest.raises(PipelineError, match=r"w\.properties: looks like a worker's file, expected"):
        load(file)


def test_a_home_folder_of_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PipelineError, match="~nobody-here does not exist"):
        load("~nobody-here/p.toml")


@pytest.mark.usefixtures("_any_connector")
@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            '[log]\n"retention.ms" = "1h"',
            'p.toml:2: [log] retention.ms: "1h", expected a whole number from -1 to '
            "9223372036854775807",
        ),
        (
            '[log.topics."a.b"]\n"retention.byte" = 1',
            "p.toml:2: [log] topics.a.b.retention.byte: unknown key, expected one of retention.ms, "
            "retention.bytes, retention.past.sinks, max.message.bytes, retention.check.interval.ms"
            "; did you mean retention.bytes?",
        ),
        ("[log]\ntopics = 3", "p.toml:2: [log] topics: 3, expected [log.topics.<name>]"),
        ("[log.topics]\nt = 3", "p.toml:2: [log] topics.t: 3, expected a table: [log.topics.t]"),
    ],
)
def test_what_is_wrong_with_the_log_is_told_with_its_line(table: str, expected: str) -> None:
    assert _refused(f"{table}\n[connectors.x]\nconnector.class = 'X'") == [expected]


@pytest.mark.usefixtures("_any_connector")
def test_limits_of_the_log_are_those_of_the_file() -> None:
    text = '[log]\nretention.ms = 5\n[log.topics."a.b"]\nretention.past.sinks = true\n'
    log = _parse(f"{text}[connectors.x]\nconnector.class = 'X'").log
    assert (log.of("a.b").past_sinks, log.of("a.b").retention_ms) == (True, 5)
    assert not log.of("c").past_sinks


@pytest.mark.usefixtures("_any_connector")
def test_all_faults_are_told_at_once_in_the_order_of_the_file() -> None:
    text = '[cluster]\nworkrs = 1\nrunner = "x"\n[spark]\na = 1\n[connectors.b]\nx = 1'
    lines = [line.split(":")[1] for line in _refused(text)]
    assert lines == ["2", "3", "5", "6"]


def test_a_choice_in_another_case_is_told_as_it_is_written() -> None:
    text = '[connectors.a]\n"connector.class" = "DirectorySource"\ntopic = "t"\npath = "/"\n'
    (line,) = _refused(text + 'format = "JSONL"', Path("/"))
    assert line.endswith("; did you mean jsonl?")


def test_a_class_that_is_not_there_is_told_with_the_nearest_names() -> None:
    text = '[connectors.a]\npath = "x"\n"connector.class" = "DirectrySource"'
    (line,) = _refused(text, Path("/"))
    assert line.startswith("p.toml:3: [connectors.a] connector.class: ")
    assert "Did you mean DirectorySource" in line


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (1.5, "1.5"),
        ([1, "b", True], "1,b,true"),
        ([], ""),
    ],
)
def test_scalars_become_strings_of_connect(value: object, text: str) -> None:
    assert connect_text(value) == text


class TestFileItself:
    def test_missing(self, tmp_path: Path) -> None:
        (tmp_path / "pipeline.toml").write_text("")
        with pytest.raises(PipelineError, match=r"no such file; .* has pipeline.toml"):
            load(tmp_path / "pipelin.toml")

    def test_folder(self, tmp_path: Path) -> None:
        with pytest.raises(PipelineError, match="a folder; name the pipeline file in it"):
            load(tmp_path)

    def test_not_text(self, tmp_path: Path) -> None:
        (tmp_path / "p.toml").write_bytes(b"[cluster]\n\xff\xfe")
        with pytest.raises(PipelineError, match="not a text in UTF-8: byte 10 is 0xff"):
            load(tmp_path / "p.toml")

    def test_data_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "state").write_text("")
        (tmp_path / "p.toml").write_text("[connectors]")
        with pytest.raises(PipelineError, match="is a file, expected a folder"):
            load(tmp_path / "p.toml")


def test_settings_of_the_file_reach_the_validation_of_connectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Mapping[str, str]] = []

    def keep(_config: object, settings: Mapping[str, str], _folder: object) -> Iterator[object]:
        given.append(settings)
        return iter(())

    monkeypatch.setattr(module, "connector_problems", keep)
    monkeypatch.setattr(module, "look_at", lambda *_, **__: None)
    _parse(GOOD)
    assert given[0]["headgate.task.runner"] == "process"
    assert given[0]["rebalance.timeout.ms"] == "60000"  # Connect's default is filled in


def test_a_default_that_is_no_converter_is_told_where_it_stands_and_hides_nothing() -> None:
    text = """[cluster]
runner = "thread"
"value.converter" = "JsonConvertr"
[connectors.a]
"connector.class" = "FileStreamSource"
topic = "t"
file = "f"
transforms = "x"
"transforms.x.type" = "Nope"
"""
    with pytest.raises(PipelineError) as caught:
        parse(text, Path("/p.toml"), "p.toml")
    first, second = (problem.show("p.toml") for problem in caught.value.problems)
    assert first == (
        "p.toml:3: [cluster] value.converter: Class JsonConvertr could not be found. "
        "Did you mean JsonConverter?"
    )
    assert second.startswith("p.toml:9: [connectors.a] transforms.x.type: ")


CONVERTERS = """[cluster]
runner = "thread"
"value.converter" = "JsonConverter"
"value.converter.schemas.enable" = false
[connectors.a]
"connector.class" = "FileStreamSource"
topic = "t"
file = "f"
"""


def test_keys_of_the_clusters_converters_reach_its_workers() -> None:
    pipeline = parse(CONVERTERS, Path("/p.toml"))
    texts = WorkerSettings.parse(pipeline.settings).texts
    made = task_converters({}, texts)
    assert made.value.from_connect("t", {"a": 1}) == b'{"a":1}'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"value.converter.schemas.enabel" = false', "schemas.enabel: unknown key; did you mean"),
        ('"value.converter.x" = 1', "[cluster] value.converter.x: unknown key; JsonConverter has"),
        ('"key.converter.schemas.enable" = 1', "key.converter.schemas.enable: unknown key; "),
        ('"value.converter.schemas.cache.size" = "no"', "Not a number of type INT"),
        ('"valu.converter.x" = 1', "valu.converter.x: unknown key"),
    ],
)
def test_wrong_keys_of_the_clusters_converters_are_told_with_their_line(
    line: str, said: str
) -> None:
    text = CONVERTERS.replace("[connectors", f"{line}\n[connectors")
    with pytest.raises(PipelineError) as caught:
        parse(text, Path("/p.toml"), "p.toml")
    (problem,) = caught.value.problems
    assert problem.line == 5
    assert said in problem.show("p.toml")


def test_what_a_setting_of_the_cluster_refers_to_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("H_SIZE", "hunter22")
    line = '"value.converter.schemas.cache.size" = "${env:H_SIZE}"'
    with pytest.raises(PipelineError) as caught:
        parse(CONVERTERS.replace("[conn", f"{line}\n[conn"), Path("/p.toml"), "p.toml")
    assert "${env:H_SIZE}" in str(caught.value)
    assert "hunter22" not in str(caught.value)


TASKLESS = """
from headgate.connector.api import SinkTask, SourceConnector


class Taskless(SourceConnector):
    ...


class Crossed(SourceConnector):
    TASK = SinkTask
"""


@pytest.mark.parametrize(
    ("name", "said"), [("Taskless", "Taskless.TASK is None"), ("Crossed", "SinkTask'>; a source")]
)
def test_a_connector_without_a_task_class_of_its_kind_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    (tmp_path / "taskless.py").write_text(TASKLESS)
    monkeypatch.syspath_prepend(tmp_path)
    text = f'[cluster]\nrunner = "thread"\n[connectors.a]\n"connector.class" = "taskless:{name}"\n'
    with pytest.raises(PipelineError) as caught:
        parse(text, tmp_path / "p.toml", "p.toml")
    (problem,) = caught.value.problems
    assert problem.line == 4
    assert said in problem.text
