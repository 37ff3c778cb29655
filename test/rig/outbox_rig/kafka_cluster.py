"""A Kafka cluster of several brokers: leaders move, brokers stop and return."""

import random
import time
from pathlib import Path

from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType

from .kafka import Kafka, Member, new_cluster
from .namespace import Namespace
from .process import free_port
from .wait import patient, wait_until


class KafkaCluster:
    """A topic has a replica on each broker, and acknowledged records are on at least two."""

    def __init__(self, name: str, directory: Path, log: Path, brokers: int = 3, properties: dict[str, str] = {},
                 namespace: Namespace | None = None, controllers: int | None = None, proxied: bool = False):
        """`controllers`: the first of the brokers, of which half may be away; all of them by default. `proxied`: see Kafka."""
        cluster, voters = new_cluster(), {n: free_port() for n in range(1, (controllers or brokers) + 1)}
        shared = {
            "auto.create.topics.enable": "false",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": str(brokers),
            "auto.leader.rebalance.enable": "false",
            "controller.quorum.election.timeout.ms": "500",
            "controller.quorum.fetch.timeout.ms": "1000",
            "metadata.max.idle.interval.ms": "200",
        } | properties
        self.brokers = {n: Kafka(f"{name}-{n}", directory / str(n), log.with_stem(f"{log.stem}-{n}"), properties=shared, jit=False,
                                 member=Member(n, cluster, voters), heap="256m", killed=True, namespace=namespace, proxied=proxied)
                        for n in range(1, brokers + 1)}

    # ---- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.begin_start()
        for broker in self.brokers.values():
            broker.wait_started()
        wait_until(lambda: len(self.admin().list_topics(timeout=patient(5)).brokers) == len(self.brokers), 30, "all brokers")

    def stop(self) -> None:
        """Kills the brokers: their data is no longer needed, and an orderly shutdown of all would take long."""
        for broker in self.brokers.values():
            if broker.running():
                broker.kill()

    kill = stop

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def admin(self) -> AdminClient:
        """A request to one of the running brokers."""
        running = ",".join(broker.bootstrap for broker in self.brokers.values() if broker.running())
        return AdminClient({"bootstrap.servers": running, "log_level": 0})

    # ---- topics ----------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 6, config: dict[str, str] = {}, replicas: int | None = None) -> None:
        self.brokers[1].create_topic(name, partitions, config, replicas or len(self.brokers))

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        admin.delete_topics([name])[name].result(patient(20))
        wait_until(lambda: name not in admin.list_topics(timeout=patient(5)).topics, 20, f"{name} to go")

    def add_partitions(self, name: str, total: int) -> None:
        admin = self.admin()
        admin.create_partitions([NewPartitions(name, total)])[name].result(patient(20))
        wait_until(lambda: len(self.leaders(name)) == total and 0 not in self.leaders(name).values(), 20, "the partitions")

    def configure_topic(self, name: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        admin = self.admin()
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(patient(20))

    def quota(self, client: str, **limits: int) -> None:
        """Sets limits for all clients with this id, per second and broker; without limits, removes them."""
        change = ["--add-config", ",".join(f"{name}={limit}" for name, limit in limits.items())] if limits else \
                 ["--delete-config", "producer_byte_rate"]
        self.brokers[1].tool("kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap, "--alter", "--entity-type", "clients",
                             "--entity-name", client, *change)

    # ---- leaders ---------------------------------------------------------------------------------------------

    def _partitions(self, topic: str) -> list:
        """None while the brokers elect a controller."""
        admin = self.admin()
        admin.list_topics(timeout=patient(10))  # the metadata may contain brokers that are down
        [description] = admin.describe_topics(TopicCollection([topic]), request_timeout=patient(5)).values()
        try:
            return description.result(patient(10)).partitions
        except KafkaException:
            return []

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition; 0 if there is none."""
        return {p.id: p.leader.id if p.leader and p.leader.id > 0 else 0 for p in self._partitions(topic)}

    def in_sync(self, topic: str) -> bool:
        """Whether every replica is in sync."""
        try:
            partitions = self._partitions(topic)
            return bool(partitions) and all(len(p.isr) == len(p.replicas) for p in partitions)
        except KafkaException:
            return False

    def elect(self, topic: str) -> None:
        """Makes the preferred replicas leaders, which moves leaders after a broker was away."""
        admin = self.admin()
        partitions = [TopicPartition(topic, number) for number in self.leaders(topic)]
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result(patient(20))

    def restart(self, number: int, topic: str, seconds_away: float = 0) -> None:
        """Restarts a broker in an orderly way: other brokers lead its partitions meanwhile, and it is in sync at the
        end."""
        broker = self.brokers[number]
        broker.stop()
        self.return_of(number, topic, seconds_away)

    def return_of(self, number: int, topic: str, seconds_away: float = 0) -> None:
        time.sleep(seconds_away)
        self.brokers[number].start()
        wait_until(lambda: self.in_sync(topic), 60, f"broker {number} to be in sync", 0.1)

    def some_leader(self, topic: str) -> int:
        return random.choice(list(self.leaders(topic).values()))
