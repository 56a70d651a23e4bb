"""The reflection service. It takes 4 MiB and few clients use it, so its first call loads it.

It is served as v1 and as v1alpha. Their messages are the same bytes, so one handler answers both.
"""

from collections.abc import Sequence
from typing import Any, Final

import grpc

OLD: Final = "grpc.reflection.v1alpha"
NEW: Final = "grpc.reflection.v1"
SERVICES: Final = tuple(f"{package}.ServerReflection" for package in (NEW, OLD))
METHODS: Final = {f"/{service}/ServerReflectionInfo" for service in SERVICES}


class Reflection(grpc.GenericRpcHandler):
    """The handler of the reflection service.

    Args:
        names: full names of the server's other services.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = (*names, *SERVICES)
        self._handler: Any = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if handler_call_details.method not in METHODS:
            return None
        if self._handler is None:
            self._handler = self._made()
        return self._handler

    def _made(self) -> Any:
        from grpc_reflection.v1alpha import reflection, reflection_pb2

        pool = _Described(reflection_pb2.DESCRIPTOR)
        servicer: Any = reflection.aio.ReflectionServicer(self._names, pool)
        return grpc.stream_stream_rpc_method_handler(
            servicer.ServerReflectionInfo,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )


class _Described:
    """The descriptor pool of the service: all descriptors that this process has loaded, and v1 of
    the reflection service itself.

    The package `grpc_reflection` has no descriptor of v1, but a client that describes each listed
    service asks for it. It is not added to the process's default pool, where it would clash with
    the descriptor of a later `grpc_reflection`.
    """

    def __init__(self, old: Any) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool

        self._all: Any = descriptor_pool.Default()
        self._added: Any = descriptor_pool.DescriptorPool()
        described = descriptor_pb2.FileDescriptorProto()
        old.CopyToProto(described)
        described.package = NEW
        described.name = f"{NEW.replace('.', '/')}/reflection.proto"
        for message in described.message_type:
            for field in message.field:
                if field.type_name:
                    field.type_name = _renamed(field.type_name)
        for service in described.service:
            for method in service.method:
                method.input_type = _renamed(method.input_type)
                method.output_type = _renamed(method.output_type)
        self._added.Add(described)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._all, name)

    def FindFileByName(self, name: str) -> Any:  # noqa: N802
        try:
            return self._added.FindFileByName(name)
        except KeyError:
            return self._all.FindFileByName(name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802
        try:
            return self._added.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._all.FindFileContainingSymbol(symbol)


def _renamed(name: str) -> str:
    return name.replace(f".{OLD}.", f".{NEW}.")
