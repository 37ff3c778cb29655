"""docker/ without Docker: the image's steps run in a folder, and the services of the compose file as processes in a
network of their own, with the same command lines, environment, files and addresses. Grafana is left out, because
Debian has no package of it."""

import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import yaml
from outbox_rig import wait_until
from outbox_rig.kafka import java
from outbox_rig.namespace import Namespace
from outbox_rig.paths import BUILD, LOGS, ROOT, pg_config
from outbox_rig.process import Process

from dockerfile import Build

DOCKER = ROOT / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
ADDRESSES = {name: f"172.20.0.{number}" for number, name in enumerate(SERVICES, start=2)}
WORK = BUILD / "compose"
ENTRYPOINT = Path(os.environ.get("ENTRYPOINT", Path(__file__).parent / "entrypoint"))  # the official image's own, for example


def test_the_compose_file_is_valid():
    """Valid by the specification's JSON schema and a linter of compose files."""
    def lint() -> subprocess.CompletedProcess:
        return subprocess.run(["node", BUILD / "dclint/node_modules/.bin/dclint", "--quiet", "-f", "json", "."], cwd=WORK_LINT, capture_output=True, text=True)

    WORK_LINT = WORK / "lint"
    shutil.rmtree(WORK_LINT, ignore_errors=True)
    WORK_LINT.mkdir(parents=True)
    text = (DOCKER / "compose.yaml").read_text()
    (WORK_LINT / "compose.yaml").write_text(text)
    done = lint()
    assert done.returncode == 0, done.stdout + done.stderr
    (WORK_LINT / "compose.yaml").write_text(text.replace("restart: unless-stopped", "restartt: unless-stopped", 1))
    assert lint().returncode != 0  # the linter finds errors


def test_every_file_that_is_mounted_is_there():
    mounted = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())]
    assert [path for path in mounted if path.startswith(".") and not (DOCKER / path).exists()] == []
    assert {path for path in mounted if not path.startswith(".")} == set(COMPOSE["volumes"])
    for service in SERVICES.values():
        if build := service.get("build"):
            assert (DOCKER / build["context"]).resolve() == ROOT and (ROOT / build["dockerfile"]).is_file()


@pytest.fixture(scope="module")
def image():
    build = Build(DOCKER / "Dockerfile", WORK / "image", LOGS / "compose-image.log")
    yield build.stage
    shutil.rmtree(WORK / "image", ignore_errors=True)


