"""A gRPC server that writes down what it gets before it answers, and answers as a file says. A program of its own, so that it can be killed.

  python server.py PORT FOLDER [OPTION]...: name=number, options of gRPC's server; or tls, with certificate.pem, key.pem and authority.pem in FOLDER

FOLDER/calls has a line of JSON per call. FOLDER/behaviour, if it is there, is JSON: `code`, `text`, `trailers` (those with -bin in hex), `sleep` (seconds), `size` (bytes of the answer); with `keys` it is
for events of these keys only, with `times` for the first so many calls of each event."""

import collections
import json
import os
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc


def main(port: str, folder: Path, options: list[str]) -> None:
    sys.path.insert(0, os.environ["STUBS"])
    import sink_pb2

    calls = os.open(folder / "calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    seen, lock = collections.Counter(), threading.Lock()

    def take(request: bytes, context: grpc.ServicerContext, method: str) -> bytes:
        metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        try:
            event = sink_pb2.Event.FromString(request)
            key = event.key
        except Exception:
            key = ""
        id = metadata.get("outbox-id", "")
        with lock:
            seen[id] += 1
            nth = seen[id]
        try:
            behaviour = json.loads((folder / "behaviour").read_text())
        except FileNotFoundError:
            behaviour = {}
        if ("keys" in behaviour and key not in behaviour["keys"]) or nth > behaviour.get("times", nth):
            behaviour = {}
        line = {"method": method, "message": request.hex(), "metadata": metadata, "deadline": context.time_remaining(), "peer": context.peer(),
                "user": [name.decode() for name in context.peer_identities() or []], "code": behaviour.get("code", "OK")}
        os.write(calls, json.dumps(line).encode() + b"\n")
        time.sleep(behaviour.get("sleep", 0))
        context.set_trailing_metadata(tuple((name, bytes.fromhex(value) if name.endswith("-bin") else value)
                                            for name, value in behaviour.get("trailers", {}).items()))
        if "code" in behaviour and behaviour["code"] != "OK":
            context.abort(grpc.StatusCode[behaviour["code"]], behaviour.get("text", ""))
        return bytes(behaviour.get("size", 0))

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            if details.method.startswith("/missing."):
                return None
            return grpc.unary_unary_rpc_method_handler(lambda request, context: take(request, context, details.method))

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=64), handlers=[Handler()],
                         options=[("grpc." + name, int(value)) for name, value in (option.split("=") for option in options if option != "tls")])
    if "tls" in options:
        pem = {name: (folder / f"{name}.pem").read_bytes() for name in ("key", "certificate", "authority")}
        server.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([(pem["key"], pem["certificate"])], pem["authority"], True))
    else:
        server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
