from collections.abc import Iterator

import pytest

from tests.agent import fake_server


@pytest.fixture
def fake() -> Iterator[fake_server.FakeServer]:
    with fake_server.running() as running:
        yield running
