"""Nkeys and the JWTs of an operator, an account and its users, as nsc makes them."""

import base64
import binascii
import hashlib
import json
import time

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

SEED, OPERATOR, ACCOUNT, USER = 18 << 3, 14 << 3, 0, 20 << 3


def _base32(data: bytes) -> str:
    return base64.b32encode(data + binascii.crc_hqx(data, 0).to_bytes(2, "little")).decode().rstrip("=")


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Nkey:
    def __init__(self, use: int):
        self.private = Ed25519PrivateKey.generate()
        self.public = _base32(bytes([use]) + self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
        raw = self.private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        self.seed = _base32(bytes([SEED | use >> 5, (use & 31) << 3]) + raw)

    def jwt(self, subject: str, name: str, body: dict, expires_in: int = 0) -> str:
        claims = {"iat": int(time.time()), "iss": self.public, "name": name, "sub": subject, "nats": body | {"version": 2}}
        if expires_in:
            claims["exp"] = int(time.time()) + expires_in
        claims["jti"] = base64.b32encode(hashlib.new("sha512_256", json.dumps(claims).encode()).digest()).decode().rstrip("=")
        text = ".".join(_base64(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims))
        return f"{text}.{_base64(self.private.sign(text.encode()))}"


def user_nkey() -> Nkey:
    return Nkey(USER)


class Operator:
    """With one account that may use JetStream, beside the one of the system."""

    def __init__(self):
        self.key, self.account, self.system = Nkey(OPERATOR), Nkey(ACCOUNT), Nkey(ACCOUNT)
        self.jwt = self.key.jwt(self.key.public, "operator", {"type": "operator", "system_account": self.system.public})
        limits = {name: -1 for name in ("subs", "data", "payload", "imports", "exports", "conn", "leaf", "mem_storage", "disk_storage", "streams", "consumer")}
        self.account_jwt = self.key.jwt(self.account.public, "account", {"type": "account", "limits": limits | {"wildcards": True}})
        for name in ("mem_storage", "disk_storage", "streams", "consumer"):
            limits[name] = 0
        self.system_jwt = self.key.jwt(self.system.public, "system", {"type": "account", "limits": limits | {"wildcards": True}})

    def config(self) -> str:
        return f"operator: {self.jwt}\nresolver: MEMORY\nresolver_preload: {{ {self.account.public}: {self.account_jwt}, {self.system.public}: {self.system_jwt} }}"


class User:
    def __init__(self, operator: Operator, expires_in: int = 0):
        self.key = user_nkey()
        self.public, self.seed = self.key.public, self.key.seed
        self.jwt = operator.account.jwt(self.public, "user", {"type": "user", "subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {}}, expires_in)

    @property
    def credentials(self) -> str:
        return (f"-----BEGIN NATS USER JWT-----\n{self.jwt}\n------END NATS USER JWT------\n\n************************* IMPORTANT *************************\n"
                f"NKEY Seed printed below can be used to sign and prove identity.\n\n-----BEGIN USER NKEY SEED-----\n{self.seed}\n------END USER NKEY SEED------\n")

    # ---- for the tests' own connection -------------------------------------------------------------------------

    def jwt_callback(self) -> bytearray:
        return bytearray(self.jwt.encode())

    def signature_callback(self, nonce: str) -> bytes:
        return base64.b64encode(self.key.private.sign(nonce.encode()))
