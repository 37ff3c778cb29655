"""Inside a network namespace: a name server whose answers a test controls, and listeners on addresses that must not
be reached."""

import ipaddress
import selectors
import socket
import threading

from dnslib import AAAA, QTYPE, RR, A, DNSRecord

from .namespace import Namespace


class _Inside:
    """A thread whose sockets are in the namespace, until stop()."""

    def __init__(self, namespace: Namespace):
        self._namespace, self._stopping = namespace, False
        self._ready, self._failure = threading.Event(), None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure:
            raise self._failure

    def _run(self) -> None:
        sockets: list[socket.socket] = []
        try:
            self._namespace.enter()
            sockets += self._open()
        except OSError as e:
            self._failure = e
        self._ready.set()
        with selectors.DefaultSelector() as ears:
            for each in sockets:
                ears.register(each, selectors.EVENT_READ)
            while sockets and not self._stopping:
                for key, _ in ears.select(0.1):
                    self._serve(key.fileobj)
        for each in sockets:
            each.close()

    def stop(self) -> None:
        self._stopping = True
        self._thread.join()


class Resolver(_Inside):
    """The name server of processes that are started in the namespace afterwards. `answers`: the addresses for all
    names, with TTL 0; names in `unanswered` get no response."""

    def __init__(self, namespace: Namespace):
        self.answers: list[str] = []
        self.unanswered: set[str] = set()
        self.asked = 0
        super().__init__(namespace)
        namespace.use_resolver("127.0.0.1")

    def _open(self) -> list[socket.socket]:
        port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        port.bind(("127.0.0.1", 53))
        return [port]

    def _serve(self, port: socket.socket) -> None:
        data, peer = port.recvfrom(4096)
        query = DNSRecord.parse(data)
        reply, wanted = query.reply(), query.q.qtype
        for address in map(ipaddress.ip_address, self.answers):
            kind, data = (QTYPE.AAAA, AAAA) if address.version == 6 else (QTYPE.A, A)
            if wanted == kind:
                reply.add_answer(RR(query.q.qname, kind, rdata=data(tuple(address.packed)), ttl=0))
        self.asked += 1
        if str(query.q.qname).rstrip(".") in self.unanswered:
            return
        port.sendto(reply.pack(), peer)


class Ears(_Inside):
    """Listens on one port of each address; `heard` are the addresses at which a connection arrived."""

    def __init__(self, namespace: Namespace, addresses: list[str], port: int):
        self._addresses, self._port = addresses, port
        self.heard: list[str] = []
        super().__init__(namespace)

    def _open(self) -> list[socket.socket]:
        return [socket.create_server((address, self._port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
                for address in self._addresses]

    def _serve(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        self.heard.append(listener.getsockname()[0])
        connection.close()
