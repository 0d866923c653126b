"""Certificates for tests: an authority and the certificates that it signs."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    """A certificate and its key, as files."""

    cert: str
    key: str


class Authority:
    """Signs certificates; its own certificate is in `file`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        limits = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(self._name, self._name, self._key).add_extension(limits, critical=True)
        self.file = str(folder / f"{name}.pem")
        Path(self.file).write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    @property
    def pem(self) -> bytes:
        """Its own certificate."""
        return Path(self.file).read_bytes()

    def vouches(self, common: str, *others: x509.GeneralName) -> Pair:
        """A certificate for that common name."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(common), self._name, key)
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        found = Pair(str(self._folder / f"{common}.pem"), str(self._folder / f"{common}.key"))
        Path(found.cert).write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        plain = serialization.NoEncryption()
        raw = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        Path(found.key).write_bytes(raw)
        return found

    def server(self) -> Pair:
        """A certificate for this machine."""
        return self.vouches("server", x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost"))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
