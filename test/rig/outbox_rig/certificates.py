"""Certificate authorities and certificates, created for each run."""

import datetime
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
VALID, EXPIRED = (-2, 1), (-2, -1)  # days from now


@dataclass
class Certificate:
    """PEM texts; `key` is in PKCS #8."""

    certificate: str
    key: str

    @property
    def chain(self) -> str:
        """Key and certificates in one text, the format of Kafka's PEM key stores."""
        return self.key + self.certificate

    def server_context(self, clients: "Authority | None" = None, security_level: int | None = None, optional: bool = False) -> ssl.SSLContext:
        """A server context with this certificate. `clients`: clients must have a certificate of this authority;
        `optional`: they are asked for it, and may have none. `security_level`: OpenSSL's; 0 accepts weak keys."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if security_level is not None:
            context.set_ciphers(f"DEFAULT:@SECLEVEL={security_level}")
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # the ssl module reads only files
            file.write(self.chain)
            file.flush()
            context.load_cert_chain(file.name)
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            if optional:
                context.verify_mode, context.num_tickets = ssl.CERT_OPTIONAL, 0  # a resumed session asks for no certificate
            context.load_verify_locations(cadata=clients.certificate)
        return context


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def _key(rsa_bits: int | None) -> PrivateKey:
    return rsa.generate_private_key(65537, rsa_bits) if rsa_bits else ec.generate_private_key(ec.SECP256R1())


def _pem(key: PrivateKey) -> str:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()


class Authority:
    def __init__(self, name: str):
        self._name, self._key = _name(name), ec.generate_private_key(ec.SECP256R1())
        own = self._builder(self._name, self._key, VALID).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        self.certificate = own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def _builder(self, subject: x509.Name, key: PrivateKey, days: tuple[int, int]) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
                .serial_number(x509.random_serial_number()).not_valid_before(now + days[0] * DAY)
                .not_valid_after(now + days[1] * DAY))

    def issue(self, common_name: str, *hosts: str, expired: bool = False, days: tuple[int, int] = VALID,
              rsa_bits: int | None = None) -> Certificate:
        """Issues a certificate for a server at `hosts` (names or addresses), or for a client. `days`: validity from and
        to, relative to now; `rsa_bits`: use an RSA key."""
        key = _key(rsa_bits)
        return self._certificate(hosts, key, self._builder(_name(common_name), key, EXPIRED if expired else days))

    def _certificate(self, hosts, key, builder) -> Certificate:
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Certificate(signed.public_bytes(serialization.Encoding.PEM).decode(), _pem(key))


def self_signed(common_name: str, *hosts: str) -> Certificate:
    """A self-signed certificate."""
    nobody = Authority(common_name)
    builder = nobody._builder(nobody._name, nobody._key, VALID)
    return nobody._certificate(hosts, nobody._key, builder)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
