"""A worker's properties file configures Spark, also by a file of Spark's own settings."""

import dataclasses
from pathlib import Path

import pytest

from headgate_runtime.command.errors import UpError
from headgate_runtime.config.settings import DISTRIBUTED, WorkerSettings
from headgate_runtime.spark.properties import of_remote, spark_settings
from headgate_runtime.spark.settings import SparkSettings
from headgate_runtime.tasks.select import make_runner


def settings(**given: str) -> WorkerSettings:
    texts = {key.replace("_", "."): value for key, value in given.items()}
    fixed = {
        "bootstrap.servers": "h:1",
        "group.id": "g",
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        **{f"{what}.storage.topic": what for what in ("config", "offset", "status")},
    }
    return WorkerSettings.parse({**fixed, **texts}, DISTRIBUTED)


def test_settings_as_spark_has_them_are_passed_on(tmp_path: Path) -> None:
    conf = tmp_path / "spark.conf"
    conf.write_text("# as spark-defaults.conf\nspark.executor.memory  2g\nspark.x=y z\n")
    found = spark_settings(
        settings(
            headgate_spark_master="k8s://https://h:1",
            headgate_spark_host="127.0.0.9",
            headgate_spark_conf_file=str(conf),
            headgate_spark_driver_timeout_ms="5000",
        )
    )
    conf_of_spark = {"spark.executor.memory": "2g", "spark.x": "y z"}
    assert found == SparkSettings("k8s://https://h:1", None, conf_of_spark, "127.0.0.9", 5_000)
    assert spark_settings(settings()).driver_timeout_ms == SparkSettings().driver_timeout_ms


def test_what_is_no_setting_of_spark_is_refused(tmp_path: Path) -> None:
    conf = tmp_path / "spark.conf"
    conf.write_text("executor.memory 2g\n")
    with pytest.raises(UpError, match=r"has executor\.memory, expected settings of Spark: spark\."):
        spark_settings(settings(headgate_spark_conf_file=str(conf)))
    with pytest.raises(UpError, match=r"headgate\.spark\.conf\.file: .*there is no such file"):
        spark_settings(settings(headgate_spark_conf_file=str(tmp_path / "none")))


def test_a_server_that_runs_elsewhere_and_the_address_that_its_executors_call() -> None:
    found = spark_settings(settings(headgate_spark_remote="sc://127.0.0.1:1"))
    assert of_remote(found) == {"remote": "sc://127.0.0.1:1", "host": "127.0.0.1"}
    with pytest.raises(UpError, match=r"headgate\.spark\.host is 192\.0\.2\.1, expected"):
        of_remote(dataclasses.replace(found, host="192.0.2.1"))


class NoLauncher:
    def launch(self, *_: object) -> None: ...

    def kill(self, _run: str) -> None: ...

    def close(self) -> None: ...


def test_lifelines_of_executors_are_listened_for_where_they_call() -> None:
    """And those of this machine's processes on the loopback address alone."""
    runner = make_runner(
        "spark",
        {},
        lambda _run, _report: None,
        spark_launcher=NoLauncher(),
        host="127.0.0.9",
    )
    try:
        assert [server.host for server in runner._servers] == ["127.0.0.1", "127.0.0.9"]  # type: ignore[attr-defined]
        processes, executors = runner._processes, runner._others  # type: ignore[attr-defined]
        assert processes._server.host == "127.0.0.1"
        assert executors._server.host == "127.0.0.9"
    finally:
        runner.close()
