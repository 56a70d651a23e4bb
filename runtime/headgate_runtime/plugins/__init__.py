"""Connector plugins: found by name, checked, validated, listed."""
