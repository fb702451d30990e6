"""Errors that end a command: one line that says what is wrong and what to do next."""

from __future__ import annotations


class CuwhyError(Exception):
    """A failure that the user can act on.

    Args:
        message: what is wrong, one line, naming the file where there is one.
        hint: what to do next; printed after the message.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class InputError(CuwhyError):
    """A file is not what it claims to be, is damaged, or is beyond a limit."""


class ToolMissing(CuwhyError):
    """A feature needs a program or package that is not installed here."""
