"""python -m outbox_rig.up [NAME]: the parts, to try things with, until Ctrl-C."""

import signal
import sys

from . import Delivery, Rig
from .paths import pg_config
from .receiver import SECRET


def show(delivery: Delivery) -> None:
    print(f"webhook {delivery.path} {delivery.id} -> {delivery.answered}  {delivery.body[:200].decode(errors='replace')}")


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "up"
    installed = (pg_config("pkglibdir") / "outbox.so").exists()
    with Rig(name) as rig:
        print("starting PostgreSQL, Kafka and a receiver ...")
        pg = rig.postgres(settings={} if installed else {"shared_preload_libraries": ""})
        kafka = rig.kafka()
        receiver = rig.receiver(secret=SECRET, on_delivery=show)
        print(f"""
PostgreSQL  psql -h {pg.host} -U postgres          log: {pg.log}
            {"outbox is preloaded" if installed else "outbox is not installed: started without the preload"}
Kafka       {kafka.bootstrap}                      log: {kafka.log}
            kcat -b {kafka.bootstrap} -C -t outbox.event.Order -f '%k %h %s\\n'
webhook     {receiver.url}    secret: {SECRET}

CREATE EXTENSION outbox;
CREATE SERVER main FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '{kafka.bootstrap}');
BEGIN;
CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook
  OPTIONS (url '{receiver.url}', allow_http 'true', allow_networks '127.0.0.0/8');
CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (secret '{SECRET}');
COMMIT;

Ctrl-C stops them all.
""")
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("\nstopping ...")


main()
