"""Which addresses librdkafka may connect to for a sink whose owner is no superuser, and that no error tells one."""

import pytest
from outbox_rig.kind_fixtures import no_error_tells_an_address, the_machine_itself_is_refused

pytestmark = pytest.mark.librdkafka


def test_networks_that_are_refused(db):
    the_machine_itself_is_refused(db, "kafka", "bootstrap_servers")


def test_no_error_tells_an_address(db):
    no_error_tells_an_address(db, "kafka", "bootstrap_servers", "localhost:PORT/bootstrap: Connect to it failed: Connection refused")
