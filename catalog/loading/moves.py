"""Lets others see prices before and after they change: whatever adds, changes or removes them is `moving`."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar

from django.db import transaction

from catalog.models import Organisation

WATCHERS: list[Callable[[Organisation | None], AbstractContextManager[None]]] = []
_is_moving = ContextVar("moving", default=False)


@contextmanager
def moving(owner: Organisation | None = None) -> Iterator[None]:
    """Within it prices of `owner`, or public ones, change, in one transaction; watchers see the outermost one."""
    with transaction.atomic(), ExitStack() as around:
        if not _is_moving.get():
            around.callback(_is_moving.reset, _is_moving.set(True))
            for watcher in WATCHERS:
                around.enter_context(watcher(owner))
        yield
