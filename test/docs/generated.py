"""Writes the pages that are generated from the source: `make docs`. With the argument "surface", test/docs/surface.txt alone: `make surface`."""

import sys

import console_causes
import doctor
import kafka_errors
import option_tables
import reference
import surface
from outbox_rig import Rig

PAGES = (reference, doctor, console_causes, kafka_errors, *option_tables.PAGES)

if __name__ == "__main__":
    with Rig("docs") as rig, rig.postgres().connect() as connection:
        connection.execute("CREATE EXTENSION outbox")
        connection.execute("CREATE EXTENSION outbox_inbox")
        connection.execute("CREATE EXTENSION outbox_manual")
        if sys.argv[1:] == ["surface"]:
            surface.write(connection)
        else:
            for page in PAGES:
                page.PAGE.write_text(page.made(connection))
                print(f"{page.PAGE} is as the server tells")
