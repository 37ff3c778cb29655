"""Certificate authorities and what they sign, made anew for each run."""

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass
class Certificate:
    """PEM texts; `key` is PKCS #8."""

    certificate: str
    key: str

    @property
    def chain(self) -> str:
        """Key and certificate in one text, as Kafka's PEM key stores want them."""
        return self.key + self.certificate


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(key: ec.EllipticCurvePrivateKey, password: str | None) -> str:
    encryption = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()


class Authority:
    def __init__(self, name: str):
        self._name, self._key = _name(name), ec.generate_private_key(ec.SECP256R1())
        own = self._builder(self._name, self._key, expired=False).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        self.certificate = own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, expired: bool) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
                .serial_number(x509.random_serial_number()).not_valid_before(now - 2 * DAY)
                .not_valid_after(now - DAY if expired else now + DAY))

    def issue(self, common_name: str, *hosts: str, expired: bool = False, password: str | None = None) -> Certificate:
        """For a server at `hosts` (names or addresses), or for a client. `password` encrypts the key."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(common_name), key, expired)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Certificate(signed.public_bytes(serialization.Encoding.PEM).decode(), _pem(key, password))


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
