"""Bad input over gRPC to a real worker is refused with its reason, and harms no other call."""

import base64
import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from google.protobuf import message, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from support.depth import tries
from support.grpc.whole_state import Watched
from support.grpc.worker import Served, grpc_worker

from headgate.ids import TargetState
from headgate_embedded import open_transport, transport_settings
from headgate_grpc.client import HeadgateError
from headgate_grpc.errors import DETAILS_KEY
from headgate_grpc.messages import validated
from headgate_grpc.server import METADATA_MAX, SERVICES
from headgate_grpc.v1 import cluster_service_pb2 as cluster_pb2
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb

PASSWORD = "pa55w0rd-of-the-test"
SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
FUZZED = tries(1_000, 20_000)
READS = ("List", "Get", "Read", "Validate", "Watch", "Wait", "Plan")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the log."""
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with grpc_worker(folder) as served:
        yield served
        assert served.client.get_cluster().workers, "it has ended: see above"


@pytest.fixture(scope="module")
def watched(served: Served, folder: Path) -> Watched:
    return Watched(served, folder)


@pytest.fixture
def channel(served: Served) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.address.removeprefix("grpc://")) as channel:
        yield channel


def raw(channel: grpc.Channel, method: str, body: bytes, **more: Any) -> bytes:
    """Make one call with these bytes as its request."""
    answer: bytes = channel.unary_unary(f"/headgate.v1.{method}")(body, timeout=30, **more)
    return answer


def refused(call: Callable[[], Any]) -> HeadgateError:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return HeadgateError.of(caught.value)


# -- single cases --


def test_a_name_that_is_not_utf8_is_refused_as_that(channel: grpc.Channel) -> None:
    half_a_pair = b"\xed\xa0\x80"
    body = b"\n" + bytes([len(half_a_pair)]) + half_a_pair
    error = refused(lambda: raw(channel, "ConnectorService/GetConnector", body))
    assert (error.code, error.reason) == ("INVALID_ARGUMENT", "BAD_REQUEST")
    assert "not UTF-8" in error.message


def test_half_a_pair_in_offsets_is_refused(served: Served) -> None:
    offset = connector_pb2.ConnectorOffset(partition_json='{"p": "\\ud800"}', offset_json="{}")
    with pytest.raises(HeadgateError) as caught:
        served.client.alter_offsets("any", [offset])
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.message.startswith("offsets[0].partition_json is not JSON")


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[1]", "1", '{"a": NaN}', '{"a": 1e999}', "[" * 100_000),
        '{"a":' * 65 + "1" + "}" * 65,
        '{"a": ' + "9" * 5_000 + "}",
    ],
    ids=lambda text: text[:12],
)
def test_offsets_that_are_no_json_object_are_refused(served: Served, text: str) -> None:
    offset = connector_pb2.ConnectorOffset(partition_json=text, offset_json='{"a": 1}')
    with pytest.raises(HeadgateError) as caught:
        served.client.alter_offsets("any", [offset])
    assert (caught.value.code, caught.value.reason) == ("INVALID_ARGUMENT", "BAD_REQUEST")
    assert "offsets[0].partition_json" in caught.value.message


def test_a_null_value_is_refused_as_by_rest_and_shown_where_another_writer_left_one(
    served: Served,
) -> None:
    request = pb.CreateConnectorRequest(name="n", config=SINK, config_null_keys=["nothing"])
    error = refused(lambda: served.client.connectors.CreateConnector(request))
    assert error.code == "INVALID_ARGUMENT"
    assert (
        "Null value can not be supplied as the configuration value. Key: nothing" in error.message
    )
    properties = {"properties": {**SINK, "nothing": None}}
    records = [
        ("target-state-nulls", b'{"state.v2": "STOPPED", "state": "PAUSED"}'),
        ("connector-nulls", json.dumps(properties).encode()),
    ]
    served.worker.transport.config_log.append(records, privileged=False)
    shown = served.client.get("nulls")
    assert list(shown.config_null_keys) == ["nothing"] and "nothing" not in shown.config
    served.client.delete("nulls")


def test_a_key_that_is_null_and_has_a_value_is_refused(served: Served) -> None:
    request = pb.PutConnectorConfigRequest(name="x", config=SINK, config_null_keys=["topics"])
    error = refused(lambda: served.client.connectors.PutConnectorConfig(request))
    assert error.code == "INVALID_ARGUMENT" and "the key topics has a value" in error.message


def test_a_key_that_nobody_could_read_again_is_refused(served: Served) -> None:
    with pytest.raises(HeadgateError) as caught:
        served.client.create("long", {**SINK, "k" * 50_001: "v"})
    assert caught.value.code == "INVALID_ARGUMENT"
    assert "has 50001 bytes; readers of the config topic take at most 50000" in caught.value.message


def test_five_hundred_wrong_keys_fit_into_an_error_each_time(served: Served) -> None:
    config = {**SINK, **{f"transforms.{'x' * 50}{n}.type": "nope" for n in range(500)}}
    config["transforms"] = ",".join(f"{'x' * 50}{n}" for n in range(500))
    request = pb.CreateConnectorRequest(name="wrong", config=config)
    for _ in range(tries(5, 1_000)):
        with pytest.raises(grpc.RpcError) as caught:
            served.client.connectors.CreateConnector(request, timeout=60)
        error = HeadgateError.of(caught.value)
        assert (error.code, error.reason) == ("INVALID_ARGUMENT", "BAD_REQUEST")
        assert 1_000 < size_of_error(caught.value) <= 4 * 1024
    whole = served.client.cluster.ValidateConfig(cluster_pb2.ValidateConfigRequest(config=config))
    assert whole.error_count >= 500


def size_of_error(error: Any) -> int:
    """Bytes that its text and its details take as they travel."""
    text = quote(error.details(), safe="".join(map(chr, range(0x20, 0x7F))).replace("%", ""))
    details = [value for key, value in error.trailing_metadata() if key == DETAILS_KEY]
    assert len(details) == 1
    return len(text) + len(base64.b64encode(details[0]))


def test_metadata_over_the_limit_is_refused(served: Served) -> None:
    error = refused(
        lambda: served.client.cluster.GetCluster(
            cluster_pb2.GetClusterRequest(), metadata=(("x", "y" * 3 * METADATA_MAX),)
        )
    )
    assert error.code == "RESOURCE_EXHAUSTED"
    assert served.client.get_cluster().workers


def test_a_wait_without_a_condition_is_refused(served: Served) -> None:
    error = refused(
        lambda: served.client.connectors.WaitConnector(
            pb.WaitConnectorRequest(name="nope", deleted=False), timeout=2
        )
    )
    assert error.code == "INVALID_ARGUMENT"
    assert error.message == "no condition is given; set settled, state or deleted"


def test_passwords_are_in_no_answer_of_a_validation(served: Served) -> None:
    config = {**SINK, "name": "x", "tasks.max": PASSWORD}
    found = served.client.cluster.ValidateConfig(cluster_pb2.ValidateConfigRequest(config=config))
    (key,) = (each for each in found.keys if each.key.name == "tasks.max")
    assert key.errors  # an ordinary key names what was given
    infos = {"name": "x", "error_count": 1, "configs": [password_info()]}
    assert PASSWORD not in str(validated(infos, {"p": PASSWORD}))
    assert "[hidden] for configuration p" in str(validated(infos, {}))


def password_info() -> dict[str, Any]:
    definition = {
        "name": "p",
        "type": "PASSWORD",
        "required": True,
        "default_value": None,
        "importance": "HIGH",
        "documentation": "",
        "group": None,
        "display_name": "p",
        "dependents": [],
    }
    value = {
        "name": "p",
        "value": PASSWORD,
        "errors": [f"Invalid value {PASSWORD} for configuration p"],
    }
    return {"definition": definition, "value": value}


# -- etags and config offsets --

NO_ETAGS = ("-1", "+1", "1.0", " 1", "1 ", "0x1", "\u0661", "9" * 400)
CHANGES = (
    pb.PutConnectorConfigRequest(config=SINK),
    pb.PatchConnectorConfigRequest(set={"a": "1"}),
    pb.DeleteConnectorRequest(),
    pb.PauseConnectorRequest(),
    pb.ResumeConnectorRequest(),
    pb.StopConnectorRequest(),
    pb.AlterOffsetsRequest(
        offsets=[connector_pb2.ConnectorOffset(partition_json='{"a":1}', offset_json='{"b":2}')]
    ),
    pb.ResetOffsetsRequest(),
)
READ_SO_FAR = (
    pb.ListConnectorsRequest(),
    pb.GetConnectorRequest(name="etags"),
    pb.WaitConnectorRequest(name="etags", settled=True),
)


def method_of(request: message.Message) -> str:
    return request.DESCRIPTOR.name.removesuffix("Request")


@pytest.mark.parametrize("change", CHANGES, ids=method_of)
def test_what_is_no_etag_is_named_and_changes_nothing(served: Served, change: Any) -> None:
    served.client.put_config("etags", SINK)
    served.client.wait("etags", timeout_s=30)
    before = served.worker.herder.state.entries
    ask = getattr(served.client.connectors, method_of(change))
    for given in NO_ETAGS:
        request = type(change)()
        request.CopyFrom(change)
        request.name, request.etag = "etags", given
        error = refused(lambda: ask(request, timeout=30))  # noqa: B023
        assert (error.code, error.reason) == ("INVALID_ARGUMENT", "BAD_REQUEST"), given
        assert error.message.startswith(f"etag is {given[:80]!r}; expected the etag of"), given
    assert served.worker.herder.state.entries == before


@pytest.mark.parametrize("request_", READ_SO_FAR, ids=method_of)
def test_a_config_offset_of_nowhere_is_named(served: Served, request_: Any) -> None:
    served.client.put_config("etags", SINK)
    ask = getattr(served.client.connectors, method_of(request_))
    for given in (-1, -(2**31), -(2**63)):
        request_.min_config_offset = given
        error = refused(lambda: ask(request_, timeout=30))
        assert (error.code, error.reason) == ("INVALID_ARGUMENT", "BAD_REQUEST")
        assert error.message.startswith(f"min_config_offset is {given}; expected a config_offset")
    request_.min_config_offset = 2**63 - 1
    error = refused(lambda: ask(request_, timeout=1))
    assert error.code == "DEADLINE_EXCEEDED"


# -- fuzzing --

TEXTS = ("", "a", "keep", "\x00", "é" * 40, "/", "{", '{"a":1}', "x" * 70_000, "connector.class")
NUMBERS = (0, 1, 2, 3, 7, -1, 2**31 - 1, -(2**31), 10_001)


def fuzzed(kind: Descriptor, chance: random.Random, depth: int = 0) -> message.Message:
    """A message with some of its fields filled by chance."""
    made: Any = message_factory.GetMessageClass(kind)()
    for field in kind.fields:
        if chance.random() < 0.4 or depth > 3:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(chance.randrange(4)):
                getattr(made, field.name)[chance.choice(TEXTS)] = chance.choice(TEXTS)
            getattr(made, field.name)["database.password"] = PASSWORD
            if chance.random() < 0.4:
                getattr(made, field.name).update(SINK)
        elif field.is_repeated:
            values = [value_of(field, chance, depth) for _ in range(chance.randrange(4))]
            getattr(made, field.name).extend(values)
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(value_of(field, chance, depth))
        else:
            setattr(made, field.name, value_of(field, chance, depth))
    return made  # type: ignore[no-any-return]


def value_of(field: FieldDescriptor, chance: random.Random, depth: int) -> Any:
    if field.message_type is not None:
        return fuzzed(field.message_type, chance, depth + 1)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type == FieldDescriptor.TYPE_STRING:
        return chance.choice((*TEXTS, "a" * chance.randrange(20)))
    if field.cpp_type == FieldDescriptor.CPPTYPE_INT64:
        return chance.choice((*NUMBERS, 2**63 - 1, -(2**63)))
    return chance.choice(NUMBERS)


def test_fuzzed_messages_are_answered_or_refused_and_change_nothing_that_was_refused(
    served: Served,
    watched: Watched,
    channel: grpc.Channel,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whole messages with fields by chance, and bytes by chance; over all methods."""
    monkeypatch.chdir(tmp_path)  # a sink that is resumed by chance writes out.txt
    caplog.set_level(logging.DEBUG)
    served.client.create("keep", SINK, connector_pb2.TARGET_STATE_STOPPED)
    served.client.wait("keep")
    put_back(served, watched)
    chance = random.Random(20_261_125)
    methods = [method for service in SERVICES for method in service.methods]
    codes: dict[str, int] = {}
    before = watched.settled()
    for n in range(FUZZED):
        method = methods[n % len(methods)]
        body = fuzzed(method.input_type, chance).SerializeToString()
        if n % 3 == 0:
            body = bytes(chance.randrange(256) for _ in range(chance.randrange(60)))
        elif n % 3 == 1 and body:
            at = chance.randrange(len(body))
            body = body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]
        code, answer = ask(channel, method.full_name, body, streams=method.server_streaming)
        codes[code] = codes.get(code, 0) + 1
        assert code not in ("UNKNOWN", "INTERNAL", "UNAVAILABLE"), (method.name, body, answer)
        if code != "OK" or method.name.startswith(READS):
            watched.read_all()
            changed = before.differences(watched.state())
            assert not changed, (changed, method.name, body, code)
            assert PASSWORD not in answer, method.name
        else:
            put_back(served, watched)
            before = watched.settled()
    assert not before.differences(watched.settled())
    assert not [each for each in caplog.records if each.exc_info and "headgate" in each.name]
    assert PASSWORD not in caplog.text
    assert min(codes[code] for code in ("OK", "INVALID_ARGUMENT", "NOT_FOUND")) > 50, codes


