"""Errors of starting on this machine: what was expected, what was given, and how to fix it."""

from __future__ import annotations

from dskype.topology.errors import DskypeError


class DeployError(DskypeError):
    """The machine cannot run the product as it is.

    :param message: what was expected and what was found.
    :param fix: what the user can do, in one sentence.
    """

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message


class JavaError(DeployError):
    """No usable Java runtime."""


class JarsError(DeployError):
    """Jars could not be fetched, or differ from the committed checksums."""


class BrokerError(DeployError):
    """The embedded broker did not start or did not stop."""


class OptionError(DeployError, ValueError):
    """A setting on the command line or in the environment is invalid."""
