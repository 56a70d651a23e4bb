"""Tables that sinks write: Delta and Iceberg."""
