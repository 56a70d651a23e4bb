"""The adapters that carry a worker's logs, group and calls."""
