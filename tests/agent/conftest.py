import signal
from collections.abc import Iterator

import pytest

from tests.agent import fake_server


@pytest.fixture
def fake() -> Iterator[fake_server.FakeServer]:
    with fake_server.running() as running:
        yield running


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The agent's command line takes the signals of its process: here it is pytest's."""
    kept = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
    yield
    for number, handler in kept:
        signal.signal(number, handler)
