"""Writes the pages that are generated from the source: `make docs`."""

import doctor
import kafka_errors
import option_tables
import reference
from outbox_rig import Rig

PAGES = (reference, doctor, kafka_errors, *option_tables.PAGES)

if __name__ == "__main__":
    with Rig("docs") as rig, rig.postgres().connect() as connection:
        connection.execute("CREATE EXTENSION outbox")
        for page in PAGES:
            page.PAGE.write_text(page.made(connection))
            print(f"{page.PAGE} is as the server tells")
