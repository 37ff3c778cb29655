"""An OAuth 2 token endpoint: it grants signed tokens for client credentials."""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from .process import free_port


class TokenServer:
    """Grants tokens with the subject `client` to `client` with `secret`. Not running until start()."""

    KEY_ID = "rig"

    def __init__(self, client: str, secret: str, lifetime: int = 60):
        self.client, self.secret, self.lifetime = client, secret, lifetime
        self.tokens: list[str] = []  # all granted tokens
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._port = free_port()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/token"

    @property
    def public_key(self) -> rsa.RSAPublicKey:
        return self._key.public_key()

    def jwks(self) -> str:
        """The keys with which a broker verifies the tokens."""
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.public_key))
        return json.dumps({"keys": [public | {"kid": self.KEY_ID, "alg": "RS256", "use": "sig"}]})

    def token(self) -> str:
        now = int(time.time())
        claims = {"iss": "rig", "sub": self.client, "aud": "kafka", "iat": now, "exp": now + self.lifetime}
        self.tokens.append(jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": self.KEY_ID}))
        return self.tokens[-1]

    def start(self) -> None:
        if self._server:
            return
        rig = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
                expected = "Basic " + base64.b64encode(f"{rig.client}:{rig.secret}".encode()).decode()
                if form.get("grant_type") != ["client_credentials"]:
                    self._reply(400, {"error": "unsupported_grant_type"})
                elif self.headers.get("Authorization") != expected:
                    self._reply(401, {"error": "invalid_client", "error_description": "unknown client or wrong secret"})
                else:
                    self._reply(200, {"access_token": rig.token(), "token_type": "Bearer", "expires_in": rig.lifetime})

            def _reply(self, status: int, body: dict) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
