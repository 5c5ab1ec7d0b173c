"""A DNS server that says what it is told to, and a web server on every address."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

A, AAAA = 1, 28
TLS_HANDSHAKE = 22
Answers = Mapping[str, Sequence[Sequence[str]]]
"""Name → what each lookup in turn is answered with; the last one for ever. `["silence"]`
never answers, `[]` says that there is no such name."""


@contextmanager
def lying(answers: Answers) -> Iterator[list[str]]:
    """Answers on 127.0.0.1:53; yields every name that was asked for, as often as it was."""
    asked: list[str] = []
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    # By question and not by packet: one that is sent again is not a second lookup.
    lookups: defaultdict[tuple[str, int], list[object]] = defaultdict(list)

    def serve() -> None:
        while (packet := server.recvfrom(512))[0] != b"end":
            query, client = packet
            name, end = _name(query)
            kind = struct.unpack_from("!H", query, end)[0]
            asked.append(name)
            turns = answers.get(name, [[]])
            question = (query[:2], client)
            if question not in lookups[name, kind]:
                lookups[name, kind].append(question)
            turn = min(lookups[name, kind].index(question), len(turns) - 1)
            if "silence" not in turns[turn]:
                server.sendto(_reply(query, end + 4, kind, turns[turn]), client)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield asked
    finally:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"end", ("127.0.0.1", 53))
        thread.join()
        server.close()


def _name(query: bytes) -> tuple[str, int]:
    at, labels = 12, []
    while size := query[at]:
        labels.append(query[at + 1 : at + 1 + size].decode("ascii"))
        at += 1 + size
    return ".".join(labels).lower(), at + 1


def _reply(query: bytes, end: int, kind: int, addresses: Sequence[str]) -> bytes:
    found = [ipaddress.ip_address(text) for text in addresses]
    records = [ip.packed for ip in found if (A if ip.version == 4 else AAAA) == kind]
    flags = 0x8180 if addresses else 0x8183
    head = query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0) + query[12:end]
    # A time to live of nothing: whoever asks again is answered anew.
    return head + b"".join(
        struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(packed)) + packed for packed in records
    )


@dataclass
class Authority:
    """A CA of the test's own, and what it signs."""

    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    @property
    def pem(self) -> bytes:
        return self._signed("ca", self.key, "ca", days=(-1, 1)).public_bytes(
            serialization.Encoding.PEM
        )

    def server(
        self, folder: Path, name: str, *, days: tuple[int, int] = (-1, 1), use: str = "leaf"
    ) -> Path:
        """A file with a certificate for `name` and its key; `days`: valid from, to; `use`
        "subject": the name is in its subject alone."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(name, key, use, days=days)
        file = folder / "server.pem"
        file.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return file

    def _signed(
        self, name: str, key: ec.EllipticCurvePrivateKey, use: str, *, days: tuple[int, int]
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        begin, end = (now + datetime.timedelta(days=day) for day in days)
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=use == "ca", path_length=None), critical=True)
        )
        if use == "leaf":
            builder = builder.add_extension(_alternative(name), critical=False)
        return builder.sign(self.key, hashes.SHA256())


def _alternative(name: str) -> x509.SubjectAlternativeName:
    try:
        return x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(name))])
    except ValueError:
        return x509.SubjectAlternativeName([x509.DNSName(name)])


@dataclass
class Visit:
    """One connection to the web server: the address that was called, and what was said."""

    address: str
    sni: str | None = None
    request: str = ""


@contextmanager
def everywhere(port: int, tls: ssl.SSLContext | None, reply: bytes) -> Iterator[list[Visit]]:
    """A server on `port` of all addresses of both families; yields its visits."""
    visits: list[Visit] = []
    server = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    threads: list[threading.Thread] = []

    def serve(plain: socket.socket) -> None:
        local = ipaddress.IPv6Address(plain.getsockname()[0])
        visit = Visit(str(local.ipv4_mapped or local))
        visits.append(visit)
        with plain, suppress(OSError):
            connection = tls.wrap_socket(plain, server_side=True) if tls else plain
            with connection:
                visit.sni = getattr(connection, "sni", None)
                while "\r\n\r\n" not in visit.request and (chunk := connection.recv(4_096)):
                    visit.request += chunk.decode("latin-1")
                    if chunk[0] == TLS_HANDSHAKE and tls is None:
                        break
                connection.sendall(reply)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(connection,)))
            threads[-1].start()

    if tls is not None:
        tls.sni_callback = _remember
    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield visits
    finally:
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        accepting.join()
        for thread in threads:
            thread.join()


def _remember(connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: object) -> None:
    connection.sni = name  # type: ignore[union-attr]
