"""Real certificates for a test: an authority of its own, and what it signs, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """Certificate and key, as files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates for 127.0.0.1 and localhost; `ca` is its own, for those who are to trust it."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        unsigned = self._begun(self._name, self._key.public_key()).add_extension(constraints, critical=True)
        usage = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        own = unsigned.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.ca = folder / f"{name}.ca.pem"
        self.ca.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def pair(self, name: str) -> Pair:
        """A certificate for server and client, in `name`.pem and `name`.key; an earlier one is replaced."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        signed = (
            self._begun(subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        for path, data in (
            (pair.cert, signed.public_bytes(serialization.Encoding.PEM)),
            (pair.key, key.private_bytes(serialization.Encoding.PEM, form, plain)),
        ):
            new = path.with_suffix(path.suffix + ".new")
            new.write_bytes(data)
            new.replace(path)
        return pair

    def _begun(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(identifier, critical=False)
            .add_extension(issuer, critical=False)
        )
