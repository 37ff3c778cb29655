"""A private Apache Kafka broker (KRaft, one node), from the jars under build/kafka."""

import base64
import signal
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from .kafka_security import PROTOCOLS, Security
from .namespace import Namespace
from .paths import BUILD
from .process import Program, free_port
from .wait import patient, wait_until


def java(*argv: str, heap: str = "512m", tier: int = 1, options: list[str] = [], jars: str = f"{BUILD}/kafka/*") -> list[str]:
    """The command line of a program in `jars`. `tier`: of the JVM's compiler; 1 starts quickly, 4 runs fast."""
    return ["java", *options, f"-Xmx{heap}", "-XX:+UseSerialGC", f"-XX:TieredStopAtLevel={tier}", "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS", "-cp", jars, *argv]


@dataclass
class Member:
    """The configuration of a broker in a cluster."""

    number: int
    cluster: str
    controllers: dict[int, int]  # ports by broker; others are no controllers


def new_cluster() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class Kafka(Program):
    STOP_S = 30

    def __init__(self, name: str, directory: Path, log: Path, partitions: int = 12, properties: dict[str, str] = {},
                 jit: bool = True, namespace: Namespace | None = None, secured: bool = False,
                 member: Member | None = None, heap: str = "512m", killed: bool = False, proxied: bool = False):
        """`partitions`: of automatically created topics. `properties`: of the broker, in addition to ours. `jit`:
        False turns off the optimizing compiler, for a quick start. `namespace`: where the broker runs. `secured`:
        adds all kinds of listeners, see `security`. `member`: its place in a cluster (kafka_cluster.py). `killed`: it is
        killed and started again, and must not wait until its former session expires; a pause of two seconds then makes
        the cluster drop it. `proxied`: adds a listener for a proxy, which clients are told to reach at `proxy_port`."""
        self.name, self.dir, self.log = name, directory, log
        self.port = free_port()
        self._member = member or Member(1, new_cluster(), {1: free_port()})
        self._heap = heap
        number, controllers = self._member.number, self._member.controllers
        self._namespace = namespace
        self.address = namespace.address if namespace else "127.0.0.1"
        self._tier = 4 if jit else 1
        self._properties = {
            "process.roles": "broker,controller" if number in controllers else "broker",
            "node.id": str(number),
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{port}" for n, port in controllers.items()),
            "listeners": f"PLAINTEXT://{self.address}:{self.port}" + (f",CONTROLLER://127.0.0.1:{controllers[number]}" if number in controllers else ""),
            "advertised.listeners": f"PLAINTEXT://{self.address}:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(directory / "data"),
            "num.partitions": str(partitions),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.enable": "false",
            "log.retention.ms": "-1",  # otherwise the retention check, every five minutes, deletes events with old timestamps
        } | ({"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "2000"} if killed else {}) | properties
        if proxied:
            self.proxied_port, self.proxy_port = free_port(), free_port()
            for key, port in (("listeners", self.proxied_port), ("advertised.listeners", self.proxy_port)):
                self._properties[key] += f",PROXIED://{self.address}:{port}"
            self._properties["listener.security.protocol.map"] += ",PROXIED:PLAINTEXT"
        directory.mkdir(parents=True)
        self._security = Security(directory / "security", self.address, self.port) if secured else None
        if self._security:
            for key in ("listeners", "advertised.listeners"):
                self._properties[key] += "".join(f",{name}://{self._security.bootstrap(name)}" for name in PROTOCOLS)
            self._properties["listener.security.protocol.map"] += "".join(f",{name}:{kind}" for name, kind in PROTOCOLS.items())
        self._format()

    @property
    def security(self) -> Security:
        """The security of a broker with `secured`."""
        assert self._security
        return self._security

    def _java(self, tier: int, *argv: str) -> list[str]:
        inside = self._namespace.command() if self._namespace else []
        options = self._security.java_options() if self._security else []
        return inside + java(*argv, heap=self._heap, tier=tier, options=options)

    def _configure(self) -> str:
        """Writes the broker's present configuration, and returns the file's name."""
        config = self.dir / "server.properties"
        properties = self._properties | (self._security.write() if self._security else {})
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return str(config)

    def _format(self) -> None:
        users = self._security.scram_users() if self._security else []
        self.tool("kafka.tools.StorageTool", "format", f"--cluster-id={self._member.cluster}", "-c", self._configure(), *users)

    def tool(self, *argv: str) -> None:
        """Runs one of Kafka's programs; its output goes to the log."""
        with open(self.log, "ab") as out:
            subprocess.run(self._java(1, *argv), check=True, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    # ---- life ------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return f"{self.address}:{self.port}"

    def start(self) -> None:
        """Starts the broker on the same ports and data, with the present `security`, and returns when it responds.
        The calling thread must outlive the broker."""
        if not self.running():
            self.begin_start()
            self.wait_started()

    def begin_start(self) -> None:
        """Starts without waiting, for clusters: a single member does not respond."""
        self.run(self._java(self._tier, "kafka.Kafka", self._configure()))

    def wait_started(self) -> None:
        assert self._process
        wait_until(self._answers, 180, lambda: f"Kafka to start; {self.log} ends:\n{self._process.tail()}")

    def _answers(self) -> bool:
        self._process.must_run()
        try:
            return bool(self.admin().list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def pause(self) -> None:
        """Stops the process with its connections open (SIGSTOP)."""
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.signal(signal.SIGCONT)

    # ---- use -------------------------------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 12, config: dict[str, str] = {}, replicas: int = 1) -> None:
        self.create_topics([name], partitions, config, replicas)

    def create_topics(self, names: list[str], partitions: int = 12, config: dict[str, str] = {}, replicas: int = 1) -> None:
        """Returns when every partition accepts messages: the broker's response comes earlier."""
        admin = self.admin()  # must outlive the responses
        for answer in admin.create_topics([NewTopic(name, partitions, replicas, config=config) for name in names]).values():
            answer.result(patient(20))
        wanted = {TopicPartition(name, number): OffsetSpec.latest() for name in names for number in range(partitions)}

        def led() -> bool:
            try:
                return all(found.result(patient(20)) is not None for found in admin.list_offsets(wanted).values())
            except KafkaException:
                return False
        wait_until(led, 30, f"the partitions of {', '.join(names)}")
