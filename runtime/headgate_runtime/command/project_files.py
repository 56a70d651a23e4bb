"""The files that ``headgate connector new`` writes. ``%NAME%`` and similar marks stand for the
project's words."""

from collections.abc import Mapping
from typing import Final

_PYPROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "%NAME%"
version = "0.1.0"
description = "A %KIND% connector for Headgate"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["headgate"]

[project.optional-dependencies]
test = ["pytest>=8"]

# The name that `connector.class` takes, and the class that it means.
[project.entry-points."headgate.connectors"]
%STEM%%SUFFIX% = "%PACKAGE%.%KIND%:%STEM%%SUFFIX%"

[tool.hatch.build.targets.wheel]
packages = ["src/%PACKAGE%"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["src"]
"""

_README: Final = """\
# %NAME%

A %KIND% connector for Headgate: `connector.class` = `%STEM%%SUFFIX%`.

Do this in an environment that Headgate is installed in. pip looks for what is missing on PyPI,
where the project `headgate` is another one.

```sh
pip install -e '.[test]'
pytest
headgate plugins %STEM%%SUFFIX%          # its options
headgate up pipeline.toml --until-idle
```

- `src/%PACKAGE%/%KIND%.py` is the connector. Replace what it does by your own.
- `tests/test_%KIND%.py` is the conformance suite: its task is killed, stopped and moved at every
  point, and nothing may be lost. `pytest --connector-points=all` tries every point of a long run.
- `tests/conftest.py` loads the plugin of pytest that has this option.
"""

_CONFTEST: Final = 'pytest_plugins = ["headgate.testing.plugin"]\n'

_GITIGNORE: Final = "__pycache__/\n.pytest_cache/\n*.egg-info/\n.venv/\ndist/\nstate/\nlines.txt\n"

COMMON: Final[Mapping[str, str]] = {
    "pyproject.toml": _PYPROJECT,
    "README.md": _README,
    ".gitignore": _GITIGNORE,
    "tests/conftest.py": _CONFTEST,
    "src/%PACKAGE%/py.typed": "",
    "src/%PACKAGE%/__init__.py": '"""A %KIND% connector for Headgate."""\n',
}

_SOURCE: Final = '''\
"""%STEM%Source: the lines of a file. Replace what reads them by your own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from headgate.connector import (
    ConfigDef,
    ExactlyOnceSupport,
    Importance,
    SkippedRecord,
    SourceConnector,
    SourceRecord,
    SourceTask,
    Type,
    non_empty,
)

CONFIG = (
    ConfigDef()
    .define("file", Type.STRING, validator=non_empty, importance=Importance.HIGH)
    .define("topic", Type.STRING, validator=non_empty, importance=Importance.HIGH)
)
BATCH = 500


class %STEM%Task(SourceTask):
    file: BinaryIO | None = None

    def start(self, config: Mapping[str, str]) -> None:
        """Open the input, and go on where the committed source offset says."""
        settings = CONFIG.parse(config)
        self.topic: str = settings["topic"]
        self.partition = {"file": settings["file"]}
        committed = self.context.offsets.offset(self.partition)
        self.position = 0 if committed is None else int(committed["position"])
        self.file = Path(settings["file"]).open("rb")
        self.file.seek(self.position)

    def poll(self) -> Sequence[SourceRecord | SkippedRecord]:
        assert self.file is not None
        found: list[SourceRecord | SkippedRecord] = []
        while len(found) < BATCH:
            line = self.file.readline()
            if not line.endswith(b"\\n"):  # the end, or a line that is being written
                self.file.seek(self.position)
                break
            found.append(self.record(line))
        if not found:
            self.context.wait(1.0)  # wakes up at once for stop or pause
        return found

    def record(self, line: bytes) -> SourceRecord | SkippedRecord:
        """One line. Its source offset is where the next line begins."""
        start = self.position
        self.position += len(line)
        offset = {"position": self.position}
        try:
            text = line.decode().removesuffix("\\n")
        except UnicodeDecodeError as error:
            reason = f"{self.partition['file']} at byte {start}: {error}"
            return SkippedRecord(self.partition, offset, reason)
        return SourceRecord(self.partition, offset, self.topic, text)

    def stop(self) -> None:
        if self.file is not None:
            self.file.close()


class %STEM%Source(SourceConnector):
    """Reads the lines of one file, and goes on as it grows."""

    VERSION = "0.1.0"
    TASK = %STEM%Task

    @classmethod
    def config_def(cls) -> ConfigDef:
        return CONFIG

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Supported, as the source offset alone says where to go on."""
        return ExactlyOnceSupport.SUPPORTED

    def start(self, config: Mapping[str, str]) -> None:
        self.config = dict(config)

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [self.config]
'''

_SOURCE_TEST: Final = """\
from collections.abc import Mapping, Sequence
from pathlib import Path

from headgate.testing import SourceConformance, run_source

from %PACKAGE%.source import %STEM%Source


class Test%STEM%Source(SourceConformance):
    connector = %STEM%Source
    config = {"topic": "lines"}

    def prepare(self, folder: Path) -> Mapping[str, str]:
        (folder / "in.txt").write_text("one\\ntwo\\nthree\\n")
        return {"file": str(folder / "in.txt")}

    def expected(self) -> Sequence[str]:
        return ["one", "two", "three"]

    def bad_input(self, folder: Path) -> Mapping[str, str]:
        (folder / "in.txt").write_bytes(b"one\\ntwo\\n\\xff\\nthree\\n")
        return {"file": str(folder / "in.txt")}


def test_a_line_without_its_end_waits(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("one\\ntw")
    run = run_source(%STEM%Source, {"topic": "lines", "file": str(file)})
    assert [message.value for message in run.messages] == ["one"]
    assert run.offsets == [({"file": str(file)}, {"position": 4})]
"""

_SOURCE_PIPELINE: Final = """\
# headgate up pipeline.toml --until-idle
[cluster]
workers = 1
data = "state"
runner = "process"

[connectors.read]
"connector.class" = "%STEM%Source"
file = "README.md"
topic = "lines"

[connectors.write]
"connector.class" = "FileStreamSink"
topics = "lines"
file = "lines.txt"
"""

SOURCE: Final[Mapping[str, str]] = {
    "src/%PACKAGE%/source.py": _SOURCE,
    "tests/test_source.py": _SOURCE_TEST,
    "pipeline.toml": _SOURCE_PIPELINE,
}

_SINK: Final = '''\
"""%STEM%Sink: appends values to a file. Replace what writes them by your own."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from headgate.connector import (
    ConfigDef,
    DataError,
    ExactlyOnceSupport,
    Importance,
    SinkConnector,
    SinkRecord,
    SinkTask,
    Type,
    non_empty,
)

CONFIG = ConfigDef().define(
    "file", Type.STRING, validator=non_empty, importance=Importance.HIGH
)


class %STEM%Task(SinkTask):
    file: TextIO | None = None

    def start(self, config: Mapping[str, str]) -> None:
        self.file = Path(CONFIG.parse(config)["file"]).open("a", encoding="utf-8")

    def put(self, records: Sequence[SinkRecord]) -> None:
        assert self.file is not None
        for record in records:
            if not isinstance(record.value, str):
                place = f"{record.topic}-{record.partition}, offset {record.offset}"
                raise DataError(f"{record.value!r} is no text ({place})")
        self.file.writelines(f"{record.value}\\n" for record in records)

    def flush(self) -> None:
        """After this, offsets are committed: what `put` took must be written now."""
        assert self.file is not None
        self.file.flush()
        os.fsync(self.file.fileno())

    def stop(self) -> None:
        if self.file is not None:
            self.file.close()


class %STEM%Sink(SinkConnector):
    """Appends values to a file, each as a line. At least once: what was written after
    the last commit is written again after a crash."""

    VERSION = "0.1.0"
    TASK = %STEM%Task

    @classmethod
    def config_def(cls) -> ConfigDef:
        return CONFIG

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.UNSUPPORTED

    def start(self, config: Mapping[str, str]) -> None:
        self.config = dict(config)

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [self.config]
'''

_SINK_TEST: Final = """\
from collections.abc import Mapping, Sequence
from pathlib import Path

from headgate.connector import Schema, SchemaType
from headgate.testing import Message, SinkConformance, run_sink

from %PACKAGE%.sink import %STEM%Sink


class Test%STEM%Sink(SinkConformance):
    connector = %STEM%Sink

    def prepare(self, folder: Path) -> Mapping[str, str]:
        return {"file": str(folder / "out.txt")}

    def written(self, folder: Path) -> Sequence[str]:
        file = folder / "out.txt"
        return file.read_text().splitlines() if file.exists() else []

    def bad_message(self) -> Message:
        return Message(7, value_schema=Schema(SchemaType.INT64))


def test_values_are_lines(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    run = run_sink(%STEM%Sink, {"file": str(file)}, ["one", "two"])
    assert file.read_text() == "one\\ntwo\\n"
    assert run.committed == {("topic", 0): 2}
"""

_SINK_PIPELINE: Final = """\
# headgate up pipeline.toml --until-idle
[cluster]
workers = 1
data = "state"
runner = "process"

[connectors.read]
"connector.class" = "FileStreamSource"
file = "README.md"
topic = "lines"

[connectors.write]
"connector.class" = "%STEM%Sink"
topics = "lines"
file = "lines.txt"
"""

SINK: Final[Mapping[str, str]] = {
    "src/%PACKAGE%/sink.py": _SINK,
    "tests/test_sink.py": _SINK_TEST,
    "pipeline.toml": _SINK_PIPELINE,
}
