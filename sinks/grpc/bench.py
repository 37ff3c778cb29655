"""make bench: a gRPC server in Python (grpc.aio) over TLS that only counts, beside a client in Python (grpc.aio) with as many calls in
flight. Server and client are the same library, and the server is the slower end of both: the figures are the server's."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "test"), str(HERE.parents[1] / "bench"), str(HERE / "bench")]

import counter  # noqa: E402
import grpc  # noqa: E402
import stubs  # noqa: E402
from beside_library import BesideLibrary  # noqa: E402
from outbox_rig.certificates import Authority  # noqa: E402

os.environ["PYTHONPATH"] = f"{stubs.FOLDER}:{os.environ.get('PYTHONPATH', '')}"  # of the client, which makes the sink's messages
CALLS = 32
COUNTER = [sys.executable, str(HERE / "bench/counter.py")]


class Grpc(BesideLibrary):
    kind, library, events = "grpc", "grpcio", 10_000

    def start(self, rig):
        authority = Authority("the benchmark's authority")
        own = authority.issue("server", "127.0.0.1", rsa_bits=2048)
        self.authority = authority.certificate
        self.folder = rig.dir / "certificates"
        self.folder.mkdir()
        for name, pem in (("key", own.key), ("certificate", own.certificate), ("authority", authority.certificate)):
            (self.folder / f"{name}.pem").write_text(pem)
        self.server = rig.service(argv=[*COUNTER, "serve", "{port}", str(self.folder)])
        channel = grpc.secure_channel(f"127.0.0.1:{self.server.port}", grpc.ssl_channel_credentials(self.authority.encode()))
        self.taken = channel.unary_unary(counter.TAKEN)

    def options(self):
        return f"url 'https://127.0.0.1:{self.reach(self.server.port)}', allow_networks '127.0.0.0/8', concurrency '{CALLS}', ssl_ca_pem '{self.authority}'"

    def count(self):
        return int(self.taken(b""))

    empty = count

    def library_seconds(self, events):
        return self.seconds_of(*COUNTER, "call", self.reach(self.server.port), self.folder, events, CALLS, self.payload)


if __name__ == "__main__":
    Grpc().main()
