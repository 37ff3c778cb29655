"""A gRPC server that works once per event, although an event may arrive twice.

  python3 -m venv venv && venv/bin/pip install grpcio grpcio-tools 'psycopg[binary]'
  venv/bin/python -m grpc_tools.protoc -I.. --python_out=. --grpc_python_out=. sink.proto
  venv/bin/python server.py 127.0.0.1:50051 'dbname=shop'

The work and the note that it is done are one transaction in the server's database, which has the extension
outbox_inbox. The call is answered after that transaction; if the server dies in between, the event comes again, and
mark_processed() returns false for it.
"""

import sys
from concurrent import futures

import grpc
import psycopg
import sink_pb2
import sink_pb2_grpc


def work(database: psycopg.Connection, event: sink_pb2.Event) -> None:
    """Yours: here each event adds a line to a table."""
    database.execute("INSERT INTO mails (event_type, payload) VALUES (%s, %s)", [event.event_type, event.payload.decode()])


class Sink(sink_pb2_grpc.SinkServicer):
    def __init__(self, dsn: str):
        self.dsn = dsn

    def Publish(self, event: sink_pb2.Event, context: grpc.ServicerContext) -> sink_pb2.PublishReply:
        if "outbox-probe" in dict(context.invocation_metadata()):  # outbox.probe(..., send => true)
            return sink_pb2.PublishReply()
        with psycopg.connect(self.dsn) as database:  # a transaction; use a pool where connections are dear
            if database.execute("SELECT outbox_inbox.mark_processed(%s, 'mail')", [event.id]).fetchone()[0]:
                work(database, event)
        return sink_pb2.PublishReply()


def main(address: str, dsn: str) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
    sink_pb2_grpc.add_SinkServicer_to_server(Sink(dsn), server)
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
