"""Messages only wake somebody: lost, repeated and late ones change nothing."""

import shutil

import pytest

from tests.world import World


def test_an_advice_delivered_many_times_to_two_workers_is_computed_once(world: World) -> None:
    (pk,) = world.ask()
    send = f"from advisor.celery import app\nfor _ in range(20): app.send_task('advice.run', args=['{pk}'])"
    world.python("-c", send)
    world.worker()
    world.worker()
    world.until(lambda: len(world.runs()) >= 1)
    world.let_go()
    waiting = world.folder / "broker" / "messages"
    world.until(lambda: world.states() == ["done"] and not any(waiting.iterdir()))
    assert len(world.runs()) == 1
    assert world.rows("select attempt from advisor_advice") == [(1,)]
    assert world.rows("select count(*) from advisor_option") == [(2,)]


@pytest.mark.parametrize("world", ["sqlite files"], indirect=True)
def test_advices_whose_messages_were_lost_are_sent_again(world: World) -> None:
    world.let_go()
    world.ask(3)
    shutil.rmtree(world.folder / "broker" / "messages")
    (world.folder / "broker" / "messages").mkdir()
    world.worker()
    world.beat()
    world.until(lambda: world.states() == ["done"] * 3)
    assert len(world.runs()) == 3
