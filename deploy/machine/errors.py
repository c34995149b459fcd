"""Errors of the bring-up: what was expected, what was given, and how to put it right."""

from __future__ import annotations

from dskype.topology.errors import DskypeError


class DeployError(DskypeError):
    """Report that the machine cannot run the product as it is.

    ``message`` names what was expected and what was found; ``fix`` says in one sentence what the user can do.
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
    """A setting given on the command line or in the environment makes no sense."""
