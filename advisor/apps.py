from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import AppConfig


class AdvisorConfig(AppConfig):
    name = "advisor"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from advisor import storage
        from catalog.loading.moves import WATCHERS

        WATCHERS.append(told_of_moves)
        storage.make_files_private()


@contextmanager
def told_of_moves(owner: Any) -> Iterator[None]:
    from advisor import refresh  # here, because commands start faster without the engine

    with refresh.told_of_moves(owner):
        yield
