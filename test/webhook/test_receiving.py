"""Receivers as users write them: those of docs/receivers, the sink that docs/consuming.md prints, and the receiver of the outbox articles."""

import json
import re
import sys
import uuid
from pathlib import Path

import psycopg
import pytest
from outbox_rig import BUILD, Rig, wait_until
from outbox_rig.database import module_db
from outbox_rig.paths import ROOT
from outbox_rig.receiver import SECRET
from outbox_rig.service import Service
from senders import Stream, post, signed

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs/consuming.md").read_text()
FILES = {path.name: path.read_text() for path in (ROOT / "docs/receivers").iterdir()}
EVENTS = 300


class Peer:
    """A receiver with a database of its own, and the events that it gets."""

    def __init__(self, service: Service, database: str):
        self.service, self._database = service, database
        self.stream: Stream | None = None

    def sql(self, query: str) -> list[tuple]:
        with psycopg.connect(self._database) as connection:
            return connection.execute(query).fetchall()

    def work(self) -> list[str]:
        """The ids of the processed events, in order."""
        return [event for event, in self.sql("SELECT event_id FROM work ORDER BY number")]

    def arrived(self) -> bool:
        return len(self.work()) >= len(self.stream.written)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The files of the documentation, in a directory where Node finds its packages."""
    folder = tmp_path_factory.mktemp("receivers")
    (folder / "node_modules").symlink_to(BUILD / "node/node_modules")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def start(rig: Rig, new_consumer_database, folder):
    """start(program): a receiver with the tables of the documentation."""
    started = []

    def start(*argv: str) -> Peer:
        database = new_consumer_database()
        with psycopg.connect(database) as connection:
            connection.execute(FILES["tables.sql"])
        env = {"WEBHOOK_SECRET": SECRET, "DATABASE_URL": database, "PORT": "{port}"}
        started.append(rig.service(argv=list(argv), env=env))
        return Peer(started[-1], database)

    yield start
    for service in started:
        service.stop()


db = module_db


def uvicorn(app: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "uvicorn", app, "--app-dir", str(folder), "--port", "{port}", "--log-level", "warning"]


@pytest.fixture(scope="module")
def peers(rig, db, start, folder) -> dict[str, Peer]:
    """All receivers at once, each with its events. Python programs are behind an nginx, as in production."""
    (folder / "svix.mjs").write_text(FILES["receiver.mjs"].replace("standardwebhooks", "svix"))
    peers = {"fastapi": start(*uvicorn("receiver:app", folder)), "node": start("node", str(folder / "receiver.mjs")),
             "express": start("node", str(folder / "express.mjs")), "svix": start("node", str(folder / "svix.mjs")),
             "batches": start(*uvicorn("batches:app", folder)),
             "article": start(*uvicorn("article_consumer:app", Path(__file__).parent))}
    behind = {"fastapi": "/hooks", "article": "/events", "batches": "/batches"}
    upstreams = [f"upstream {name} {{ server 127.0.0.1:{peers[name].service.port}; keepalive 16; }}" for name in behind]
    locations = [f"location {path} {{ proxy_pass http://{name}; {PROXY} }}" for name, path in behind.items()]
    nginx = rig.nginx(http="\n".join(upstreams), locations="\n".join(locations))
    for name, peer in peers.items():
        url = nginx.url + behind[name] if name in behind else peer.service.url
        special = {"article": {"body": ARTICLE_BODY}, "batches": {"batch": "20"}}.get(name, {})
        db.webhook_sink(name, url, None if name == "article" else SECRET, aggregates=name, **special)
        peer.stream = Stream(db, name)
    for peer in peers.values():
        peer.stream.write(EVENTS, payload=DIFFICULT)
    return peers


PROXY = 'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;'
ARTICLE_BODY = re.search(r"body '(.+?)'", re.search(r"<!-- receiver: sink.sql -->\n```sql\n(.*?)```", PAGE, re.DOTALL)[1])[1]
DIFFICULT = {"total": 99.50, "text": "ä€😀\u2028\\\"\u0001 </script>", "big": 123456789012345, "empty": {}, "none": None}
each = pytest.mark.parametrize("name", ["fastapi", "node", "express", "svix"])


@pytest.mark.parametrize("name", ["fastapi", "node", "express", "svix", "batches", "article"])
def test_all_of_a_stream_is_verified_and_in_order(peers, db, name):
    peer = peers[name]
    wait_until(peer.arrived, 30, lambda: f"{EVENTS} events; {db.sql('SELECT * FROM outbox.sinks')}")
    assert peer.stream.check(peer.work()) == 0
    assert peer.sql("SELECT DISTINCT event_type, data - 'n' FROM work WHERE data ? 'n'") == [("order.changed", DIFFICULT)]


@each
def test_a_duplicate_is_answered_as_the_first_one_was_and_does_nothing(peers, name):
    peer, event = peers[name], str(uuid.uuid4())
    body = json.dumps({"id": event, "type": "order.paid", "data": DIFFICULT})
    for age in (10, 0):
        assert post(peer.service.url, body.encode(), signed(event, body, age))[0] == 204
    assert peer.work().count(event) == 1


def test_of_a_request_with_several_events_only_the_new_ones_are_processed(peers):
    peer, ids = peers["batches"], [str(uuid.uuid4()) for _ in range(3)]
    url = peer.service.url.removesuffix("/hooks") + "/batches"
    for count in (2, 3, 3):
        body = json.dumps([{"id": event, "type": "order.paid", "data": DIFFICULT} for event in reversed(ids[:count])])
        assert post(url, body.encode(), signed("a-batch", body))[0] == 204
    assert [event for event in peer.work() if event in ids] == [ids[1], ids[0], ids[2]]
    assert post(url, b"[]", {})[0] == 401


@each
def test_what_is_not_signed_well_is_refused(peers, name):
    peer, event = peers[name], str(uuid.uuid4())
    body = json.dumps({"id": event, "type": "order.paid", "data": {"total": 1}})
    good = signed(event, body)
    for changed, headers in ((body.replace("1", "9"), good), (body, signed(event, body, age=400)), (body, signed(event, body, age=-400)),
                             (body, good | {"webhook-id": str(uuid.uuid4())}), (body, {}), (body, good | {"webhook-signature": "v1,"})):
        assert post(peer.service.url, changed.encode(), headers)[0] == 401
    assert event not in peer.work()


def test_the_page_names_each_file():
    assert [name for name in FILES if f"(receivers/{name})" not in PAGE] == []


def test_json_that_is_parsed_and_written_anew_does_not_verify(start, folder):
    """The mistake that the documentation warns of."""
    text = FILES["express.mjs"].replace("webhook.verify(request.body,", "webhook.verify(JSON.stringify(request.body),")
    text = text.replace('express.raw({ type: "*/*", limit: "10mb" })', "express.json()")
    assert text.count("JSON.stringify") == 1 and "express.raw" not in text
    (folder / "trap.mjs").write_text(text)
    trap = start("node", str(folder / "trap.mjs"))
    for total, expected in (("99.5", 204), ("99.50", 401)):
        body = '{"id":"%s","type":"order.paid","data":{"total":%s}}' % (uuid.uuid4(), total)
        assert post(trap.service.url, body.encode(), signed("one", body))[0] == expected
