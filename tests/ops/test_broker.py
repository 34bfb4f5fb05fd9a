"""The broker of plain files: many writers and readers at once lose nothing, and damage stops nobody."""

import multiprocessing
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from kombu import Connection

from advisor.celery import app
from advisor.ops.broker import Transport

WRITERS, READERS, EACH = 3, 2, 60
SPAWN = multiprocessing.get_context("spawn")


def connection(folder: Path) -> Connection:
    options = {"data_folder_in": str(folder), "data_folder_out": str(folder), "control_folder": str(folder / "control")}
    return Connection("filesystem://", transport="advisor.ops.broker:Transport", transport_options=options)


def write(folder: Path, writer: int) -> None:
    with connection(folder) as opened:
        queue = opened.SimpleQueue("jobs")
        for number in range(EACH):
            queue.put([writer, number, "x" * 500_000])  # long enough to be seen half written


def read(folder: Path, found: Any) -> None:
    """Sends what it read until nothing came for a while after the first message."""
    with connection(folder) as opened:
        queue = opened.SimpleQueue("jobs")
        while True:
            try:
                message = queue.get(timeout=3)
            except Empty:
                return found.put(None)
            found.put(tuple(message.payload[:2]))
            message.ack()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "control").mkdir()
    Transport.global_state.clear()  # it remembers the queues of another test's folder
    return tmp_path


def test_the_service_uses_this_broker_when_it_has_no_redis() -> None:
    if app.conf.broker_url.startswith("redis"):
        pytest.skip("this run is told to use Redis")
    with app.connection_for_write() as opened:
        assert type(opened.transport).__module__ == "advisor.ops.broker"


def test_many_writers_and_readers_lose_nothing(folder: Path) -> None:
    found = SPAWN.Queue()
    readers = [SPAWN.Process(target=read, args=(folder, found), daemon=True) for _ in range(READERS)]
    writers = [SPAWN.Process(target=write, args=(folder, writer), daemon=True) for writer in range(WRITERS)]
    for process in readers + writers:
        process.start()
    read_all: list[tuple[int, int]] = []
    for _ in range(READERS):
        read_all += iter(lambda: found.get(timeout=30), None)
    for process in readers + writers:
        process.join()
    assert [process.exitcode for process in readers + writers] == [0] * (READERS + WRITERS)
    assert sorted(read_all) == [(writer, number) for writer in range(WRITERS) for number in range(EACH)]
    assert [path.name for path in folder.iterdir()] == ["control"]


def test_a_damaged_message_is_set_aside_and_the_next_one_read(folder: Path) -> None:
    with connection(folder) as opened:
        queue = opened.SimpleQueue("jobs")
        (folder / "00_first.jobs.msg").write_text('{"body": ')
        queue.put("sound")
        assert queue.get(timeout=5).payload == "sound"
    assert (folder / "00_first.jobs.msg.unreadable").exists()


def test_a_message_half_written_is_not_there_yet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    write_text = Path.write_text

    def slowly(path: Path, text: str, **options: Any) -> int:
        write_text(path, text[: len(text) // 2], **options)
        seen.append(any(entry.name.endswith(".msg") for entry in folder.iterdir()))
        return write_text(path, text, **options)

    with connection(folder) as opened:
        queue = opened.SimpleQueue("jobs")
        monkeypatch.setattr(Path, "write_text", slowly)
        queue.put("whole")
        assert seen and not any(seen) and queue.get(timeout=5).payload == "whole"


def test_a_draft_is_not_read(folder: Path) -> None:
    with connection(folder) as opened:
        (folder / "00_first.jobs.msg.draft").write_text('{"body": ')
        with pytest.raises(Empty):
            opened.SimpleQueue("jobs").get(block=False)
    assert (folder / "00_first.jobs.msg.draft").exists()


def test_messages_come_in_the_order_of_their_sending(folder: Path) -> None:
    with connection(folder) as opened:
        queue = opened.SimpleQueue("jobs")
        for number in range(20):
            queue.put(number)
        assert [queue.get(timeout=5).payload for _ in range(20)] == list(range(20))
