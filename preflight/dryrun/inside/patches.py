"""What is put in place of something else: functions that look like it, and an object that takes every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def wrap(home: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """`wrapper(real, *args, **kwargs)` in place of `home.name`; nothing where there is no such name."""
    real = getattr(home, name, None)
    if real is None:
        return

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(real, *args, **kwargs)

    _named_as(wrapped, real, name)
    setattr(home, name, wrapped)


def replace(home: Any, name: str, value: Any) -> None:
    """`value` in place of `home.name`."""
    real = getattr(home, name, None)
    if callable(value) and not isinstance(value, type) and real is not None:
        _named_as(value, real, name)
    setattr(home, name, value)


def _named_as(function: Any, real: Any, name: str) -> None:
    try:
        function.__name__ = getattr(real, "__name__", name)
        function.__doc__ = getattr(real, "__doc__", "")
        function.__wrapped__ = real
    except (AttributeError, TypeError):
        pass  # a bound method keeps its own name


def answers(value: Any) -> Callable[..., Any]:
    """A function that returns `value`, whatever it is given."""

    def answer(*_: Any, **__: Any) -> Any:
        return value

    return answer


class Sink:
    """Takes the call of every method, for loggers and timers. It cannot be called itself, as what it stands for."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def __iter__(self) -> Any:
        return iter(())

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, _: Any) -> Any:
        return Anything()

    def __setitem__(self, _: Any, __: Any) -> None: ...
    def __fspath__(self) -> str:
        return "stand-in"


class Anything(Sink):
    """The same where it may be a function, too."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        return Anything()
