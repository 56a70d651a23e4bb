"""Backends of the gRPC services: one worker, or all workers of a `headgate up`."""
