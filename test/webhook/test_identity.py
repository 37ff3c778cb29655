"""How a webhook sink proves who it is: access tokens of a real token endpoint, and signatures with a public key."""

import base64
import re
import subprocess
import time
from types import SimpleNamespace

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from outbox_rig import wait_until
from outbox_rig.kind_fixtures import strange_peer
from outbox_rig.paths import ROOT
from outbox_rig.receiver import SECRET as SIGNING_SECRET
from outbox_rig.receiver import Status
from outbox_rig.token_server import TokenServer

SECRET = "f00dcafe-of-the-client"


@pytest.fixture
def tokens():
    tokens = TokenServer("outbox", SECRET, lifetime=5)
    yield tokens
    tokens.stop()


def create(db, receiver, tokens, secret: str = SECRET) -> None:
    receiver.mode = lambda delivery: Status(204 if valid(tokens, delivery) else 401)
    with db.connect() as session, session.transaction():
        session.execute(f"CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url '{receiver.url}', allow_http 'true',"
                        f" allow_networks '127.0.0.0/8', oauth_token_url '{tokens.url}', oauth_client_id 'outbox')")
        session.execute(f"CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (oauth_client_secret '{secret}', secret '{SIGNING_SECRET}')")


def valid(tokens, delivery) -> bool:
    """The endpoint verifies the token's signature and its end, as a resource server does."""
    scheme, _, token = delivery.headers.get("authorization", "").partition(" ")
    try:
        jwt.decode(token, tokens.public_key, algorithms=["RS256"], audience="kafka")
    except jwt.InvalidTokenError:
        return False
    return scheme == "Bearer"


def test_tokens_end_and_are_renewed(db, receiver, tokens):
    """Events arrive while tokens end, none with one that has ended; an outage of the token endpoint spends no attempt."""
    tokens.start()
    create(db, receiver, tokens)
    sent = 0
    while len(tokens.tokens) < 3:
        db.enqueue("Order", "1")
        sent += 1
        wait_until(lambda: db.pending() == 0, 20, lambda: f"delivery: {db.sink('state, last_error')}")
    assert len(receiver.accepted()) == sent == len(receiver.deliveries), "no request was refused"

    tokens.stop()
    wait_until(lambda: jwt.decode(tokens.tokens[-1], options={"verify_signature": False})["exp"] < time.time(), 20, "its end")
    db.enqueue("Order", "1")
    wait_until(lambda: db.sink("state")[0] == "circuit open", 20, lambda: f"the outage: {db.sink('state, last_error')}")
    assert db.sink("last_error")[0].startswith(f'no token from the token endpoint {tokens.url} for client "outbox": ')
    assert db.value("SELECT attempts FROM outbox.events") == 0
    tokens.start()
    wait_until(lambda: db.pending() == 0, 40, lambda: f"delivery: {db.sink('state, last_error')}")


def test_a_wrong_client_secret(pg, db, receiver, tokens):
    tokens.start()
    start = pg.log.stat().st_size
    create(db, receiver, tokens, "not-the-right-one")
    db.enqueue("Order", "1")
    wait_until(lambda: db.sink("state")[0] == "circuit open", 20, lambda: f"the refusal: {db.sink('state, last_error')}")
    error = db.sink("last_error")[0]
    assert "HTTP 401 invalid_client" in error and "oauth_client_secret in the user mapping" in error
    [(step, ok, message)] = db.sql("SELECT step, ok, message FROM outbox.probe('crm') WHERE NOT ok")
    assert step == "token" and "invalid_client" in message
    db.set_mapping("crm", oauth_client_secret=SECRET)
    wait_until(lambda: db.pending() == 0, 20, lambda: f"delivery: {db.sink('state, last_error')}")
    steps = db.sql("SELECT step, ok, message FROM outbox.probe('crm', send => true)")
    assert all(ok for _, ok, _ in steps) and "token" in [step for step, _, _ in steps], steps
    log = "\n".join(line for line in pg.logged(start).splitlines() if "STATEMENT" not in line)
    told = error + log + str(db.sql("SELECT * FROM outbox.sinks")) + str(steps)
    assert not any(secret in told for secret in (SECRET, "not-the-right-one", *tokens.tokens))


def test_a_token_endpoint_that_does_not_answer(db, receiver):
    """The state does not say "delivering" while nothing can be sent."""
    with strange_peer(b"") as port:
        silent = SimpleNamespace(url=f"http://127.0.0.1:{port}/token")
        create(db, receiver, silent)
        db.enqueue("Order", "1")
        wait_until(lambda: db.sink("state")[0] == "circuit open", 20, lambda: f"the outage: {db.sink('state, last_error')}")
        assert db.sink("last_error")[0].startswith(f'no token from the token endpoint {silent.url} for client "outbox": ')
        assert db.value("SELECT attempts FROM outbox.events") == 0


def test_signatures_with_a_public_key(db, receiver):
    """Both at once, as during a change from a shared secret to a key pair; `cryptography` verifies the new one."""
    pair = Ed25519PrivateKey.generate()
    public = base64.b64encode(pair.public_key().public_bytes_raw()).decode()
    db.webhook_sink("crm", receiver)
    db.create_mapping("crm", {"secret": f"whsk_{base64.b64encode(pair.private_bytes_raw()).decode()}, {SIGNING_SECRET}"})
    db.enqueue("Order", "1", payload='{"text": "Zoë"}')
    wait_until(lambda: db.pending() == 0, 20, lambda: f"delivery: {db.sink('state, last_error')}")
    [delivery] = receiver.deliveries
    assert delivery.verified, "the signature by the shared secret"
    asymmetric, shared = delivery.headers["webhook-signature"].split(" ")
    assert asymmetric.startswith("v1a,") and shared.startswith("v1,")
    signed = f"{delivery.id}.{delivery.headers['webhook-timestamp']}.".encode() + delivery.body
    pair.public_key().verify(base64.b64decode(asymmetric.removeprefix("v1a,")), signed)
    assert ("public key", f"whpk_{public}") in db.sql("SELECT step, message FROM outbox.probe('crm')")


def test_the_commands_for_a_key_pair(db, tmp_path):
    """Those of docs/webhooks.md make keys that belong together."""
    [commands] = re.findall(r"### Signatures with a public key\n```sh\n(.*?)```", (ROOT / "docs/webhooks.md").read_text(), re.DOTALL)
    private, public = subprocess.run(["bash", "-ec", commands], cwd=tmp_path, check=True, capture_output=True, text=True).stdout.split()
    db.webhook_sink("crm", "http://127.0.0.1:1/", private)
    assert db.value("SELECT message FROM outbox.probe('crm') WHERE step = 'public key'") == public
