"""A front stands between a sink and moto: it writes down the requests, and gives the answers that moto never gives, in the words of AWS's references."""

import contextlib
import http.client
import json
import socket
import threading
import urllib.parse
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Callable

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from outbox_rig.process import free_port


@dataclass
class Request:
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def operation(self) -> str:
        target = self.headers.get("x-amz-target", "")
        return target.rsplit(".", 1)[1] if target else self.form["Action"]

    @property
    def form(self) -> dict[str, str]:
        return dict(urllib.parse.parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def size(self) -> int:
        """The number of its entries."""
        if "x-amz-target" in self.headers:
            return len(self.json["Entries"])
        return sum(name.endswith(".Id") for name in self.form)


def signature_of(request: Request, service: str, region: str, key_id: str, secret: str) -> str:
    """The header authorization as botocore makes it of what has arrived."""
    signer = SigV4Auth(Credentials(key_id, secret), service, region)
    signed = request.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    rebuilt = AWSRequest("POST", f"http://{request.headers['host']}{request.path}", {name: request.headers[name] for name in signed}, request.body)
    rebuilt.context["timestamp"] = request.headers["x-amz-date"]
    signature = signer.signature(signer.string_to_sign(rebuilt, signer.canonical_request(rebuilt)), rebuilt)
    return f"AWS4-HMAC-SHA256 Credential={signer.scope(rebuilt)}, SignedHeaders={signer.signed_headers(signer.headers_to_sign(rebuilt))}, Signature={signature}"


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]


def error(code: str, message: str, status: int = 400, **headers: str) -> Answer:
    """Of the JSON protocols."""
    body = json.dumps({"__type": f"com.amazonaws.sqs#{code}", "message": message}).encode()
    return Answer(status, body, {"content-type": "application/x-amz-json-1.0"} | {name.replace("_", "-"): value for name, value in headers.items()})


def xml_error(code: str, message: str, status: int = 400) -> Answer:
    """Of the query protocol."""
    body = (f'<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>Sender</Type><Code>{code}</Code>'
            f"<Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>")
    return Answer(status, body.encode(), {"content-type": "text/xml"})


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *of: object):
        self._open: set[socket.socket] = set()
        super().__init__(*of)

    def process_request(self, request: socket.socket, client_address: tuple) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, *_: object) -> None:
        """The sink gives up a request at its timeout, or its connection was reset."""

    def reset(self) -> None:
        """Ends all connections without a word."""
        for each in list(self._open):
            with contextlib.suppress(OSError):  # it has ended by itself
                each.shutdown(socket.SHUT_RDWR)


class Front:
    def __init__(self, moto_port: int):
        self.requests: list[Request] = []
        self.answer: Callable[[Request], Answer | None] = lambda request: None  # None: moto answers
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                request = Request(self.path, {name.lower(): value for name, value in self.headers.items()}, self.rfile.read(int(self.headers["content-length"])))
                front.requests.append(request)
                answer = front.answer(request) or front._of_moto(request)
                self.send_response_only(answer.status)
                for name, value in ({"Date": self.date_time_string()} | answer.headers).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

        self.moto_port, self.port, self._handler = moto_port, free_port(), Handler
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self._server = Listener(("127.0.0.1", self.port), self._handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _of_moto(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.moto_port, timeout=30)
        try:
            connection.request("POST", request.path, request.body, request.headers)
            response = connection.getresponse()
            kept = {name.lower(): value for name, value in response.getheaders() if name.lower() in ("content-type", "x-amzn-errortype")}
            return Answer(response.status, response.read(), kept)
        finally:
            connection.close()

    def sends(self) -> list[Request]:
        """The requests that send events."""
        return [request for request in self.requests if request.operation in ("SendMessageBatch", "PublishBatch", "PutEvents")]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def kill(self) -> None:
        """As when a host in front of AWS dies: its connections end, new ones are refused, and what it has passed on is carried out without an answer."""
        self.close()
        self._server.reset()
