"""A server that knows as much of Redis as a writer needs, and replies to a command what no Redis does."""

import contextlib
import socket
import threading


def bulk(text: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text.encode())


HELLO = b"*14\r\n" + b"".join(map(bulk, ["server", "redis", "version", "7.0.0"])) + bulk("proto") + b":2\r\n" + bulk("id") + b":3\r\n" + \
    b"".join(map(bulk, ["mode", "standalone", "role", "master", "modules"])) + b"*0\r\n"


class StrangeServer:
    """`replies` replaces the reply to a command, by its name. One that is a function gives parts, which are sent until the client hangs up."""

    def __init__(self, tls=None, **replies):
        self.replies, self.commands, self.hung_up, self._tls = replies, [], threading.Event(), tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def count(self, command: str) -> int:
        return self.commands.count(command)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        usual = {"HELLO": HELLO, "PING": b"+PONG\r\n", "WAIT": b":1\r\n", "TYPE": b"+none\r\n", "CONFIG": b"*0\r\n"}
        with contextlib.suppress(OSError, ValueError), client:
            if self._tls:
                client = self._tls.wrap_socket(client, server_side=True)
            reader = client.makefile("rb")
            while line := reader.readline():
                words = []
                for _ in range(int(line[1:])):
                    words.append(reader.read(int(reader.readline()[1:])))
                    reader.read(2)
                command = words[0].decode()
                self.commands.append(command)
                usual["XADD"] = bulk(f"1-{self.count('XADD')}")
                reply = self.replies.get(command, usual.get(command, b"+OK\r\n"))
                if isinstance(reply, bytes):
                    client.sendall(reply)
                    continue
                try:
                    for part in reply(words):
                        client.sendall(part)
                finally:
                    self.hung_up.set()
