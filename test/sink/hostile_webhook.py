"""An endpoint that attacks."""

from hostile import MEGABYTE, Fake, Request, Talk


def page(status: str, body: bytes = b"", *fields: str) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields, "\r\n")).encode() + body


class HttpFake(Fake):
    """Reads requests; what they are answered with is the kind's own."""
    keeps_idle = lines = True
    chatter = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    passes = {"nonsense limits": "everything", "flood beside answers": "nothing"}  # an answer comes behind what its connection is flooded with
    without = {"unknown id": "an answer belongs to the request on its connection"}

    def serve(self, talk: Talk) -> None:
        while True:
            head = b""
            while (line := talk.line()) != b"\r\n":
                head += line
            fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.splitlines()[1:])}
            body = talk.read(int(fields[b"content-length"]))
            talk.answer(Request(head + body, body))

    def enormous(self, request: Request) -> bytes:
        return b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 99999999999999999\r\n\r\n"

    def wrong_order(self, request: Request) -> bytes:
        return b"Content-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"

    def endless(self, request: Request) -> tuple[bytes, bytes]:
        return b"HTTP/1.1 500 Internal Server Error\r\nTransfer-Encoding: chunked\r\n\r\n", b"%x\r\n%s\r\n" % (len(MEGABYTE), MEGABYTE)


class Endpoint(HttpFake):
    extension = "outbox"
    nonsense = ("Retry-After: 99999999999999999999", "RateLimit-Reset: -1", "RateLimit-Remaining: 0", "Keep-Alive: timeout=-1, max=0")

    def statements(self, more: str) -> list[str]:
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'http://127.0.0.1:{self.port}/in', allow_http 'true',"
                f" allow_networks '127.0.0.0/8', timeout '5s'{more})"]

    def answer(self, request: Request, refused: bool = False) -> bytes:
        fields = self.nonsense if self.attack.name == "nonsense limits" else ()
        return page("400 Bad Request", b"not this event", *fields) if refused else page("200 OK", b"thanks", *fields)
