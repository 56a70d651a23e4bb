"""The reflection service, which is loaded when it is asked for the first time: it takes 4 MiB, and
few ask for it.
"""

from collections.abc import Sequence
from typing import Any, Final

import grpc

SERVICE: Final = "grpc.reflection.v1alpha.ServerReflection"
METHOD: Final = f"/{SERVICE}/ServerReflectionInfo"


class Reflection(grpc.GenericRpcHandler):
    """
    Args:
        names: of the other services that the server has.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = (*names, SERVICE)
        self._handler: Any = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if handler_call_details.method != METHOD:
            return None
        if self._handler is None:
            self._handler = self._made()
        return self._handler

    def _made(self) -> Any:
        from grpc_reflection.v1alpha import reflection, reflection_pb2

        servicer: Any = reflection.aio.ReflectionServicer(self._names)
        return grpc.stream_stream_rpc_method_handler(
            servicer.ServerReflectionInfo,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
