"""Files that sinks write: parts, manifests, partitions."""