class Compose:
    """The services by their names in the network."""

    def __init__(self, network, image):
        self.network, self.image = network, image
        self._processes: dict[str, Process] = {}
        hosts = f"127.0.0.1 localhost {socket.gethostname()}\n" + "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
        configuration = Path("/etc/netns") / network.name
        configuration.mkdir(parents=True, exist_ok=True)
        (configuration / "hosts").write_text(hosts)
        (image.root / "etc/hosts").write_text(hosts)
        for address in ADDRESSES.values():
            network.add_address(address)
        self.data = WORK / "volumes"
        shutil.rmtree(self.data, ignore_errors=True)
        for name in SERVICES:
            (self.data / name).mkdir(parents=True)

    def here(self, name: str, text: str) -> str:
        """Container paths as paths of this machine."""
        places = {inside: str((DOCKER / source).resolve() if source.startswith(".") else self.data / name)
                  for source, inside, *_ in (volume.split(":") for volume in SERVICES[name].get("volumes", ()))}
        longest_first = "|".join(re.escape(inside) for inside in sorted(places, key=len, reverse=True))
        return re.sub(rf"(?<![\w/])({longest_first})(?=/|$)", lambda match: places[match[0]], text) if places else text

    def environment(self, name: str) -> dict[str, str]:
        return {key: self.here(name, value) for key, value in SERVICES[name].get("environment", {}).items()}

    def start(self, name: str, argv: list[str], env: dict[str, str] = {}) -> None:
        log = LOGS / f"compose-{name}.log"
        log.unlink(missing_ok=True)
        self._processes[name] = Process(name, argv, log, env=env, inside=self.network.command())

    def inside(self, *argv: str, env: dict[str, str] = {}) -> subprocess.CompletedProcess:
        return subprocess.run([*self.network.command(), *argv], capture_output=True, text=True, env=os.environ | env, timeout=60)

    def chroot(self, *argv: str) -> list[str]:
        return [str(Path(__file__).parent / "enter"), str(self.image.root), *argv]

    def psql(self, statement: str, user: str = "postgres") -> str:
        done = self.inside(*self.chroot("env", f"PGPASSWORD={user}", "psql", "-X", "-At", "-h", "database", "-U", user, "-d", "shop", "-c", statement))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def healthy(self, name: str, argv: list[str]) -> None:
        wait_until(lambda: self.inside(*argv).returncode == 0, 90, lambda: f"{name} to be healthy; its log ends:\n"
                   + "\n".join((LOGS / f"compose-{name}.log").read_text(errors="replace").splitlines()[-20:]), interval=0.5)

    def database(self) -> None:
        service, root = SERVICES["database"], self.image.root
        shutil.copy(ENTRYPOINT, root / "usr/local/bin/docker-entrypoint.sh")
        shutil.copy(DOCKER / "init.sql", root / "docker-entrypoint-initdb.d/init.sql")
        env = ["PGDATA=/var/lib/postgresql/data", "LANG=en_US.utf8", *(f"{key}={value}" for key, value in service["environment"].items())]
        self.start("database", self.chroot("setpriv", f"--reuid={self.image.user}", f"--regid={self.image.user}", "--clear-groups", "env", "-i",
                                           "PATH=/usr/local/bin:/usr/bin:/bin", *env, "docker-entrypoint.sh", *service["command"]))
        self.healthy("database", self.chroot(*service["healthcheck"]["test"][1:]))

    def kafka(self) -> None:
        """As the image does: KAFKA_LOG_DIRS is log.dirs, and is formatted if it is new."""
        properties = {key.removeprefix("KAFKA_").lower().replace("_", "."): value for key, value in self.environment("kafka").items()}
        config = self.data / "kafka.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        done = self.inside(*java("kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", "5L6g3nShT-eMCtK--X86sw", "-c", str(config)))
        assert done.returncode == 0, done.stdout + done.stderr
        self.start("kafka", java("kafka.Kafka", str(config)))
        test = SERVICES["kafka"]["healthcheck"]["test"]
        assert test[1].endswith("/kafka-broker-api-versions.sh")
        self.healthy("kafka", java("org.apache.kafka.tools.BrokerApiVersionsCommand", *test[2:]))

    def receiver(self) -> None:
        service = SERVICES["receiver"]
        python = str(BUILD / "venv/bin/python")
        self.start("receiver", [python, "-u", "-m", "receiver", *service["command"]],
                   {"PYTHONPATH": str(ROOT / "test/rig")} | self.environment("receiver"))
        self.healthy("receiver", [python, *service["healthcheck"]["test"][2:]])

    def writer(self) -> None:
        program, *arguments = SERVICES["writer"]["command"]
        self.start("writer", [str(pg_config("bindir") / program), *(self.here("writer", each) for each in arguments)])

    def console(self) -> None:
        """Its image too is built by its steps."""
        built = Build(DOCKER / "console.Dockerfile", WORK / "console", LOGS / "compose-console-image.log").stage
        (built.root / "etc/hosts").write_text((self.image.root / "etc/hosts").read_text())
        self.start("console", [str(Path(__file__).parent / "enter"), str(built.root), "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
                               *built.command, *SERVICES["console"]["command"]])
        self.healthy("console", ["curl", "-sf", "-H", "Host: localhost:8300", "http://console:8300/"])

    def exporter(self) -> None:
        self.start("exporter", ["prometheus-postgres-exporter", *(self.here("exporter", each) for each in SERVICES["exporter"]["command"])],
                   self.environment("exporter"))

    def prometheus(self) -> None:
        self.start("prometheus", ["prometheus", *(self.here("prometheus", each) for each in SERVICES["prometheus"]["command"])])
        self.healthy("prometheus", SERVICES["prometheus"]["healthcheck"]["test"][1:])

    def query(self, expression: str) -> dict[str, float]:
        """Values by sink."""
        answer = self.inside("curl", "-s", "-G", "http://prometheus:9090/api/v1/query", "--data-urlencode", f"query={expression}").stdout
        return {each["metric"].get("sink", ""): float(each["value"][1]) for each in json.loads(answer)["data"]["result"]}

    def records(self) -> list[str]:
        return self.inside("kcat", "-b", "kafka:9092", "-C", "-t", "outbox.event.Order", "-o", "beginning", "-e", "-q", "-f", "%k %s\\n").stdout.splitlines()

    def stop(self, name: str) -> None:
        self._processes.pop(name).stop(10)  # as Docker: SIGKILL after 10 s

    def down(self) -> None:
        for process in reversed(self._processes.values()):
            process.stop(30)


