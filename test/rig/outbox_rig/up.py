"""python -m outbox_rig.up [NAME]: runs the parts for manual tests, until Ctrl-C."""

import sys
import time
from pathlib import Path

from . import Rig
from .paths import pg_config
from .receiver import SECRET


def follow(log: Path) -> None:
    """Prints the lines that are added to the file from now on."""
    with open(log) as lines:
        lines.seek(0, 2)
        while True:
            if line := lines.readline():
                print(line, end="")
            else:
                time.sleep(0.1)


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "up"
    installed = (pg_config("pkglibdir") / "outbox.so").exists()
    with Rig(name) as rig:
        print("starting PostgreSQL, Kafka and a receiver ...")
        pg = rig.postgres(settings={} if installed else {"shared_preload_libraries": ""})
        kafka = rig.kafka()
        with pg.connect() as admin:
            admin.execute("CREATE DATABASE receiver")
        receiver = rig.service(argv=[sys.executable, "-u", "-m", "receiver", "--port", "{port}", "--secret", SECRET, "--database", pg.dsn("receiver")])
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
            follow(receiver.log)
        except KeyboardInterrupt:
            print("\nstopping ...")


main()