CHANGED_BY: dict[str, Callable[[Served], Any]] = {
    "a target state": lambda served: served.client.resume("seen"),
    "a config": lambda served: served.client.patch_config("seen", {"k": "v"}),
    "consumer offsets": lambda served: served.client.alter_offsets("seen", [sink_offset(7)]),
    "source offsets": lambda served: served.client.alter_offsets("rows", [source_offset(7)]),
    "a restart": lambda served: served.client.restart("seen", include_tasks=True),
    "a logger": lambda served: served.client.cluster.SetLoggerLevel(
        cluster_pb2.SetLoggerLevelRequest(logger="headgate.test.of.state", level="WARN")
    ),
}


def sink_offset(offset: int) -> connector_pb2.ConnectorOffset:
    partition = {"kafka_topic": "t", "kafka_partition": 0}
    return connector_pb2.ConnectorOffset(
        partition_json=json.dumps(partition), offset_json=json.dumps({"kafka_offset": offset})
    )


def source_offset(position: int) -> connector_pb2.ConnectorOffset:
    return connector_pb2.ConnectorOffset(
        partition_json=json.dumps({"filename": "/dev/null"}),
        offset_json=json.dumps({"position": position}),
    )


@pytest.mark.parametrize("what", [*CHANGED_BY, "a topic"])
def test_each_kind_of_change_is_seen_in_the_state_that_is_compared(
    served: Served,
    watched: Watched,
    folder: Path,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    source = {"connector.class": "FileStreamSource", "topic": "t", "file": "/dev/null"}
    for name, config in (("seen", SINK), ("rows", source)):
        served.client.create(name, config, connector_pb2.TARGET_STATE_STOPPED)
        served.client.wait(name)
    log = open_transport(transport_settings(folder)).record_log
    log.create_topic("t", 1)
    before = watched.settled()
    assert before.differences(watched.settled()) == []
    CHANGED_BY.get(what, lambda _: log.create_topic("new", 1))(served)
    assert before.differences(watched.settled())
    for name in ("seen", "rows"):
        served.client.delete(name)


def ask(channel: grpc.Channel, method: str, body: bytes, *, streams: bool) -> tuple[str, str]:
    service, _, name = method.rpartition(".")
    path = f"/{service}/{name}"
    # Waits and watches have no end of their own, nor reads that wait for a config offset.
    timeout = 0.3 if name.startswith(("Wa", "Get", "List", "Plan")) else 30
    try:
        if streams:
            stream = channel.unary_stream(path)(body, timeout=timeout)
            answer = next(stream)
            stream.cancel()
        else:
            answer = channel.unary_unary(path)(body, timeout=timeout)
        return "OK", repr(answer)
    except grpc.RpcError as error:
        found: Any = error
        return found.code().name, f"{found.details()} {found.trailing_metadata()}"


def put_back(served: Served, watched: Watched) -> None:
    """Undo what the message changed, so that each message finds the same connectors."""
    watched.read_all()
    state = served.worker.herder.state
    for name in list(state.connector_names()):
        if name != "keep":
            served.client.delete(name)
    if "keep" not in state.connector_names():
        served.client.create("keep", SINK, connector_pb2.TARGET_STATE_STOPPED)
    else:
        if state.target_state("keep") is not TargetState.STOPPED:
            served.client.stop("keep")
        if dict(state.entries["keep"].config or {}) != {**SINK, "name": "keep"}:
            served.client.put_config("keep", SINK)
    watched.read_all()
