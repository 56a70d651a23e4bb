"""Spark for a worker: the server that it starts, the launcher of its resident tasks."""
