from pathlib import Path

import pytest

from headgate.connector.config import ConfigError
from headgate_spark.file_sink import (
    SparkFileSink,
    config_def,
    declared_columns,
    is_ours,
    results_in_order,
    target_folder,
)
from headgate_spark.readable import has_envelope, refusals


def errors(**config: str) -> dict[str, list[str]]:
    found = SparkFileSink.config_def().validate(config)
    return {name: value.errors for name, value in found.items() if value.errors}


def test_defaults_and_what_is_wrong() -> None:
    assert errors(path="out") == {}
    wrong = errors(**{"path": "", "format": "orc", "batch.records.max": "0"})
    assert sorted(wrong) == ["batch.records.max", "format", "path"]
    assert (
        "expected some of key, topic"
        in errors(**{"path": "o", "columns.metadata": "key,x"})["columns.metadata"][0]
    )


def test_declared_columns() -> None:
    assert errors(**{"path": "o", "columns.types": "a: double,b c:string"}) == {}
    given = config_def().parse({"path": "o", "columns.types": "a: double,b c:string"})
    assert declared_columns(given["columns.types"]) == {"a": "double", "b c": "string"}
    for wrong in ("a", "a: float", ": long", "a: decimal(10,2)"):
        (told,) = errors(**{"path": "o", "columns.types": wrong})["columns.types"]
        assert "expected column: type, with a type of boolean, long, double, string" in told


def test_it_needs_spark_and_has_one_task() -> None:
    assert SparkFileSink.REQUIRES_RUNNER == "spark"
    sink = SparkFileSink()
    sink.start({"path": "out"})
    assert sink.task_configs(4) == [{"path": "out"}]


def test_targets_are_folders_of_this_machine(tmp_path: Path) -> None:
    assert target_folder("out") == Path("out").absolute()
    assert target_folder(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    with pytest.raises(ConfigError, match="object stores"):
        target_folder("s3://bucket/x")
    (tmp_path / "file").touch()
    assert (
        "expected a folder" in SparkFileSink.validate({"path": str(tmp_path / "file")})["path"][0]
    )
    assert SparkFileSink.validate({"path": str(tmp_path)}) == {}


def test_the_envelope_follows_the_converter() -> None:
    converter = "org.apache.kafka.connect.json.JsonConverter"
    assert has_envelope({"value.converter": converter}, {})
    assert not has_envelope(
        {"value.converter": converter, "value.converter.schemas.enable": "false"}, {}
    )
    assert has_envelope({}, {"value.converter": converter})
    assert not has_envelope({"value.converter": "StringConverter"}, {"value.converter": converter})
    assert not has_envelope({}, {})
    assert has_envelope({"value.converter": "Json"}, {})


def refused(
    config: dict[str, str], worker_settings: dict[str, str], *, writes_keys: bool = False
) -> list[str]:
    """Settings that are, where a task starts."""
    return [key for key, _ in refusals(config, worker_settings, writes_keys=writes_keys)]


AVRO = "io.confluent.connect.avro.AvroConverter"


@pytest.mark.parametrize(
    "name", [AVRO, "JsonSchema", "Protobuf", "LongConverter", "Boolean", "x.Y"]
)
def test_a_converter_that_it_does_not_read_as_is_refused(tmp_path: Path, name: str) -> None:
    """Avro's bytes of a short text are UTF-8, and would be written as one."""
    config = {"path": str(tmp_path), "value.converter": name}
    (text,) = SparkFileSink.validate(config)["value.converter"]
    assert "SparkFileSink reads the bytes of the log itself" in text and "SparkSink" in text
    worker = {"value.converter": name}
    assert refused({}, worker) == ["value.converter"]
    assert refused({"value.converter": "Json"}, worker) == []


def test_keys_that_are_written_are_of_such_a_converter_too(tmp_path: Path) -> None:
    config = {"path": str(tmp_path), "key.converter": AVRO}
    assert SparkFileSink.validate(config) == {}
    for metadata in ("key", "offset, key"):
        found = SparkFileSink.validate({**config, "columns.metadata": metadata})
        assert list(found) == ["key.converter"]
        assert "SparkFileSink reads the bytes of the log itself" in found["key.converter"][0]
    assert SparkFileSink.validate({**config, "columns.metadata": "offset"}) == {}
    assert refused({}, {"key.converter": AVRO}, writes_keys=True) == ["key.converter"]


@pytest.mark.parametrize("name", ["String", "Json", "TypedConverter", "ByteArrayConverter"])
def test_a_converter_that_it_reads_as_is_taken(tmp_path: Path, name: str) -> None:
    assert SparkFileSink.validate({"path": str(tmp_path), "value.converter": name}) == {}


def test_nulls_that_would_not_be_kept_are_refused(tmp_path: Path) -> None:
    key = "value.converter.replace.null.with.default"
    config = {"path": str(tmp_path), "value.converter": "JsonConverter", key: "false"}
    (text,) = SparkFileSink.validate(config)[key]
    assert "SparkFileSink puts the default" in text
    assert SparkFileSink.validate({**config, "value.converter.schemas.enable": "false"}) == {}
    assert SparkFileSink.validate({**config, key: "true"}) == {}
    assert refused({}, {"value.converter": "JsonConverter", key: "false"}) == [key]


def test_results_are_ordered_and_complete() -> None:
    texts = ['[1, {"records": 5}]', '[0, {"records": 3}]']
    assert [one.records for one in results_in_order(texts, 2)] == [3, 5]
    with pytest.raises(RuntimeError, match="1 results for 2 slices"):
        results_in_order(texts[:1], 2)


def test_what_befell_spark_is_tried_again_and_our_own_faults_are_not() -> None:
    assert is_ours(RuntimeError("Traceback (most recent call last):\n  ...\nOSError: disk full"))
    assert not is_ours(RuntimeError("Traceback (most recent call last):\n ...TransportError: busy"))
    assert not is_ours(RuntimeError("ExecutorLostFailure (executor 1 exited)"))
