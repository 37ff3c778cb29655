"""The rig: a private PostgreSQL, Kafka, webhook receiver and nginx, started, broken and stopped from Python.

    with Rig("demo") as rig:
        pg = rig.postgres()
        kafka = rig.kafka()
        receiver = rig.receiver(secret="whsec_...")

Everything lives under build/rig/<name>, and everything is stopped when the block, the process or its parent ends.
"""

from .consumer import Consumer, Record
from .debezium import Debezium
from .kafka import Kafka
from .nginx import Nginx
from .paths import BUILD, ROOT
from .postgres import Postgres
from .receiver import Delivery, Receiver
from .rig import Rig
from .seed import seed
from .wait import patient, wait_until

__all__ = ["BUILD", "ROOT", "Consumer", "Debezium", "Delivery", "Kafka", "Nginx", "Postgres", "Receiver", "Record", "Rig", "patient", "seed", "wait_until"]
