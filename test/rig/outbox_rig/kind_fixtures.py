"""Fixtures for the tests of a kind of sink in sinks/<kind>/test, as a pytest plugin: a server for the session, and a look at its log."""

import pytest

from .crashes import crashes
from .rig import Rig


@pytest.fixture(scope="session")
def rig(request):
    with Rig(f"sink-{request.config.rootpath.parent.name}") as rig:
        yield rig


@pytest.fixture(scope="session")
def pg(rig):
    return rig.postgres(settings={"outbox.poll_interval": "1s"})


@pytest.fixture(autouse=True)
def no_crash(request):
    pg = request.getfixturevalue("pg") if "pg" in request.fixturenames else None
    before = pg.log.stat().st_size if pg else 0
    yield
    if pg and (found := crashes(pg.log, before)):
        pytest.fail("the server's log tells of a crash:\n" + "\n".join(found), pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    pg = item.funcargs.get("pg") if hasattr(item, "funcargs") else None
    if report.failed and pg and pg.log.exists():
        report.sections.append(("server log", "\n".join(pg.log.read_text(errors="replace").splitlines()[-30:])))