@pytest.fixture
def compose(image):
    LOGS.mkdir(parents=True, exist_ok=True)
    network = Namespace()
    try:
        compose = Compose(network, image)
        yield compose
        compose.down()
    finally:
        network.close()


@pytest.mark.timeout(1500)  # the image is built
def test_an_event_arrives_everywhere(compose):
    assert compose.image.user == "postgres" and compose.image.command[:1] == SERVICES["database"]["command"][:1]
    compose.kafka()
    compose.database()
    compose.receiver()
    compose.exporter()
    compose.prometheus()

    compose.psql("""SELECT outbox.enqueue('Order', 42, 'order.paid', '{"total": 99.5}')""", user="app")
    received = LOGS / "compose-receiver.log"
    wait_until(lambda: "99.5" in received.read_text() and "done" in received.read_text(), 60, lambda: compose.psql("TABLE outbox.sinks"))
    wait_until(compose.records, 60, lambda: compose.psql("TABLE outbox.sinks"))
    assert compose.records() == ['42 {"total": 99.5}']
    wait_until(lambda: compose.psql("SELECT count(*) FROM outbox.events WHERE status = 'PENDING'") == "0", 60, "the events to be recorded")
    assert compose.psql("SELECT count(*) FROM outbox.events WHERE status = 'SENT'") == "2"
    assert compose.psql("""SELECT string_agg("check", ', ') FROM outbox.doctor() WHERE status = 'error'""") == ""
    wait_until(lambda: compose.query("outbox_published_events_total") == {"main": 1, "crm": 1}, 90, lambda: compose.query("outbox_published_events_total"),
               interval=1)
    assert set(compose.query("up").values()) == {1}

    compose.console()
    origin = SERVICES["console"]["command"][3]
    page = compose.inside("curl", "-s", "-L", "--cookie", "", "-H", f"Origin: {origin}", "-H", f"Host: {origin.removeprefix('http://')}", "-d", "role=operator&password=operator", "http://console:8300/login").stdout
    assert "All is well" in page and "operator on shop" in page and ">crm</a>" in page, page

    compose.writer()
    wait_until(lambda: {"1", "2", "3"} <= {record.split()[0] for record in compose.records()} and received.read_text().count("order.placed") >= 3,
               60, lambda: (LOGS / "compose-writer.log").read_text())

    # The outage of the compose file's head: events wait, and the other sink's do not. Then all of them arrive.
    head = (DOCKER / "compose.yaml").read_text().split("\nname:")[0]
    assert re.findall(r"\b(stop|start) (\w+)", head) == [("stop", "kafka"), ("start", "kafka")]
    compose.stop("kafka")
    main = "SELECT state || ' ' || pending FROM outbox.sinks WHERE name = 'main'"
    wait_until(lambda: re.fullmatch("circuit open [1-9].*", compose.psql(main)), 60, lambda: compose.psql(main))
    orders, webhooks = int(compose.psql("SELECT max(id) FROM orders")), received.read_text().count("order.placed")
    wait_until(lambda: received.read_text().count("order.placed") > webhooks, 60, "webhooks during the outage")
    compose.kafka()
    wait_until(lambda: {str(order) for order in range(1, orders + 1)} <= {record.split()[0] for record in compose.records()}, 60, lambda: compose.psql(main))
    assert [record for record in compose.records() if record.startswith("42 ")][:1] == ['42 {"total": 99.5}'], "its volume is kept"
