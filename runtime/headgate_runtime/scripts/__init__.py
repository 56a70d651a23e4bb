"""Commands for scripts: one JSON object per line in and out."""
