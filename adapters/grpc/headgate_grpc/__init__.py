"""The public gRPC API, ``headgate.v1``: a service that `headgate worker` and `headgate up`
serve, and clients for it. Needs the extra ``grpc``. What it can do: ``docs/run/grpc.md``.
"""
