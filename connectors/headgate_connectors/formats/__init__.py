"""Formats of files: blocks to rows and columns."""
