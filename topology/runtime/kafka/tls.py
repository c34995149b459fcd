"""TLS for Kafka's Python clients, with a context that can be sent to other processes."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["PortableContext", "TlsSettings", "make_context", "pem_blocks", "text_as_file"]

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.S)


@dataclass(frozen=True)
class TlsSettings:
    """The settings of a client's TLS context. Texts are PEM; files are read in the process that makes the context.

    :param ca_file: file with the certificates to trust. If both it and ``ca`` are None, the system's are trusted.
    :param ca: certificates to trust.
    :param own_file: file with the client's key and certificate chain.
    :param own: the client's key and certificate chain.
    :param key_password: password of an encrypted key.
    :param check_hostname: whether the broker's certificate must name its host.
    :param versions: the allowed protocol versions, of ``TLSv1.2`` and ``TLSv1.3``.
    """

    ca_file: str | None = None
    ca: str | None = None
    own_file: str | None = None
    own: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")


class PortableContext(ssl.SSLContext):
    """A client's context that can be pickled: each process makes its own from the same settings."""

    settings: TlsSettings

    def __reduce__(self) -> tuple[object, tuple[TlsSettings]]:
        return make_context, (self.settings,)


def make_context(settings: TlsSettings) -> PortableContext:
    """Return a context made of ``settings``.

    :raises OSError: a file cannot be read, or a text is not PEM (``ssl.SSLError``).
    """
    context = PortableContext(ssl.PROTOCOL_TLS_CLIENT)
    context.settings = settings
    allowed = [ssl.TLSVersion[v.replace(".", "_")] for v in settings.versions]
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)
    context.check_hostname = settings.check_hostname
    if settings.ca_file is None and settings.ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cafile=settings.ca_file, cadata=None if settings.ca is None else pem_blocks(settings.ca))
    # Without a password, OpenSSL would ask for one on the terminal.
    password = settings.key_password or (lambda: "")
    if settings.own_file is not None:
        context.load_cert_chain(settings.own_file, password=password)
    if settings.own is not None:
        with text_as_file(pem_blocks(settings.own)) as path:
            context.load_cert_chain(path, password=password)
    return context


def pem_blocks(text: str) -> str:
    """Return the blocks of a PEM text in lines of 64 characters, as OpenSSL requires; Java also accepts lines that YAML has folded."""
    blocks = []
    for kind, body in _BLOCK.findall(text):
        data = "".join(body.split())
        lines = [data[i : i + 64] for i in range(0, len(data), 64)]
        blocks.append("\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""]))
    return "".join(blocks)


@contextlib.contextmanager
def text_as_file(text: str) -> Iterator[str]:
    """Yield the path of a file with PEM text, because OpenSSL reads keys from files only; the file is in memory if possible."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("key")
        try:
            os.write(handle, text.encode())
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
    else:
        with tempfile.NamedTemporaryFile("w") as file:  # readable by its owner alone
            file.write(text)
            file.flush()
            yield file.name
