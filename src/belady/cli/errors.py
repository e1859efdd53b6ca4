"""Errors of the command line itself. Both carry a message that says what to do."""

from __future__ import annotations


class UsageError(Exception):
    """Wrong use, or an environment that lacks something: exit code 2."""


class CommandFailed(Exception):  # noqa: N818 - says what happened
    """The command was right, but its work failed: exit code 1."""
