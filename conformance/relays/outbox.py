"""outbox: this extension, with a webhook

The database's server has it in shared_preload_libraries.
"""

import http.server
import threading

import psycopg


class Endpoint(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    delivered: list[str] = []

    def do_POST(self) -> None:
        self.delivered.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_) -> None:
        pass


class Relay:
    def __init__(self, dsn: str):
        self._handler = type("ThisEndpoint", (Endpoint,), {"delivered": []})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler)
        self._dsn = dsn

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS outbox")
            connection.execute("DROP SERVER IF EXISTS conformance CASCADE")
            connection.execute("CREATE SERVER conformance FOREIGN DATA WRAPPER outbox_webhook OPTIONS "
                               f"(url 'http://127.0.0.1:{self._server.server_port}', allow_http 'true', allow_networks '127.0.0.0/8', "
                               "format 'raw', events 'conformance')")

    def enqueue(self, connection: psycopg.Connection, event: str) -> None:
        connection.execute("SELECT outbox.enqueue('Conformance', %s, 'conformance', to_jsonb(%s::text))", [event, event])

    def delivered(self) -> list[str]:
        return [body.strip('"') for body in self._handler.delivered]

    def stop(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("DROP SERVER conformance")
        self._server.shutdown()
        self._server.server_close()
