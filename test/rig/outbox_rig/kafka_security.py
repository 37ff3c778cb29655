"""The secured listeners of a broker: certificates, users, tokens and ACLs."""

import secrets
from pathlib import Path

from .certificates import Authority
from .process import free_port
from .token_server import TokenServer

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = {
    "SSL": "SSL",
    "MTLS": "SSL",  # clients must have a certificate
    "EXPIRED": "SSL",  # the broker's certificate has expired
    "MISNAMED": "SSL",  # the broker's certificate names another host
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",  # PLAIN only
    "SASL_SSL": "SASL_SSL",
}


def password() -> str:
    """A random password that occurs nowhere else, so that a log can be searched for it."""
    return secrets.token_hex(12)


class Security:
    """Users: `users` with SASL/PLAIN, SCRAM and (the token server's client "outbox") OAUTHBEARER; "CN=<name>" with a
    certificate. "rotated" and "scrammed" are for tests that change passwords. All users may do everything that no
    ACL restricts; ANONYMOUS (the PLAINTEXT listener) and "admin" may do everything."""

    def __init__(self, directory: Path, address: str, plaintext_port: int):
        self.dir, self.address = directory, address
        self.ports = {"PLAINTEXT": plaintext_port} | {listener: free_port() for listener in PROTOCOLS}
        self.users = {user: password() for user in ("outbox", "second", "rotated", "scrammed", "admin")}
        self.authority = Authority("rig CA")
        self.client_authority = Authority("rig client CA")  # certificates that the MTLS listener accepts
        self.stranger = Authority("unknown CA")
        self.tokens = TokenServer("outbox", password())

    @property
    def ca_pem(self) -> str:
        """The certificates that a client must trust."""
        return self.authority.certificate

    def bootstrap(self, listener: str) -> str:
        return f"{self.address}:{self.ports[listener]}"

    def trust_clients_of(self, authority: Authority) -> None:
        """Takes effect at the next start of the broker."""
        self.client_authority = authority

    def write(self) -> dict[str, str]:
        """Writes the files that the broker reads at start, and returns its properties."""
        self.dir.mkdir(parents=True, exist_ok=True)
        stores = {
            "server": self.authority.issue("broker", self.address, "localhost").chain,
            "expired": self.authority.issue("broker", self.address, "localhost", expired=True).chain,
            "misnamed": self.authority.issue("broker", "other.example").chain,
            "clients": self.client_authority.certificate,
        }
        for name, pem in stores.items():
            (self.dir / f"{name}.pem").write_text(pem)
        (self.dir / "jwks.json").write_text(self.tokens.jwks())

        properties = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
            "allow.everyone.if.no.acl.found": "true",
        }
        for listener, protocol in PROTOCOLS.items():
            prefix = f"listener.name.{listener.lower()}."
            if "SSL" in protocol:
                store = listener.lower() if listener in ("EXPIRED", "MISNAMED") else "server"
                properties |= {f"{prefix}ssl.keystore.type": "PEM", f"{prefix}ssl.keystore.location": str(self.dir / f"{store}.pem")}
            if protocol.startswith("SASL"):
                properties |= self._sasl(prefix, ("PLAIN",) if listener == "SASL_PLAINTEXT" else ("PLAIN", *SCRAM, "OAUTHBEARER"))
        properties |= {
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.mtls.ssl.truststore.type": "PEM",
            "listener.name.mtls.ssl.truststore.location": str(self.dir / "clients.pem"),
        }
        return properties

    def _sasl(self, prefix: str, mechanisms: tuple[str, ...]) -> dict[str, str]:
        module = "org.apache.kafka.common.security"
        plain = "".join(f' user_{user}="{secret}"' for user, secret in self.users.items())
        oauth = f"{prefix}oauthbearer.sasl"
        return {
            f"{prefix}sasl.enabled.mechanisms": ",".join(mechanisms),
            f"{prefix}plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required{plain};",
            **{f"{prefix}{mechanism.lower()}.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;" for mechanism in SCRAM},
            f"{oauth}.jaas.config": f"{module}.oauthbearer.OAuthBearerLoginModule required;",
            f"{oauth}.server.callback.handler.class": f"{module}.oauthbearer.OAuthBearerValidatorCallbackHandler",
            f"{oauth}.oauthbearer.jwks.endpoint.url": (self.dir / "jwks.json").as_uri(),
            f"{oauth}.oauthbearer.expected.audience": "kafka",
            f"{prefix}oauthbearer.connections.max.reauth.ms": "3600000",  # a connection ends with its token
        }

    def java_options(self) -> list[str]:
        jwks = self.dir / "jwks.json"
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks.as_uri()}",
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={jwks}"]

    def scram_users(self) -> list[str]:
        """Arguments for formatting the broker's storage."""
        return [argument for user, secret in self.users.items() for mechanism in SCRAM
                for argument in ("--add-scram", f"{mechanism}=[name={user},password={secret}]")]
