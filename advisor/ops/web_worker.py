"""gunicorn's threaded worker (27.0) with four habits changed, all seen to stop or hold up clients.

A thread that reads a request waits for its client without end: a dozen clients that send a byte a second held every
thread. Here a request has a deadline, which arriving bytes move on at a least rate. And a connection is closed in the
worker's only loop, which waits up to two seconds for the client to close too, and every other client with it. Here
that happens in the thread that answered. A liveness probe waits for a thread: where all of them wait for a
locked database, a kubelet would restart a server that is fine. Here the loop itself answers GET /healthz. And a worker
that stops keeps its port open until its last answer, so that new clients wait for nobody. Here it takes those who have
connected and closes the port, so that others are refused at once and turn to another server.
"""

import errno
import selectors
import socket
import time
from contextlib import suppress
from functools import partial
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

HEAD_S = 10.0  # for a request to arrive, and a second more
BYTES_PER_S = 16 * 1024  # for each so many bytes
SEND_S = 30.0  # for an answer to be taken, likewise
PROBE_BYTES = 4096  # of a liveness probe, head and all
ALIVE = b'{"status": "ok"}'


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


def is_liveness_probe(head: bytes) -> bool:
    """A whole GET or HEAD request for /healthz, without a body."""
    return head.startswith((b"GET /healthz HTTP/1.", b"HEAD /healthz HTTP/1.")) and head.endswith(b"\r\n\r\n")


def answer_liveness(head: bytes) -> bytes:
    lines = ["HTTP/1.1 200 OK", "Content-Type: application/json", f"Content-Length: {len(ALIVE)}"]
    lines += ["Cache-Control: no-store", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + (b"" if head.startswith(b"HEAD") else ALIVE)


class Worker(ThreadWorker):
    listening = True

    def set_accept_enabled(self, enabled: bool) -> None:
        super().set_accept_enabled(enabled)
        if self.listening and not self.alive and not enabled:
            self.listening = False
            for listener in self.sockets:
                while self.accept(listener):
                    pass
                listener.close()

    def accept(self, listener: socket.socket) -> bool:
        """Into the loop first: a connection takes a thread when its request begins to arrive. False: none waits."""
        try:
            client_sock, client_addr = listener.accept()
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ECONNABORTED):
                return False
            raise
        self.nr_conns += 1
        conn = TConn(self.cfg, client_sock, client_addr, listener.getsockname())
        conn.timeout = time.monotonic() + HEAD_S
        self.pending_conns.append(conn)
        readable = partial(self.on_pending_socket_readable, conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, readable)
        return True

    def on_pending_socket_readable(self, conn: TConn, client: socket.socket) -> None:
        if not self.answered_in_the_loop(conn):
            super().on_pending_socket_readable(conn, client)

    def answered_in_the_loop(self, conn: TConn) -> bool:
        """Whether it was a liveness probe, which needs no thread. Nothing here waits."""
        try:
            head = conn.sock.recv(PROBE_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            if not is_liveness_probe(head):
                return False
            conn.sock.recv(len(head), socket.MSG_DONTWAIT)
            conn.sock.send(answer_liveness(head), socket.MSG_DONTWAIT)
        except OSError:  # gone, or nothing there yet: a thread finds out
            return False
        self.poller.unregister(conn.sock)
        self.pending_conns.remove(conn)
        self.nr_conns -= 1
        with suppress(OSError):
            conn.sock.shutdown(socket.SHUT_WR)
        conn.close()
        return True

    def enqueue_req(self, conn: TConn) -> None:
        if not isinstance(conn.sock, Bounded):
            conn.sock = Bounded(fileno=conn.sock.detach())
        super().enqueue_req(conn)

    def handle(self, conn: TConn) -> Any:
        keep = super().handle(conn)
        if keep is False:
            conn.close(graceful=True)  # the loop does so again, which does nothing to a closed socket
        return keep
