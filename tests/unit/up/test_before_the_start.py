"""A pipeline is checked before anything starts: paths, references, topics, and `--check`."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate_embedded import open_transport
from headgate_embedded.transport import transport_settings
from headgate_runtime.command.parser import app
from headgate_runtime.up.forecast import unlike, unwritten_topics
from headgate_runtime.up.pipeline import Pipeline, PipelineError, parse

RUN = CliRunner()
SOURCE = {"connector.class": "DirectorySource", "path": "in", "topic": "events"}
SINK = {"connector.class": "FileStreamSink", "topics": "event", "file": "out.txt"}
OWN = {"connector.class": "headgate_connectors.directory:DirectorySource", "path": "in"}


def _text(kind: str, **options: str) -> str:
    lines = [f'"{key.replace("_", ".")}" = "{value}"' for key, value in options.items()]
    return "\n".join(
        ['[cluster]\nrunner = "thread"', f'[connectors.a]\n"connector.class" = "{kind}"', *lines]
    )


def _spark(kind: str, **options: str) -> str:
    return _text(kind, **options).replace('"thread"', '"spark"')


def _source(path: str) -> str:
    return _text("DirectorySource", path=path, topic="t")


def _refused(text: str, folder: Path) -> str:
    with pytest.raises(PipelineError) as caught:
        parse(text, folder / "p.toml", "p.toml")
    assert len(caught.value.problems) == 1, str(caught.value)
    return str(caught.value)


def _loaded(text: str, folder: Path) -> Pipeline:
    return parse(text, folder / "p.toml", "p.toml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("{}\n")
    return tmp_path


class TestPaths:
    @pytest.mark.parametrize(
        ("path", "words"),
        [
            ("inn", "p.toml:5: [connectors.a] path: there is no folder inn ("),
            ("no/where/in", "is there"),
            ("in/a.jsonl", "in/a.jsonl is a file, expected a folder"),
            ("in/*.jsonl", 'path = "in", include = "*.jsonl"'),
            ("*.jsonl", 'path = ".", include = "*.jsonl"'),
            ("${HOME}/in", "${HOME} is not expanded; write ${env:HOME}"),
            ("$HOME/in", "$HOME is not expanded; write ${env:HOME}"),
        ],
    )
    def test_a_folder_to_read(self, folder: Path, path: str, words: str) -> None:
        seen = _refused(_source(path), folder)
        assert words in seen
        assert "errors.tolerance" not in seen

    def test_that_is_there(self, folder: Path) -> None:
        assert _loaded(_source("in"), folder).notes == []

    @pytest.mark.parametrize("name", ["in[1]", "a*b", "$x"])
    def test_a_name_that_looks_like_a_pattern_and_is_there(self, folder: Path, name: str) -> None:
        (folder / name).mkdir()
        _loaded(_source(name), folder)

    @pytest.mark.parametrize("spark", ['remote = "sc://far:15002"', 'master = "spark://far:7077"'])
    def test_where_tasks_run_on_other_machines_it_may_be_there(
        self, folder: Path, spark: str
    ) -> None:
        text = _source("inn").replace("thread", "spark") + f"\n[spark]\n{spark}\n"
        (note,) = _loaded(text, folder).notes
        assert note.startswith("a: there is no folder inn (")
        local = text.replace(spark, 'master = "local[4]"')
        assert "there is no folder inn" in _refused(local, folder)

    def test_the_home_folder(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(folder))
        found = _loaded(_source("~/in"), Path("/"))
        assert found.connectors["a"]["path"] == str(folder / "in")

    def test_a_file_to_read_may_come_later_and_its_folder_may_not(self, folder: Path) -> None:
        found = _loaded(_text("FileStreamSource", file="in/b.txt", topic="t"), folder)
        assert found.notes == ["a: there is no file in/b.txt yet; its task waits for it"]
        assert "there is no file inn/b.txt (" in _refused(
            _text("FileStreamSource", file="inn/b.txt", topic="t"), folder
        )
        assert "DirectorySource reads folders" in _refused(
            _text("FileStreamSource", file="in", topic="t"), folder
        )
        assert "patterns are not expanded" in _refused(
            _text("FileStreamSource", file="in/*.txt", topic="t"), folder
        )

    @pytest.mark.parametrize(
        "kind", ["FileStreamSink", "org.apache.kafka.connect.file.FileStreamSinkConnector"]
    )
    def test_a_file_to_write(self, folder: Path, kind: str) -> None:
        missing = _refused(_text(kind, file="out/b.txt", topics="t"), folder)
        assert f"there is no folder {folder}/out to write b.txt to; make it: mkdir -p" in missing
        assert "in is a folder, expected a file" in _refused(
            _text(kind, file="in", topics="t"), folder
        )
        _loaded(_text(kind, file="in/new.txt", topics="t"), folder)
        _loaded(_text(kind, file="state/new.txt", topics="t"), folder)  # made at the start

    def test_a_folder_to_write(self, folder: Path) -> None:
        seen = _refused(_text("DirectorySink", path="in/a.jsonl", topics="t"), folder)
        assert "in/a.jsonl is a file, expected a folder" in seen
        below = _refused(_text("DirectorySink", path="in/a.jsonl/x", topics="t"), folder)
        assert f"there can be no folder in/a.jsonl/x: {folder}/in/a.jsonl is a file" in below
        _loaded(_text("DirectorySink", path="not/yet", topics="t"), folder)

    @pytest.mark.parametrize(
        ("path", "words"),
        [
            ("~nobody-here/x", "~nobody-here/x begins with ~, which is expanded in the file"),
            ("a" * 300, "cannot be looked at: File name too long"),
            ("loop/x", "loop/x cannot be looked at: Too many levels of symbolic links"),
            ("a\\u0000b", "'a\\x00b' is no path: embedded null byte"),
        ],
    )
    def test_what_cannot_be_a_path(self, folder: Path, path: str, words: str) -> None:
        (folder / "loop").symlink_to("loop")
        assert words in _refused(_source(path), folder)

    @pytest.mark.parametrize("kind", ["DirectorySink", "DeltaSink", "SparkFileSink", "SparkSink"])
    @pytest.mark.parametrize("path", ["a" * 300, "a\\u0000b", "loop/x"])
    def test_what_no_sink_can_write_to_is_told_once(
        self, folder: Path, kind: str, path: str
    ) -> None:
        (folder / "loop").symlink_to("loop")
        write = _spark if kind.startswith("Spark") else _text
        more = {} if kind == "DeltaSink" else {"format": "parquet"}
        text = write(kind, path=path, topics="t", **more)
        with pytest.raises(PipelineError) as caught:
            _loaded(text, folder)
        (problem,) = caught.value.problems
        assert "path" in problem.where
        assert "cannot be looked at" in problem.text or "is no path" in problem.text

    @pytest.mark.parametrize("topic", ["a b", "a/b", "..", "x" * 250])
    def test_a_name_that_no_topic_may_have(self, folder: Path, topic: str) -> None:
        said = "is no name of a topic"
        source = {"path": "in", "topic": topic}
        assert said in _refused(_text("DirectorySource", **source), folder)
        assert said in _refused(_text("FileStreamSource", file="in/b.txt", topic=topic), folder)
        letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": topic}
        assert said in _refused(_text("DirectorySink", path="out", topics="t", **letters), folder)

    def test_no_folder_named_after_a_home_that_is_not_there_is_made(self, folder: Path) -> None:
        sink = _text("DirectorySink", path="~nobody-here/out", topics="t")
        assert "begins with ~" in _refused(sink, folder)

    @pytest.mark.parametrize(
        ("kind", "path", "words"),
        [
            ("DirectorySink", "in/out", "{}/in may not be written to by this user"),
            ("FileStreamSink", "in/new.txt", "{}/in may not be written to by this user"),
            ("FileStreamSink", "in/a.jsonl", "{}/in/a.jsonl may not be written to by this user"),
        ],
    )
    def test_what_this_user_may_not_write(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        kind: str,
        path: str,
        words: str,
    ) -> None:
        """Root may write everywhere, so the kernel is not asked here."""
        monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
        key = "path" if kind == "DirectorySink" else "file"
        assert words.format(folder) in _refused(_text(kind, **{key: path}, topics="t"), folder)

    def test_what_spark_reads_and_writes(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Patterns are Spark's own; variables are nobody's, and the home folder is ours."""
        monkeypatch.setenv("HOME", str(folder))
        source = {"format": "csv", "mode": "files", "topic": "t", "schema": "a INT"}
        found = _loaded(_spark("SparkSource", path="~/in/*.csv", **source), folder)
        assert found.connectors["a"]["path"] == f"{folder}/in/*.csv"
        assert "write ${env:HOME}" in _refused(
            _spark("SparkSource", path="$HOME/in", **source), folder
        )
        sink = {"format": "parquet", "topics": "t"}
        seen = _refused(_spark("SparkSink", path="in/a.jsonl", **sink), folder)
        assert "in/a.jsonl is a file, expected a folder" in seen


