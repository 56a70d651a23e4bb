"""Exit codes of commands, and errors whose message is for the user."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class UpError(Exception):
    """`headgate up` cannot do what was asked. The message is for the user."""

    def __init__(self, message: str, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code
