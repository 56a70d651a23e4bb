"""Files of a folder as a source reads them: found, followed, read from a position."""
