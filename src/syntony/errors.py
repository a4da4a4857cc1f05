"""The tree of errors a user can meet. Each message is one line: what is wrong, what to do.

SyntonyError
├── UsageError        what was asked for does not exist or does not fit
│   ├── DeniedError   the caller's role may not ask for it
│   └── BusyError     the other side has too much to do, or it takes too long
├── ConfigError       a configuration file is wrong
├── InputError        a file given for analysis is not what it must be
├── MissingError      this machine lacks something (a tool, a permission, a kernel feature)
├── WireError         bytes from another process are not what they should be
├── StoreError        the store refused or lost something
├── StateError        control state cannot be read or written
└── RemoteError       the other side answered with an error, or not at all
    └── RefusalError  the other side answers that it does not do it
"""


class SyntonyError(Exception):
    """Base of everything that reaches the command line as one line."""

    exit_code = 2


class UsageError(SyntonyError):
    """The command names something that does not exist or does not fit."""


class DeniedError(UsageError):
    """The caller's role may not ask for it."""


class BusyError(UsageError):
    """The other side has too much to do, or carrying it out takes too long."""


class ConfigError(SyntonyError):
    """A configuration file is wrong."""


class InputError(SyntonyError):
    """A file given for analysis is invalid. `name` identifies the problem for programs."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class MissingError(SyntonyError):
    """This machine lacks a tool, a permission or a kernel feature."""


class WireError(SyntonyError):
    """Bytes from another process are not what they should be."""


class StoreError(SyntonyError):
    """The store refused or lost something."""


class StateError(SyntonyError):
    """Control state cannot be read or written; nothing was changed."""


class RemoteError(SyntonyError):
    """The other side answered with an error, or not at all."""

    exit_code = 3


class RefusalError(RemoteError):
    """The other side answers that it does not do it, and why."""


class UnansweredError(RemoteError):
    """A request may have arrived, and no answer came: an order may have been carried out."""
