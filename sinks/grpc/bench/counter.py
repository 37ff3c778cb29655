"""A gRPC server that counts the calls and answers OK, and a client that calls it. Programs of their own, so that each has its own
interpreter. FOLDER has key.pem, certificate.pem and authority.pem.

  counter.py serve PORT FOLDER: TAKEN answers with the number of calls since it was called last
  counter.py call PORT FOLDER CALLS CONCURRENCY PAYLOAD_BYTES: the seconds that the calls took"""

import asyncio
import sys
import time
import uuid
from pathlib import Path

import grpc.aio

METHOD, TAKEN = "/outbox.v1.Sink/Publish", "/outbox.bench/Taken"


async def serve(port: int, folder: Path) -> None:
    calls = 0

    async def take(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        nonlocal calls
        calls += 1
        return b""

    async def taken(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        nonlocal calls
        found, calls = calls, 0
        return str(found).encode()

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(taken if details.method == TAKEN else take)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers([Handler()])
    server.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([((folder / "key.pem").read_bytes(), (folder / "certificate.pem").read_bytes())]))
    await server.start()
    await server.wait_for_termination()


async def call(port: int, folder: Path, calls: int, concurrency: int, payload: int) -> float:
    import sink_pb2

    credentials = grpc.ssl_channel_credentials((folder / "authority.pem").read_bytes())
    body, numbers = ('{"x": "' + "x" * (payload - 9) + '"}').encode(), iter(range(calls))
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        publish = channel.unary_unary(METHOD)

        async def one_after_the_other() -> None:
            for number in numbers:
                id = str(uuid.uuid4())
                event = sink_pb2.Event(id=id, aggregate_type="Order", aggregate_id=str(number), key=str(number), event_type="order.made", payload=body,
                                       content_type="application/json", attempt=1)
                event.created_at.GetCurrentTime()
                await publish(event.SerializeToString(), metadata=(("outbox-id", id),), timeout=60)

        began = time.monotonic()
        await asyncio.gather(*(one_after_the_other() for _ in range(concurrency)))
        return time.monotonic() - began


if __name__ == "__main__":
    verb, port, folder, *numbers = sys.argv[1:]
    if verb == "serve":
        asyncio.run(serve(int(port), Path(folder)))
    else:
        print(asyncio.run(call(int(port), Path(folder), *map(int, numbers))))
