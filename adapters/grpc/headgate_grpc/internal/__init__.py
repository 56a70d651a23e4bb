"""Calls between workers by gRPC, in place of HTTP."""
