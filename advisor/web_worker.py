"""gunicorn's threaded worker (27.0) with two habits changed, both seen to stop the whole service.

A thread that reads a request waits for its client without end: a dozen clients that send a byte a second held every
thread. Here a request has a deadline, which arriving bytes move on at a least rate. And a connection is closed in the
worker's only loop, which waits up to two seconds for the client to close too, and every other client with it. Here
that happens in the thread that answered.
"""

import errno
import socket
import time
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

HEAD_S = 10.0  # for a request to arrive, and a second more
BYTES_PER_S = 16 * 1024  # for each so many bytes
SEND_S = 30.0  # for an answer to be taken, likewise


class Bounded(socket.socket):
    """A connection whose blocking reads end at a deadline that arriving bytes move on."""

    until = float("inf")

    def setblocking(self, flag: bool, /) -> None:
        """gunicorn calls this with True where it begins to read a request; also on a closed one."""
        if self.fileno() != -1:
            self.until = time.monotonic() + HEAD_S
            self.settimeout(HEAD_S if flag else 0)

    def recv(self, *given: Any) -> bytes:
        asked_s = self.gettimeout()
        if not asked_s:
            return super().recv(*given)
        self.settimeout(max(min(asked_s, self.until - time.monotonic()), 0.001))
        try:
            found = super().recv(*given)
        except TimeoutError:  # gunicorn passes over a client that went away without a word in the log
            raise ConnectionResetError(errno.ECONNRESET, "the request did not arrive in time") from None
        self.settimeout(asked_s)
        self.until += len(found) / BYTES_PER_S
        return found

    def sendall(self, data: Any, *given: Any) -> None:
        asked_s = self.gettimeout()
        self.settimeout(SEND_S + len(data) / BYTES_PER_S)
        super().sendall(data, *given)
        self.settimeout(asked_s)


class Worker(ThreadWorker):
    def enqueue_req(self, conn: TConn) -> None:
        if not isinstance(conn.sock, Bounded):
            conn.sock = Bounded(fileno=conn.sock.detach())
        super().enqueue_req(conn)

    def handle(self, conn: TConn) -> Any:
        keep = super().handle(conn)
        if keep is False:
            conn.close(graceful=True)  # the loop does so again, which does nothing to a closed socket
        return keep
