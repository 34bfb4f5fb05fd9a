"""Kombu's filesystem broker, made safe for several writers and readers.

Kombu writes a message under its final name, so a reader can read half a message, which ends the worker. Here messages
only appear and disappear by rename. Select it with `broker_transport = "advisor.ops.broker:Transport"`.
"""

import json
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

import structlog
from kombu.exceptions import ChannelError
from kombu.transport import filesystem, virtual
from kombu.utils.json import dumps, loads

log = structlog.get_logger("assay.broker")
DRAFT, TAKEN, UNREADABLE = ".draft", ".taken", ".unreadable"  # suffixes that readers ignore


class Channel(filesystem.Channel):
    """One folder of messages, whose names start with the time and so sort in order."""

    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]  # as kombu has it
        whole = Path(self.data_folder_out, f"{time.time_ns():020}_{uuid.uuid4()}.{queue}.msg")
        draft = with_suffix(whole, DRAFT)
        try:
            draft.write_text(dumps(payload), encoding="utf-8")
            draft.rename(whole)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise ChannelError(f"Cannot add {whole.name} to the queue: {error}") from error

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        """The oldest message of the queue. Raises Empty. Unreadable messages are set aside."""
        for name in sorted(os.listdir(self.data_folder_in)):
            if name.partition(".")[2] != f"{queue}.msg":
                continue
            claimed = with_suffix(Path(self.data_folder_in, name), TAKEN)
            try:
                os.rename(Path(self.data_folder_in, name), claimed)
                text = claimed.read_bytes()
            except OSError:  # another reader was first
                continue
            try:
                payload = loads(text)
            except (json.JSONDecodeError, UnicodeDecodeError):
                set_aside(claimed, name)
                continue
            claimed.unlink()
            return payload
        raise Empty

    def _queue_bind(self, exchange: str, routing_key: str | None, pattern: str | None, queue: str) -> None:
        """Kombu creates an exchange's table empty and fills it later; here it is valid JSON from the start."""
        file: Path = self._exchange_file(exchange)  # type: ignore[attr-defined]  # not in its stubs
        if not file.exists():
            draft = with_suffix(file, f".{uuid.uuid4()}{DRAFT}")
            draft.write_text("[]")
            with suppress(FileExistsError):  # another process was first
                os.link(draft, file)
            draft.unlink()
        super()._queue_bind(exchange, routing_key or "", pattern or "", queue)


def with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def set_aside(claimed: Path, name: str) -> None:
    """Keeps a damaged message for inspection; the sweep sends the task again."""
    log.error("message cannot be read, set aside", file=name + UNREADABLE)
    with suppress(OSError):
        claimed.rename(claimed.with_name(name + UNREADABLE))


class Transport(filesystem.Transport):
    Channel = Channel
    global_state = virtual.BrokerState()