class TestReferences:
    def test_to_the_environment(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PLACE", "in")
        found = _loaded(_source("${env:PLACE}"), folder)
        assert found.connectors["a"]["path"] == "${env:PLACE}"  # as on Kafka: resolved at a start

    def test_what_is_wrong_with_a_value_is_told_without_it(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PLACE", "secret-folder")
        assert "secret-folder" not in _refused(_source("${env:PLACE}"), folder)

    def test_to_files(self, folder: Path) -> None:
        (folder / "s.properties").write_text("place = in\n")
        (folder / "place").write_text("in")
        for reference in (
            f"${{file:{folder}/s.properties:place}}",
            f"${{directory:{folder}:place}}",
        ):
            _loaded(_source(reference), folder)

    @pytest.mark.parametrize(
        ("reference", "words"),
        [
            ("${env:NO_SUCH}", "there is no environment variable NO_SUCH"),
            ("${file:@/s.properties:b}", "there is no key b in"),
            ("${file:@/none:b}", "cannot be read: No such file"),
            ("${directory:@:b}", "there is no file b in"),
        ],
    )
    def test_to_what_is_not_there(self, folder: Path, reference: str, words: str) -> None:
        (folder / "s.properties").write_text("a = 1\n")
        seen = _refused(_source(reference.replace("@", str(folder))), folder)
        assert seen.startswith("p.toml:5: [connectors.a] path: ")
        assert words in seen

    def test_in_the_cluster(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WHERE", "elsewhere")
        text = _source("in").replace("[cluster]", '[cluster]\ndata = "${env:WHERE}"')
        assert _loaded(text, folder).data == folder / "elsewhere"
        monkeypatch.delenv("WHERE")
        assert "[cluster] data: ${env:WHERE}: there is no environment" in _refused(text, folder)


class TestTopics:
    def test_one_that_nobody_writes(self) -> None:
        (line,) = unwritten_topics({"a": SOURCE, "b": SINK}, [])
        assert line == (
            "sink b: no source writes topic event, which does not exist; did you mean events?"
        )

    def test_one_that_exists_or_is_written(self) -> None:
        assert list(unwritten_topics({"a": SOURCE, "b": SINK}, ["event"])) == []
        assert list(unwritten_topics({"a": SOURCE, "b": {**SINK, "topics": "events"}}, [])) == []

    def test_one_that_cannot_be_there_and_one_that_an_earlier_version_made(self) -> None:
        odd = {**SINK, "topics": "a b"}
        for source in (SOURCE, OWN):
            (line,) = unwritten_topics({"a": source, "b": odd}, [])
            assert line.startswith("sink b: topic 'a b' is no name of a topic: expected 1 to 249")
        assert list(unwritten_topics({"a": SOURCE, "b": odd}, ["a b"])) == []

    def test_dead_letters_are_written(self) -> None:
        letters = {**SINK, "topics": "events", "errors.deadletterqueue.topic.name": "bad"}
        reads = {**SINK, "topics": "bad"}
        assert list(unwritten_topics({"a": SOURCE, "b": letters, "c": reads}, [])) == []

    def test_a_source_whose_topics_nobody_knows_may_write_any(self) -> None:
        far = {**SINK, "topics": "quite-another"}
        assert list(unwritten_topics({"a": OWN, "b": far}, [])) == []
        assert list(unwritten_topics({"a": {**SOURCE, "transforms": "x"}, "b": far}, [])) == []
        assert len(list(unwritten_topics({"a": SOURCE, "b": far}, []))) == 1

    def test_a_pattern_is_not_looked_at(self) -> None:
        regex = {"connector.class": "FileStreamSink", "topics.regex": "e.*", "file": "f"}
        assert list(unwritten_topics({"a": SOURCE, "b": regex}, [])) == []


SETTINGS = {"key.converter": "StringConverter", "value.converter": "TypedConverter"}
READS = {**SINK, "topics": "events"}


class TestConverters:
    """A sink took the bytes of an AvroConverter for text and wrote them so."""

    def lines(self, writes: str, reads: str = "") -> list[str]:
        source = {**SOURCE, "value.converter": writes} if writes else SOURCE
        sink = {**READS, "value.converter": reads} if reads else READS
        return list(unlike({"a": source, "b": sink}, SETTINGS))

    def test_one_with_a_registry_beside_one_without(self) -> None:
        (line,) = self.lines("AvroConverter")
        assert line == (
            "sink b reads topic events with value.converter TypedConverter, "
            "and source a writes it with AvroConverter; give both the same"
        )
        assert len(self.lines("", "io.confluent.connect.avro.AvroConverter")) == 1
        assert len(self.lines("ProtobufConverter", "AvroConverter")) == 1

    def test_what_fits(self) -> None:
        assert self.lines("AvroConverter", "io.confluent.connect.avro.AvroConverter") == []
        assert self.lines("AvroConverter", "ByteArrayConverter") == []
        assert self.lines("JsonConverter", "StringConverter") == []
        assert self.lines("") == []

    def test_another_topic_and_topics_that_are_not_known(self) -> None:
        avro = {**SOURCE, "value.converter": "AvroConverter"}
        for source in (
            {**avro, "topic": "other"},
            {**avro, "transforms": "x"},
            {**avro, "topic.pattern": "x"},
        ):
            assert list(unlike({"a": source, "b": READS}, SETTINGS)) == []

    def test_keys_and_the_settings_of_the_workers(self) -> None:
        sink = {**READS, "key.converter": "StringConverter"}
        settings = {**SETTINGS, "key.converter": "AvroConverter"}
        (line,) = unlike({"a": SOURCE, "b": sink}, settings)
        assert "key.converter StringConverter" in line


def _files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


class TestCheck:
    def test_nothing_is_made(self, folder: Path) -> None:
        (folder / "p.toml").write_text(_source("in"))
        before = _files(folder)
        done = RUN.invoke(app, ["up", str(folder / "p.toml"), "--check"])
        assert done.exit_code == 0, done.output
        assert "would make connector a" in done.stdout
        assert "will be made at the first start" in done.stdout
        assert _files(folder) == before

    def test_what_is_delivered_at_least_once_is_told(self, folder: Path) -> None:
        text = _source("in") + (
            '\n[connectors.b]\n"connector.class" = "FileStreamSink"\nfile = "out"\ntopics = "t"\n'
        )
        (folder / "p.toml").write_text(text)
        done = RUN.invoke(app, ["up", str(folder / "p.toml"), "--check"])
        assert done.exit_code == 0, done.output
        assert "\nnote: b: connector.class: FileStreamSink writes at least once" in done.stdout
        assert "note: a:" not in done.stdout

    def test_beside_a_log_that_is_there(self, folder: Path) -> None:
        text = _source("in") + (
            '\n[connectors.b]\n"connector.class" = "FileStreamSink"\n'
            'topics = "ghost"\nfile = "out.txt"\n'
            '[connectors.c]\n"connector.class" = "FileStreamSink"\n'
            'topics = "t"\nfile = "c.txt"\n"value.converter" = "AvroConverter"\n'
        )
        (folder / "p.toml").write_text(text)
        open_transport(transport_settings(folder / "state")).close()
        before = set(_files(folder))
        done = RUN.invoke(app, ["up", str(folder / "p.toml"), "--check"])
        assert done.exit_code == 0, done.output
        assert "has 0 connectors" in done.stdout
        assert "warning: sink b: no source writes topic ghost" in done.stdout
        assert "warning: sink c reads topic t with value.converter AvroConverter" in done.stdout
        assert set(_files(folder)) == before

    def test_a_fault_of_the_file(self, folder: Path) -> None:
        (folder / "p.toml").write_text(_source("inn"))
        done = RUN.invoke(app, ["up", str(folder / "p.toml"), "--check"])
        assert done.exit_code == 2
        assert "there is no folder inn" in done.stderr
        assert not (folder / "state").exists()

    def test_a_log_that_is_not_ours(self, folder: Path) -> None:
        (folder / "p.toml").write_text(_source("in"))
        (folder / "state").mkdir()
        (folder / "state" / "headgate.db").write_text("something else")
        done = RUN.invoke(app, ["up", str(folder / "p.toml"), "--check"])
        assert done.exit_code == 2
        assert (folder / "state" / "headgate.db").read_text() == "something else"

    def test_spark_without_java(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "p.toml").write_text(_source("in").replace("thread", "spark"))
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        done = RUN.invoke(app, ["up", str(folder / "p.toml"), "--check"])
        assert done.exit_code == 2
        assert "Spark needs Java, and there is none (no java on the path)" in done.stdout

    def test_yarn_without_its_configuration(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = _source("in").replace("thread", "spark") + '\n[spark]\nmaster = "yarn"\n'
        (folder / "p.toml").write_text(text)
        for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
            monkeypatch.delenv(name, raising=False)
        for arguments in (["--check"], []):
            done = RUN.invoke(app, ["up", str(folder / "p.toml"), *arguments])
            assert done.exit_code == 2
            assert "needs one of HADOOP_CONF_DIR, YARN_CONF_DIR" in done.output
        assert not (folder / "state").exists()

    def test_spark_that_is_not_used(self, folder: Path) -> None:
        (folder / "p.toml").write_text(_source("in") + '\n[spark]\nmaster = "local[2]"\n')
        done = RUN.invoke(app, ["up", str(folder / "p.toml"), "--check"])
        assert "warning: [spark] is not used: runner is thread" in done.stdout

    def test_spark_that_nobody_asked_for(self, folder: Path) -> None:
        """Spark takes ten times as long to start as a process."""
        text = _source("in").replace('[cluster]\nrunner = "thread"\n', "")
        (note,) = _loaded(text, folder).notes
        assert note.startswith("no runner is named, so Spark starts, which takes about 20 s")
        assert note.endswith('runner = "process" under [cluster] does without')
        sink = '[connectors.b]\n"connector.class" = "SparkFileSink"\nformat = "parquet"\n'
        for more in (f'{sink}path = "out"\ntopics = "t"\n', '[spark]\nmaster = "local[2]"\n'):
            assert _loaded(f"{text}\n{more}", folder).notes == []
        for key in ("runner", '"headgate.task.runner"'):
            assert _loaded(f'[cluster]\n{key} = "spark"\n{text}', folder).notes == []

    @pytest.mark.parametrize("format", ["jsnl", "ndjson", "NDJSON"])
    def test_a_choice_that_is_near(self, folder: Path, format: str) -> None:
        text = _source("in") + f'\nformat = "{format}"\n'
        assert _refused(text, folder).endswith("; did you mean jsonl?")

    def test_what_others_call_it(self) -> None:
        done = RUN.invoke(app, ["up", "p.toml", "--dry-run"])
        assert done.stderr.endswith("No such option: --dry-run (Possible options: --check)\n")


class TestInit:
    def test_what_it_makes_passes_the_check(self, tmp_path: Path) -> None:
        file = tmp_path / "pipeline.toml"
        assert RUN.invoke(app, ["init", str(file)]).exit_code == 0
        assert tomllib.loads(file.read_text())["cluster"]["runner"] == "process"
        done = RUN.invoke(app, ["up", str(file), "--check"])
        assert done.exit_code == 0, done.output
        assert "warning" not in done.output

    def test_a_file_that_is_there_is_left_alone(self, tmp_path: Path) -> None:
        file = tmp_path / "pipeline.toml"
        file.write_text("mine")
        done = RUN.invoke(app, ["init", str(file)])
        assert (done.exit_code, file.read_text()) == (2, "mine")
        assert "is there already" in done.stderr
        assert not (tmp_path / "in").exists()


@pytest.mark.slow
def test_a_pipeline_made_by_init_runs_and_resolves_what_it_refers_to(tmp_path: Path) -> None:
    assert RUN.invoke(app, ["init", str(tmp_path / "pipeline.toml")]).exit_code == 0
    text = (tmp_path / "pipeline.toml").read_text()
    text = text.replace('topics = "events"', 'topics = "${env:TOPIC}"')
    (tmp_path / "pipeline.toml").write_text(text.replace('"out.txt"', '"${env:OUT}"'))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("headgate")), "up", "pipeline.toml", "--until-idle"],
        cwd=tmp_path,
        env={**os.environ, "TOPIC": "events", "OUT": "found.txt"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len((tmp_path / "found.txt").read_text().splitlines()) == 2
    assert "sink copy: 2 records committed" in done.stdout
