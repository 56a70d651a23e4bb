"""Commands that operate a running cluster: over gRPC, or over REST where it is a Java worker's."""
