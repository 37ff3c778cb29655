"""Credentials of the chain, from a server of the tests that answers as the metadata of a container does."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from outbox_rig import wait_until
from outbox_rig.process import free_port

from conftest import AwsDatabase
from front import error
from test_delivery import all_is_sent, many, sinks
from test_failures import no_attempt_is_spent, state_is


class Metadata:
    """Each request gets the next token."""

    def __init__(self):
        self.port, self.given, self.works = free_port(), 0, True
        metadata = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                metadata.given += metadata.works
                expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
                body = json.dumps({"AccessKeyId": f"ASIAIOSFODNN7EXAMPL{metadata.given}", "SecretAccessKey": "chainSecretAccessKey0123456789", "Token": f"chainToken{metadata.given}",
                                   "Expiration": expires}).encode() if metadata.works else b"{}"
                self.send_response(200 if metadata.works else 500)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def metadata():
    return Metadata()


@pytest.fixture(scope="module")
def pg(rig, metadata):
    """A server whose environment names the metadata."""
    return rig.postgres(settings={"outbox.poll_interval": "1s"}, env={"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{metadata.port}/", "AWS_EC2_METADATA_DISABLED": "true"})


def test_an_expired_token_is_renewed(db: AwsDatabase, moto, front, name, metadata):
    """AWS refuses the token although it should be valid for an hour; with the next one the events arrive, and no text has shown a secret."""
    queue = moto.queue(name)
    first: list[str] = []

    def answer(request):
        token = request.headers["x-amz-security-token"]
        first.append(token)
        return error("ExpiredToken", f"The security token {token} included in the request is expired", 403) if token == first[0] else None

    front.answer = answer
    db.aws_sink("aws", front.url, {}, target=queue.url, aws_credentials="chain", max_attempts="1")
    many(db, 50, 25)
    queue.read(50)
    all_is_sent(db)
    assert len(set(first)) == 2 and first[0].startswith("chainToken")
    assert "ExpiredToken" in db.pg.log.read_text() and "chainToken" not in db.pg.log.read_text() and "chainSecret" not in db.pg.log.read_text()


def test_events_wait_for_credentials(db: AwsDatabase, moto, front, name, metadata):
    queue = moto.queue(name)
    metadata.works = False
    try:
        db.aws_sink("aws", front.url, {}, target=queue.url, aws_credentials="chain")
        many(db, 20, 10)
        state_is(db, "circuit open", "HTTP 500")
        assert not front.requests
        no_attempt_is_spent(db)
        found = {step: ok for step, ok, *_ in db.sql("SELECT step, ok FROM outbox.probe('aws')")}
        assert found == {"connect": True, "credentials": False} | {step: True for step in found if step not in ("connect", "credentials")}
    finally:
        metadata.works = True
    queue.read(20)
    all_is_sent(db)
    wait_until(lambda: db.sink("state", "aws") == ("idle",), 30, sinks(db))
