"""Pairs of what happens to a webhook at once, on two connections; the first pauses before each of its statements.

Prints how many pauses there were, and every error.
"""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import django
from django.http import Http404

Act = Callable[[Any], Any]
PAUSE_S = 20  # of a test that hangs


def raced(first: Act, second: Act, row: Any, pause_before: int) -> tuple[bool, list[str]]:
    """(whether the first has so many statements, errors of both)."""
    from django.db import connection, connections

    paused, ended, errors = threading.Event(), threading.Event(), list[str]()
    go_on = threading.Event()

    def run(act: Act, pauses: bool) -> None:
        count = 0

        def wrapped(execute: Any, sql: str, *rest: Any) -> Any:
            nonlocal count
            count += 1
            if count == pause_before:
                paused.set()
                go_on.wait(PAUSE_S)
            return execute(sql, *rest)

        try:
            with connection.execute_wrapper(wrapped if pauses else lambda execute, *rest: execute(*rest)):
                act(row)
        except Exception as error:
            errors.append(f"{act.__name__}: {error!r}"[:300])
        finally:
            connections.close_all()
            (paused if pauses else ended).set()

    one, two = (threading.Thread(target=run, args=pair) for pair in ((first, True), (second, False)))
    one.start()
    assert paused.wait(PAUSE_S)
    reached = one.is_alive()
    two.start()
    blocked = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    with connection.cursor() as cursor:
        while not ended.wait(0.01):
            cursor.execute(blocked)
            if cursor.fetchone()[0]:
                break
    go_on.set()
    one.join(PAUSE_S)
    two.join(PAUSE_S)
    return reached, errors + ["hangs"] * (one.is_alive() or two.is_alive())


def main() -> None:
    django.setup()
    from advisor import webhooks
    from advisor.models import WebhookEndpoint
    from advisor.webhooks import addresses, sending
    from catalog.models import default_organisation

    answers: list[tuple[int | None, str]] = [(204, "")]
    addresses.checked, addresses.post = lambda url: None, lambda *args: answers[0]  # type: ignore[assignment,return-value]

    def claim(row: Any) -> None:
        sending.claimed()

    def send(row: Any) -> None:
        if row.claimed:
            sending.attempt(row.claimed)

    def delete(row: Any) -> None:
        webhooks.delete(row, "ada")

    def tell(row: Any) -> None:
        with suppress(Http404):  # it was deleted in between
            webhooks.ping(row)

    def again(row: Any) -> None:
        for each in row.deliveries.all():
            webhooks.again(each, "ada")

    acts: list[Act] = [claim, send, delete, tell, again]
    pauses, errors = 0, list[str]()
    for first in acts:
        for second in acts:
            for status in (204, 410) if send in (first, second) else (204,):
                answers[0] = (status, "" if status == 204 else "HTTP 410")
                for n in range(1, 40):
                    WebhookEndpoint.objects.all().delete()
                    row = webhooks.create(default_organisation(), "https://a.example/", ["advice.finished"], "ada")
                    webhooks.ping(row), webhooks.ping(row)
                    row.claimed = sending.claimed() if send in (first, second) else None  # type: ignore[attr-defined]
                    WebhookEndpoint.objects.update(busy_until=None)  # as if the worker's time had passed
                    reached, wrong = raced(first, second, row, n)
                    errors += [f"{first.__name__} paused before {n}, {second.__name__}: {each}" for each in wrong]
                    pauses += reached
                    if not reached:
                        break
    print(json.dumps({"pauses": pauses, "errors": errors}))


if __name__ == "__main__":
    main()
