"""Reads that one call makes once, however many estimates it computes: all of them see the same catalog."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

READ: ContextVar[dict[Any, Any] | None] = ContextVar("read", default=None)
Function = TypeVar("Function", bound=Callable[..., Any])


@contextmanager
def read_once(kept: dict[Any, Any]) -> Iterator[None]:
    """Within it, functions marked `once` keep in `kept` what they return, which nobody may change then."""
    token = READ.set(kept)
    try:
        yield
    finally:
        READ.reset(token)


def once(key: Callable[..., Any] = lambda *given: given) -> Callable[[Function], Function]:
    """Marks a function that reads the catalog. `key`: what its result depends on, of its arguments."""

    def marked(function: Function) -> Function:
        @wraps(function)
        def read(*given: Any) -> Any:
            known = READ.get()
            if known is None:
                return function(*given)
            name = (function, key(*given))
            if name not in known:
                known[name] = function(*given)
            return known[name]

        return read  # type: ignore[return-value]

    return marked
