"""Tokens for Amazon MSK, as a broker gets them. Kafka itself cannot verify them, so the peer speaks as much of its
protocol as a login needs, and verifies the signature as AWS documents it."""

import base64
import hashlib
import hmac
import json
import re
import socketserver
import struct
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from outbox_rig import wait_until
from outbox_rig.paths import ROOT

KEYS = {"aws_access_key_id": "AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
OFFERED = {API_VERSIONS: (0, 0), SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 0), 0: (0, 7), 3: (0, 4), 22: (0, 1)}  # Produce, Metadata, InitProducerId
UNSUPPORTED_VERSION, AUTHENTICATION_FAILED = 35, 58


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class Login(socketserver.BaseRequestHandler):
    """Takes a client to its SASL authentication, keeps its token, and refuses it."""

    def handle(self) -> None:
        while header := self._read(4):
            request = self._read(struct.unpack(">i", header)[0])
            key, version, correlation = struct.unpack(">hhi", request[:8])
            body = request[10 + max(struct.unpack(">h", request[8:10])[0], 0):]
            answer = struct.pack(">i", correlation) + self._answer(key, version, body)
            self.request.sendall(struct.pack(">i", len(answer)) + answer)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self.request.recv(size - len(data))):
            data += more
        return data

    def _answer(self, key: int, version: int, body: bytes) -> bytes:
        if key == API_VERSIONS:
            versions = b"".join(struct.pack(">hhh", api, *between) for api, between in OFFERED.items())
            return struct.pack(">hi", UNSUPPORTED_VERSION if version else 0, len(OFFERED)) + versions
        if key == SASL_HANDSHAKE:
            return struct.pack(">hi", 0, 1) + text("OAUTHBEARER")
        assert key == SASL_AUTHENTICATE
        self.server.logins.append(body[4:])
        return struct.pack(">h", AUTHENTICATION_FAILED) + text("Access denied") + struct.pack(">i", 0)


@pytest.fixture
def peer():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Login) as server:
        server.daemon_threads, server.logins = True, []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def signature(url: str, secret: str) -> str:
    """That of AWS's documentation, for a GET without a body."""
    host, query = urlsplit(url).netloc, dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    query.pop("X-Amz-Signature")
    query.pop("User-Agent")
    canonical = "\n".join(["GET", "/", "&".join(f"{quote(k, safe='~')}={quote(v, safe='~')}" for k, v in sorted(query.items())),
                           f"host:{host}", "", "host", hashlib.sha256(b"").hexdigest()])
    scope = query["X-Amz-Credential"].split("/", 1)[1]
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signed = "\n".join(["AWS4-HMAC-SHA256", query["X-Amz-Date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    return hmac.digest(key, signed.encode(), "sha256").hex()


def page_statements(step: str) -> str:
    [statements] = re.findall(rf"<!-- step: {step} -->\n```sql\n(.*?)```", (ROOT / "docs/kafka.md").read_text(), re.DOTALL)
    return statements


class Metadata(BaseHTTPRequestHandler):
    """A container's, with temporary keys."""

    KEYS = {"AccessKeyId": "ASIAIOSFODNN7EXAMPLE", "SecretAccessKey": "chainSecretAccessKey0123456789", "Token": "chain/Token+0123456789=="}

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        body = json.dumps(self.KEYS | {"Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def pg(rig):
    """A server whose environment names the metadata."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as metadata:
        threading.Thread(target=metadata.serve_forever, daemon=True).start()
        pg = rig.postgres(settings={"outbox.poll_interval": "1s"}, env={"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{metadata.server_address[1]}/"})
        yield pg
        pg.stop()
        metadata.shutdown()


@pytest.mark.parametrize("step, whose, key, secret, session", [("Amazon MSK", "of access key AKIAIOSFODNN7EXAMPLE", *KEYS.values(), None),
                                                               ("Amazon MSK by the chain", "of the server's AWS identity", *Metadata.KEYS.values())], ids=("keys", "chain"))
def test_a_broker_gets_a_signed_token(db, peer, step, whose, key, secret, session):
    statements = page_statements(step)
    assert session or (f"'{key}'" in statements and f"'{secret}'" in statements)
    db.paste(statements.replace("b-1.example.kafka.eu-central-1.amazonaws.com:9098", f"127.0.0.1:{peer.server_address[1]}").replace("sasl_ssl", "sasl_plaintext"))
    db.enqueue("Order", "1")
    wait_until(lambda: db.sink("state", "main")[0] == "circuit open", 20, lambda: f"the refusal: {db.sink('state, last_error', 'main')}")
    error = db.sink("last_error", "main")[0]
    assert error.startswith(f"the broker refuses the token {whose}: look at the IAM policy"), error
    assert "Access denied" in error and secret not in db.pg.log.read_text()

    first, _, token, *rest = peer.logins[0].decode().replace("\1", " ").split(" ")
    assert (first, rest) == ("n,,", ["", ""])
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    query = dict(parse_qsl(urlsplit(url).query))
    assert url.startswith("https://kafka.eu-central-1.amazonaws.com/?") and query["Action"] == "kafka-cluster:Connect" and query["X-Amz-Credential"].startswith(f"{key}/")
    made = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    assert query["X-Amz-Expires"] == "900" and abs(time.time() - made) < 60
    assert query["X-Amz-Signature"] == signature(url, secret) and query.get("X-Amz-Security-Token") == session
