"""gunicorn's threaded worker (27.0) with five changes, each for a problem seen in tests.

- gunicorn reads a request without a time limit, so a dozen slow clients can occupy all threads. Here a request has a
  deadline, extended by arriving bytes at a minimum rate.
- gunicorn closes connections in the event loop, which waits up to two seconds for the client and blocks all others.
  Here the thread that answered closes the connection.
- A liveness probe waits for a free thread, so a kubelet would restart a healthy server whose threads wait for a locked
  database. Here the event loop answers GET /healthz.
- A stopping worker keeps its port open until its last response, so new clients wait in vain. Here it accepts those
  already connected and closes the port, so that others are refused and can turn to another server.
- What the first pages would wait for is loaded in the background after the start.
"""

import errno
import selectors
import socket
import time
from contextlib import suppress
from functools import partial
from typing import Any

from django.apps import apps
from gunicorn.workers.gthread import TConn, ThreadWorker

from advisor.watch import counts_folder

REQUEST_S = 10.0  # to receive a request, plus one second per BYTES_PER_S
BYTES_PER_S = 16 * 1024
SEND_S = 30.0  # to send a response, plus one second per BYTES_PER_S
PROBE_BYTES = 4096  # maximum size of a liveness probe
ALIVE = b'{"status": "ok"}'


class DeadlineSocket(socket.socket):
    """A connection whose blocking reads have a deadline, which arriving bytes extend."""

    deadline = float("inf")

    def setblocking(self, flag: bool, /) -> None:
        """gunicorn calls this with True before it reads a request, also on a closed connection."""
        if self.fileno() != -1:
            self.deadline = time.monotonic() + REQUEST_S
            self.settimeout(REQUEST_S if flag else 0)

    def recv(self, *given: Any) -> bytes:
        timeout_s = self.gettimeout()
        if not timeout_s:
            return super().recv(*given)
        self.settimeout(max(min(timeout_s, self.deadline - time.monotonic()), 0.001))
        try:
            data = super().recv(*given)
        except TimeoutError:  # gunicorn ignores a reset connection without logging it
            raise ConnectionResetError(errno.ECONNRESET, "the request did not arrive in time") from None
        self.settimeout(timeout_s)
        self.deadline += len(data) / BYTES_PER_S
        return data

    def sendall(self, data: Any, *given: Any) -> None:
        timeout_s = self.gettimeout()
        self.settimeout(SEND_S + len(data) / BYTES_PER_S)
        super().sendall(data, *given)
        self.settimeout(timeout_s)


def is_liveness_probe(head: bytes) -> bool:
    """Whether this is a complete GET or HEAD request for /healthz."""
    return head.startswith((b"GET /healthz HTTP/1.", b"HEAD /healthz HTTP/1.")) and head.endswith(b"\r\n\r\n")


def answer_liveness(head: bytes) -> bytes:
    lines = ["HTTP/1.1 200 OK", "Content-Type: application/json", f"Content-Length: {len(ALIVE)}"]
    lines += ["Cache-Control: no-store", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + (b"" if head.startswith(b"HEAD") else ALIVE)


class Worker(ThreadWorker):
    listening = True

    @classmethod
    def setup(cls) -> None:
        """gunicorn calls this in its main process, before it forks."""
        counts_folder.create()

    def run(self) -> None:
        if apps.ready:
            from advisor.ops import warm  # this module is loaded before Django is set up

            warm.in_background()
        super().run()

    def set_accept_enabled(self, enabled: bool) -> None:
        super().set_accept_enabled(enabled)
        if self.listening and not self.alive and not enabled:
            self.listening = False
            for listener in self.sockets:
                while self.accept(listener):
                    pass
                listener.close()

    def accept(self, listener: socket.socket) -> bool:
        """Adds a connection to the event loop; it gets a thread when its request arrives. False if none is waiting."""
        try:
            client_sock, client_addr = listener.accept()
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ECONNABORTED):
                return False
            raise
        self.nr_conns += 1
        conn = TConn(self.cfg, client_sock, client_addr, listener.getsockname())
        conn.timeout = time.monotonic() + REQUEST_S
        self.pending_conns.append(conn)
        readable = partial(self.on_pending_socket_readable, conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, readable)
        return True

    def on_pending_socket_readable(self, conn: TConn, client: socket.socket) -> None:
        if not self.answer_in_loop(conn):
            super().on_pending_socket_readable(conn, client)

    def answer_in_loop(self, conn: TConn) -> bool:
        """Answers a liveness probe without blocking. False if it is another request."""
        try:
            head = conn.sock.recv(PROBE_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            if not is_liveness_probe(head):
                return False
            conn.sock.recv(len(head), socket.MSG_DONTWAIT)
            conn.sock.send(answer_liveness(head), socket.MSG_DONTWAIT)
        except OSError:  # closed, or nothing received yet: leave it to a thread
            return False
        self.poller.unregister(conn.sock)
        self.pending_conns.remove(conn)
        self.nr_conns -= 1
        with suppress(OSError):
            conn.sock.shutdown(socket.SHUT_WR)
        conn.close()
        return True

    def enqueue_req(self, conn: TConn) -> None:
        if not isinstance(conn.sock, DeadlineSocket):
            conn.sock = DeadlineSocket(fileno=conn.sock.detach())
        super().enqueue_req(conn)

    def handle(self, conn: TConn) -> Any:
        keep = super().handle(conn)
        if keep is False:
            conn.close(graceful=True)  # the loop closes it again, which has no effect
        return keep
