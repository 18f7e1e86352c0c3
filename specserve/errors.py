"""Errors a user can cause. Each message names the key, the value and the remedy.

Everything else that goes wrong is a bug and travels as an ordinary exception.
"""


class UserError(ValueError):
    """Base of all errors a user can cause; `param` is the key it is about, if there is one."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ConfigError(UserError):
    """A flag, a configuration key or a combination of them that cannot be."""


class ModelError(UserError):
    """A checkpoint that cannot be found, read or run. The message names file and tensor."""


class InvalidRequest(UserError):
    """A request that cannot be served as it stands (HTTP 400)."""


class NotBuiltYet(UserError):
    """A name that is announced but not built yet; the message names it."""

    def __init__(self, name: str, param: str | None = None) -> None:
        super().__init__(f"{name} is not built yet.", param)
        self.name = name


class Overloaded(UserError):
    """The waiting queue is full (HTTP 503); try again later."""
