"""Certificates for tests: an authority, and keys that it signs; as PEM, PKCS12 and JKS."""

from __future__ import annotations

import datetime
import ipaddress
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

PEM = serialization.Encoding.PEM


def _certificate(name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, signer: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))] if name == "broker" else [x509.DNSName(name)]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name.from_rfc4514_string(f"CN={name}"))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(signer, hashes.SHA256())
    )


@dataclass(frozen=True)
class Identity:
    """A key with its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def chain_pem(self) -> str:
        return self.certificate.public_bytes(PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        encryption = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        return self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, encryption).decode()

    def pkcs12(self, password: str) -> bytes:
        return pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, None, serialization.BestAvailableEncryption(password.encode()))


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "authority") -> None:
        key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string(f"CN={name}")
        self._identity = Identity(key, _certificate(name, key, subject, key, is_authority=True))

    @property
    def pem(self) -> str:
        return self._identity.chain_pem

    def sign(self, name: str) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        return Identity(key, _certificate(name, key, self._identity.certificate.subject, self._identity.key, is_authority=False))

    def truststore(self, path: Path, kind: str, password: str) -> Path:
        """Write a trust store as Java users do, with keytool."""
        certificate = path.with_suffix(".pem")
        certificate.write_text(self.pem)
        _keytool("-importcert", "-noprompt", "-alias", "ca", "-file", str(certificate), "-keystore", str(path), "-storetype", kind, "-storepass", password)
        return path


def jks(store: Path, target: Path, password: str) -> Path:
    """Turn a PKCS12 key store into a JKS one."""
    _keytool(
        "-importkeystore",
        "-noprompt",
        "-srckeystore",
        str(store),
        "-srcstoretype",
        "PKCS12",
        "-srcstorepass",
        password,
        "-destkeystore",
        str(target),
        "-deststoretype",
        "JKS",
        "-deststorepass",
        password,
    )
    return target


def _keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True)
