"""Waiting within a request until an answer is finished."""

import threading
import time

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from advisor.advise import FINISHED
from advisor.models import Advice

LONGEST_S = 30
LOOK_S = 0.25  # between two looks at the state
WAITERS = 1  # of a web process, which has four threads: others must stay free for quick calls

free = threading.BoundedSemaphore(WAITERS)


def wait_s(request: Request) -> int:
    """The seconds of `?wait=`; 0 without it. ValidationError: not a whole number from 0 to LONGEST_S."""
    text = request.query_params.get("wait", "0")
    if not (text.isascii() and text.isdigit() and int(text[:4]) <= LONGEST_S):
        raise ValidationError({"wait": [f"{text[:20]} is not a whole number of seconds from 0 to {LONGEST_S}."]})
    return int(text)


def until_finished(advice: Advice, seconds: float) -> bool:
    """Whether it is finished, after waiting at most so long; does not wait if too many requests do."""
    if advice.state in FINISHED or not seconds or not free.acquire(blocking=False):
        return advice.state in FINISHED
    try:
        end = time.monotonic() + seconds
        while advice.state not in FINISHED and time.monotonic() < end:
            time.sleep(LOOK_S)
            advice.refresh_from_db(fields=["state"])
    finally:
        free.release()
    if advice.state in FINISHED:
        advice.refresh_from_db()
    return advice.state in FINISHED
