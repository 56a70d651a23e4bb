"""Data topics: consumers and producers of tasks."""
