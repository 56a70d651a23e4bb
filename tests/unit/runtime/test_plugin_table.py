"""A worker knows the connector classes that are installed without loading them."""

import subprocess
import sys
from pathlib import Path

import pytest

from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.plugins import find, table
from headgate_runtime.plugins.table import Described
from headgate_runtime.worker.config import WorkerConfig, herder_settings

TESTS = Path(__file__).resolve().parents[2]
NOTHING_LOADED = """
import sys
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.plugins import table
from headgate_runtime.worker.config import WorkerConfig, herder_settings

plugins = herder_settings(WorkerConfig("w", "u", {}), WorkerSettings.parse({})).plugins
loaded = {"pyarrow", "deltalake", "pyiceberg", "numpy"} & sys.modules.keys()
assert not loaded, loaded
known = table.described()
assert {name: table.Described(**each) for name, each in table.told().items()} == known
assert plugins["FileStreamSource"].kind == "source", plugins
assert plugins["FileStreamSinkConnector"].kind == "sink", plugins
"""
SOURCE = """
from headgate.connector.api import SourceConnector
print("a line that is not what is told")
class Own(SourceConnector):
    VERSION = "7"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one connector that can be imported, and one that cannot."""
    (tmp_path / "own_connectors.py").write_text(SOURCE)
    (tmp_path / "bad_connectors.py").write_text("import no_such_module\n")
    info = tmp_path / "own-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1\n")
    lines = "[headgate.connectors]\nOwn = own_connectors:Own\nBad = bad_connectors:Bad\n"
    (info / "entry_points.txt").write_text(lines)
    monkeypatch.syspath_prepend(tmp_path)
    # `available` is asked for once in a process, perhaps by another test.
    announced = {"Own": "own_connectors:Own", "Bad": "bad_connectors:Bad"}
    for module in (table, find):
        monkeypatch.setattr(module, "available", lambda: announced)
    return tmp_path


def test_a_worker_loads_no_connector_before_it_is_used() -> None:
    command = [sys.executable, "-c", NOTHING_LOADED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_what_another_package_announces_is_known(installed: Path) -> None:
    found = table.described()
    assert found["Own"] == Described("Own", "source", "7")
    assert "no_such_module" in found["Bad"].error and not found["Bad"].kind
    assert "own_connectors" not in sys.modules
    assert table.described() is found, "it is asked for once"


def test_where_no_process_tells_them_the_classes_are_imported_here(
    installed: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    found = table.described()
    monkeypatch.delitem(sys.modules, "own_connectors")
    assert found["Own"] == Described("Own", "source", "7")
    assert found["Bad"].error
    assert caplog.messages == [
        "connector classes are imported by this process: the one that was to look at them ended "
        "with code 1"
    ]


def test_a_look_at_the_classes_that_takes_too_long_is_told_without_its_program(
    installed: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table, "LOOK_S", 0.001)
    table.described()
    monkeypatch.delitem(sys.modules, "own_connectors")
    (said,) = caplog.messages
    assert said.endswith("the one that was to look at them took longer than 0.001 s")


def test_a_module_that_raises_costs_no_other_class(installed: Path) -> None:
    (installed / "bad_connectors.py").write_text("\nraise ValueError('no licence')\n")
    found = table.described()
    assert "ValueError: no licence (bad_connectors.py, line 2)" in found["Bad"].error
    assert found["Own"] == Described("Own", "source", "7")


def test_a_worker_that_is_told_the_classes_looks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("headgate_runtime.worker.config.described")
    told = {"Own": {"name": "OwnSource", "kind": "source", "version": "7", "error": ""}}
    config = WorkerConfig("w", "u", {}, connectors=told)
    plugins = herder_settings(config, WorkerSettings.parse({})).plugins
    assert {name: each.version for name, each in plugins.items()} == {"Own": "7", "OwnSource": "7"}


def test_classes_that_cannot_be_used_are_named_once_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = {name: {"error": "this needs headgate[x]"} for name in ("ASink", "BSink")}
    known["C"] = {"error": "it has no TASK"}
    config = WorkerConfig("w", "http://w", {"kind": "embedded"}, connectors=known)
    herder_settings(config, WorkerSettings.parse({}))
    assert [record.getMessage() for record in caplog.records] == [
        "not usable here: ASink, BSink: this needs headgate[x]",
        "not usable here: C: it has no TASK",
    ]
