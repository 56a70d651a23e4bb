"""The public gRPC API, ``headgate.v1``: the server in `headgate worker` and `headgate up`, and
clients for it. It needs the extra ``grpc``. ``docs/run/grpc.md`` describes what it can do.
"""
