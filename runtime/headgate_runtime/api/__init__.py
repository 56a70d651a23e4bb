"""What stands behind the gRPC services: one worker, or all workers of a `headgate up`."""
