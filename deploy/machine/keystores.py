"""Read Java key stores as PEM, for clients that are not written in Java."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from dskype.deploy.machine.errors import OptionError
from dskype.deploy.machine.java import find_java

__all__ = ["key_and_chain", "trusted_certificates"]


def trusted_certificates(location: str, kind: str, password: str | None) -> str:
    """Return the certificates of a trust store (JKS or PKCS12), read by Java's ``keytool``."""
    return _keytool("truststore", location, password, "-list", "-rfc", "-keystore", location, "-storetype", kind)


def key_and_chain(location: str, kind: str, password: str | None, key_password: str | None) -> str:
    """Return key and certificates of a key store with one key."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise OptionError(
            f"kafka.ssl.keystore.type {kind} needs the Python package cryptography, given: it is not installed",
            fix="pip install '/path/to/dskype[tls]', or use a PEM file with kafka.ssl.keystore.type=PEM",
        ) from None
    if key_password not in (None, password):
        raise OptionError(
            "kafka.ssl.key.password must be kafka.ssl.keystore.password for a key store that is no PEM, given: another one",
            fix="use one password for both, or a PEM file with kafka.ssl.keystore.type=PEM",
        )
    if kind == "PKCS12":
        data = _read(location)
    else:
        with tempfile.TemporaryDirectory() as folder:  # of mode 0700
            target = os.path.join(folder, "store.p12")
            _keytool(
                "keystore",
                location,
                password,
                "-importkeystore",
                "-srckeystore",
                location,
                "-srcstoretype",
                kind,
                "-srcstorepass:env",
                _VARIABLE,
                "-destkeystore",
                target,
                "-deststoretype",
                "PKCS12",
                "-noprompt",
                store_option="-deststorepass:env",
            )
            data = _read(target)
    try:
        key, own, further = pkcs12.load_key_and_certificates(data, (password or "").encode())
    except ValueError:
        raise OptionError(f"kafka.ssl.keystore.location must be a {kind} store that kafka.ssl.keystore.password opens, given: {location!r}") from None
    if key is None or own is None:
        raise OptionError(f"kafka.ssl.keystore.location must be a store with a key and its certificate, given: {location!r} without one")
    parts = [key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())]
    parts += [certificate.public_bytes(serialization.Encoding.PEM) for certificate in (own, *further)]
    return b"".join(parts).decode()


_VARIABLE = "DSKYPE_STORE_PASSWORD"
"""Environment variable of keytool's process. Its command line could be seen by every user."""


def _keytool(store: str, location: str, password: str | None, *arguments: str, store_option: str = "-storepass:env") -> str:
    _read(location)
    program = find_java().path.resolve().with_name("keytool")
    done = subprocess.run(
        [str(program), "-J-Xshare:auto", "-J-XX:TieredStopAtLevel=1", *arguments, store_option, _VARIABLE],
        env={**os.environ, _VARIABLE: password or "", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stdout.strip().splitlines() or ["no reason"])[0]
        raise OptionError(
            f"kafka.ssl.{store}.location must be a store that kafka.ssl.{store}.password opens, given: {location!r} ({said})",
            fix=f"check kafka.ssl.{store}.type and kafka.ssl.{store}.password",
        )
    return done.stdout


def _read(location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as e:
        raise OptionError(f"a key store must be a file that can be read, given: {location!r} ({(e.strerror or str(e)).lower()})") from None
