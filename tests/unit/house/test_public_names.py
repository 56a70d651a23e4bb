"""The public names of `headgate` and its public packages: add to them, take none away."""

import importlib
import subprocess
import sys
import tomllib
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

import headgate

ROOT = Path(__file__).resolve().parents[3]
EMBEDDER = """
POLICIES Config ConfigEvent ConfigState ConnectorEntry Coordinator CoordinatorSettings CoreError
FenceTasks FencingRequirement Herder HerderSettings IllegalTransitionError LogOrderError LogRecord
Member MemberAssignment MemberSettings MemberWork NothingToFence OffsetTable OffsetView
PartitionOffset Plugin Policy RecordTaskCount Round RoundInput State Status StatusEvent StatusView
TargetState TaskId WorkView __version__ decode decode_all decode_status encode_commit
encode_connector encode_connector_tombstone encode_logger_level encode_restart encode_session_key
encode_target_state encode_target_state_tombstone encode_task encode_task_count fencing_requirement
fold fold_offsets fold_statuses group_messages may_start_source_tasks member_messages messages
plan_alteration plan_reset task_messages
AtOnce FencedError HerderHost HostPorts HostSchedule TooLargeError TransportError Work
"""
AUTHOR = """
NO_DEFAULT ConfigDef ConfigError ConfigKey ConfigProvider ConfigProviderError ConfigValue Connector
ConnectorContext Converter DataError ErrantRecordReporter ExactlyOnceSupport Field
Headers Importance OffsetReader OffsetUpdate
Partition Password PlannedSinkTask PlannedSinkTaskContext Recommender RecordMetadata Reported
RetriableError RowNumbers RowOffsets
Schema SchemaAndValue SchemaType SinkBatch SinkConnector SinkRecord SinkTask SinkTaskContext
SkippedRecord SourceBatch SourceConnector SourceRecord
SourceTask SourceTaskContext TransactionContext Transform Type Validator Value Width all_of at_least
between non_empty non_null one_of one_of_any_case optional regex unique_values
validate
"""
TESTER = """
ConfigRefusedError ConformanceError FakeConnectorContext FakeSinkContext FakeSourceContext
FakeTransaction Message PlannedSinkConformance Raw SinkConformance SinkRun SourceConformance
SourceRun World run_sink run_source
"""
PUBLIC = {
    "headgate": EMBEDDER.split(),
    "headgate.connector": AUTHOR.split(),
    "headgate.testing": TESTER.split(),
}
HEAVY = "headgate.herder.herder"
UP = "headgate_runtime.up"


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names_are_these(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted(PUBLIC[package])
    assert set(PUBLIC[package]) <= set(dir(module))
    assert (module.__doc__ or "").strip()


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package, names in PUBLIC.items() for name in names]
)
def test_a_public_name_is_there(package: str, name: str) -> None:
    module = importlib.import_module(package)
    assert getattr(module, name) is getattr(module, name)


@pytest.mark.parametrize("package", PUBLIC)
def test_a_name_that_is_not_there_is_an_attribute_error(package: str) -> None:
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Nothing'"):
        _ = module.Nothing


def test_the_types_of_public_names_are_known(tmp_path: Path) -> None:
    """Type checkers take the names from imports that do not run. These must be the same names."""
    lines = [f"from {package} import {name}" for package, names in PUBLIC.items() for name in names]
    (tmp_path / "all.py").write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "all.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    (tmp_path / "wrong.py").write_text("from headgate import Nothing\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "wrong.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert 'has no attribute "Nothing"' in done.stdout


@pytest.mark.parametrize(
    "module", ["headgate", "headgate.connector", "headgate_runtime.tasks.main"]
)
def test_a_process_that_runs_tasks_does_not_load_the_herder(module: str) -> None:
    code = f"import sys, {module}; sys.exit({HEAVY!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_worker_loads_nothing_of_up() -> None:
    modules = ("command.worker", "command.standalone", "api.serving", "spark.service")
    names = ", ".join(f"headgate_runtime.{module}" for module in modules)
    code = f"import sys, {names}; print([m for m in sys.modules if m.startswith('{UP}')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_version_is_that_of_the_distribution() -> None:
    assert headgate.__version__ == version("headgate")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "version" in project["dynamic"]


def test_the_distribution_says_whose_it_is() -> None:
    found = metadata("headgate")
    named = {address.partition(",")[0] for address in found.get_all("Project-URL") or ()}
    assert {"Homepage", "Documentation", "Changelog"} <= named
    assert found["Author"] == "The Headgate authors"
    assert found["License-Expression"] or found["License"]
