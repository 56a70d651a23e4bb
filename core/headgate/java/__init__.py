"""Java's behaviour where a wire format depends on it: JSON, hash order, doubles, patterns."""
