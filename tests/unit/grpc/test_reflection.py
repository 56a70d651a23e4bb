"""Reflection as clients like grpcurl ask for it: v1 first, and v1alpha for clients that know no
other."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection_pb2
from support.grpc.worker import Served, grpc_worker

PACKAGES = ("grpc.reflection.v1", "grpc.reflection.v1alpha")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with grpc_worker(tmp_path_factory.mktemp("reflection")) as served:
        yield served


def asked(served: Served, package: str, **request: Any) -> Any:
    """The answer to one request, on a stream of its own."""
    with grpc.insecure_channel(served.address.removeprefix("grpc://")) as channel:
        method = channel.stream_stream(
            f"/{package}.ServerReflection/ServerReflectionInfo",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        sent = reflection_pb2.ServerReflectionRequest(**request)
        (answer,) = method(iter([sent]), timeout=20)
        return answer


@pytest.mark.parametrize("package", PACKAGES)
def test_each_service_that_is_listed_is_described(served: Served, package: str) -> None:
    listed = asked(served, package, list_services="").list_services_response.service
    names = {each.name for each in listed}
    assert names == {
        "headgate.v1.ConnectorService",
        "headgate.v1.ClusterService",
        "grpc.health.v1.Health",
        *(f"{each}.ServerReflection" for each in PACKAGES),
    }
    for name in names:
        answer = asked(served, package, file_containing_symbol=name)
        assert answer.WhichOneof("message_response") == "file_descriptor_response", name
        assert name in services(answer), name


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_described_can_be_called(served: Served, package: str) -> None:
    """A client that knows nothing but the descriptions lists the workers of the cluster."""
    symbol = "headgate.v1.ClusterService"
    method = services(asked(served, package, file_containing_symbol=symbol))[symbol].methods_by_name
    described = method["GetCluster"]
    request = message_factory.GetMessageClass(described.input_type)
    response = message_factory.GetMessageClass(described.output_type)
    with grpc.insecure_channel(served.address.removeprefix("grpc://")) as channel:
        call = channel.unary_unary(
            f"/{symbol}/GetCluster",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        answer: Any = call(request(), timeout=20)
    assert answer.cluster.version == "test"


@pytest.mark.parametrize("package", PACKAGES)
def test_what_does_not_exist_is_not_found(served: Served, package: str) -> None:
    answer = asked(served, package, file_containing_symbol="headgate.v1.Nothing")
    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    answer = asked(served, package, file_by_filename="nothing.proto")
    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def services(answer: Any) -> dict[str, Any]:
    """Services by name, of the files of an answer, read by a pool that knows nothing else."""
    pool = descriptor_pool.DescriptorPool()
    files = []
    for each in answer.file_descriptor_response.file_descriptor_proto:
        file = descriptor_pb2.FileDescriptorProto.FromString(each)
        files.append(file)
    for file in sorted_by_need(files):
        pool.Add(file)
    found = [pool.FindFileByName(file.name) for file in files]
    return {s.full_name: s for file in found for s in file.services_by_name.values()}


def sorted_by_need(files: list[Any]) -> list[Any]:
    """Files after those that they import."""
    done: dict[str, Any] = {}
    while left := [file for file in files if file.name not in done]:
        ready = [file for file in left if set(file.dependency) <= set(done)]
        assert ready, f"imports that were not sent: {[file.name for file in left]}"
        done |= {file.name: file for file in ready}
    return list(done.values())


def test_both_versions_say_the_same_bytes(served: Served) -> None:
    new, old = (asked(served, each, list_services="") for each in PACKAGES)
    assert new == old


def test_grpcs_own_client_reads_all_descriptions(served: Served) -> None:
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase,
    )

    with grpc.insecure_channel(served.address.removeprefix("grpc://")) as channel:
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        service = pool.FindServiceByName("headgate.v1.ConnectorService")
    assert "ListConnectors" in service.methods_by_name
