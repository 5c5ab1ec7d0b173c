"""One POST to receivers that are polite, broken or hostile. Every socket is real."""

from __future__ import annotations

import datetime
import gzip
import ipaddress
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.webhooks.receivers import (
    DRIP_S,
    answer,
    for_ever,
    never,
    receiving,
    resets_after,
    says,
    stays_open_after,
)
from vpay_tasks import telemetry
from vpay_tasks.webhooks import egress, send
from vpay_tasks.webhooks.answer import Incoming, excerpt
from vpay_tasks.webhooks.egress import SANDBOX, EgressRefused
from vpay_tasks.webhooks.send import Answer, Trouble, post

BODY = b'{"id":"evt_1"}'
SHORT_S = 0.4
LONG_S = 30.0
OK = b"HTTP/1.1 200 OK\r\n"


def sent(url: str, *, whole: float = LONG_S, **more: object) -> Answer:
    headers = {"Vpay-Attempt": "1"}
    return post(url, headers, BODY, rules=SANDBOX, connect=5.0, whole=whole, **more)  # type: ignore[arg-type]


def test_the_request_is_one_plain_post_of_the_bytes_we_gave() -> None:
    with receiving() as receiver:
        got = sent(receiver.url)
    assert (got.status, got.address) == (200, "127.0.0.1")
    (seen,) = receiver.seen
    assert seen.line == "POST /hooks?for=vpay HTTP/1.1"
    assert seen.body == BODY
    assert seen.headers["Host"] == receiver.url.split("/")[2]
    assert seen.headers["Accept-Encoding"] == "identity"
    assert seen.headers["Connection"] == "close"
    assert seen.headers["Vpay-Attempt"] == "1"


def test_each_request_is_counted_once() -> None:
    before = telemetry.counts().get("posts", 0)
    with receiving() as receiver:
        sent(receiver.url)
    assert telemetry.counts()["posts"] == before + 1


@pytest.mark.parametrize("status", [200, 201, 204, 299, 300, 302, 400, 410, 429, 500, 503])
def test_the_status_line_is_the_answer(status: int) -> None:
    with receiving(answer(status, b"said", "Retry-After: 7")) as receiver:
        got = sent(receiver.url)
    assert (got.status, got.retry_after) == (status, "7")


def test_a_redirect_is_not_followed() -> None:
    with (
        receiving() as elsewhere,
        receiving(answer(307, b"", f"Location: {elsewhere.url}")) as receiver,
    ):
        assert sent(receiver.url).status == 307
    assert elsewhere.seen == []


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving(answer(500)) as proxy, receiving() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert sent(receiver.url).status == 200
    assert proxy.seen == []


ENDLESS: dict[str, Callable[..., None]] = {
    "a body that drips": for_ever(OK + b"\r\n", b"x", pause=DRIP_S),
    "a body without end": for_ever(OK + b"\r\n", b"x" * 65_536),
    "a body that stalls": stays_open_after(OK + b"Content-Length: 10\r\n\r\nabc"),
    "headers that stall": stays_open_after(OK + b"X: y"),
    "headers without end": for_ever(OK, b"X-Flood: " + b"y" * 1_000 + b"\r\n"),
    "headers that drip": for_ever(OK, b"X: y\r\n", pause=DRIP_S),
    "a length of terabytes": stays_open_after(OK + b"Content-Length: 1000000000000\r\n\r\n"),
    "chunks without end": for_ever(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "a reset behind the status": resets_after(OK + b"\r\n"),
    "a broken length": says(OK + b"Content-Length: -5\r\n\r\nabc"),
    "broken chunks": says(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc"),
    "no reason phrase": says(b"HTTP/1.1 200\r\n\r\n"),
    "bare newlines": says(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"),
    "HTTP/1.0": says(b"HTTP/1.0 200 OK\r\n\r\nhello"),
    "an interim answer first": says(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"\r\n"),
}


@pytest.mark.parametrize("give", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_2xx_status_line_is_a_success_whatever_comes_behind_it(give: Callable[..., None]) -> None:
    with receiving(give) as receiver:
        assert sent(receiver.url, whole=SHORT_S).status == 200


NO_ANSWER: dict[str, Callable[..., None]] = {
    "silence": never,
    "a status line that drips": for_ever(b"HTTP/1.1 2", b"0", pause=DRIP_S),
    "a status line without an end": stays_open_after(b"HTTP/1.1 200 OK"),
    "a line that never ends": for_ever(b"HTTP/1.1 200 ", b"O" * 4_096),
    "interim answers for ever": for_ever(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "interim answers that drip": for_ever(b"", b"HTTP/1.1 102 Wait\r\n\r\n", pause=DRIP_S),
    "an interim answer and the end": says(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "an end without a word": says(b""),
    "a reset": resets_after(b""),
    "another protocol": says(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "HTTP/2": says(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00"),
    "HTTP/0.9": says(b"hello"),
    "a status of two digits": says(b"HTTP/1.1 20 OK\r\n\r\n"),
    "a status of four digits": says(b"HTTP/1.1 2000 OK\r\n\r\n"),
    "a status in other digits": says("HTTP/1.1 ２００ OK\r\n\r\n".encode()),
}


@pytest.mark.parametrize("give", NO_ANSWER.values(), ids=NO_ANSWER.keys())
def test_what_is_no_answer_has_no_status_and_says_why(give: Callable[..., None]) -> None:
    with receiving(give) as receiver:
        got = sent(receiver.url, whole=SHORT_S)
    assert got.status is None
    assert "ConnectionError" in got.excerpt or "TimeoutError" in got.excerpt
    assert got.address == "127.0.0.1"


def test_no_answer_in_time_tells_of_the_deadline_in_the_chain() -> None:
    with receiving(never) as receiver:
        got = sent(receiver.url, whole=SHORT_S)
    assert "ended without a status line <- TimeoutError" in got.excerpt


def test_an_answer_before_the_body_was_read_still_counts() -> None:
    with receiving(answer(413), reads=False) as receiver:
        got = post(receiver.url, {}, b"x" * 30_000_000, rules=SANDBOX, connect=5, whole=LONG_S)
    assert got.status == 413


def test_a_flood_of_interim_answers_is_cut_short() -> None:
    with receiving(for_ever(b"", b"HTTP/1.1 100 Continue\r\n\r\n")) as receiver:
        assert "more than 5 interim answers" in sent(receiver.url).excerpt


def test_a_receiver_that_never_reads_is_left_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts in the kernel, reads nothing
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        got = post(url, {}, b"x" * 30_000_000, rules=SANDBOX, connect=5, whole=SHORT_S)
    assert got.status is None


def test_nobody_there_is_an_attempt_without_an_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    got = sent(f"http://127.0.0.1:{port}/")
    assert (got.status, got.address) == (None, None)
    assert "ConnectionRefusedError" in got.excerpt


def test_a_name_that_does_not_resolve_is_an_attempt_without_an_answer() -> None:
    got = sent("http://name.invalid/")
    assert (got.status, got.trouble) == (None, Trouble.NAME)
    assert got.excerpt.startswith("NameUnresolved: dns_failed: ")


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".com", "a.", ".a", "0x7f.1", "127.1", "1"])
def test_a_host_that_is_no_name_is_not_asked_for_even_in_a_sandbox(host: str) -> None:
    got = sent(f"http://{host}/")
    assert (got.status, got.trouble) == (None, Trouble.URL)
    assert got.excerpt.startswith("ssrf_blocked: HOST_N")


def test_a_name_is_connected_to_and_stands_in_the_host_header() -> None:
    with receiving() as receiver:
        assert sent(receiver.url.replace("127.0.0.1", "localhost")).status == 200
    assert receiver.seen[0].headers["Host"].startswith("localhost:")


BAD_URLS = [
    "ftp://h/", "HTTP://h/", "http:/h/", "//h/", "http://", "http:///x", "http://u@h/",
    "http://u:p@h/", "http://@h/", "http://h:/", "http://h:0/", "http://h:65536/", "http://h:x/",
    "http://h\\@evil/", "http://h/a\\b", "http://h/#f", "http://h/\r\nX: y", "http://h/ x",
    "http://h\t/", " http://h/", "http://h/\x00", "http://é/", "http://h/é", "http://%68/",
    "http://[::1/", "http://::1/", "http://h/\x7f", "http://h/" + "x" * 2_048, "http://①/",
]  # fmt: skip


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_url_that_can_be_read_in_two_ways_is_not_called(url: str) -> None:
    with pytest.raises(EgressRefused) as refused:
        egress.parse(url, SANDBOX)
    assert "evil" not in str(refused.value)
    assert sent(url).status is None


def test_a_url_is_taken_apart_once() -> None:
    found = egress.parse("https://[::1]:8443?x=1", SANDBOX)
    assert (found.host, found.port, found.path) == ("::1", 8_443, "/?x=1")
    assert found.authority == "[::1]:8443"
    named = egress.parse("https://hooks.example.com/a/b?c=d", SANDBOX)
    assert named.authority == "hooks.example.com"
    for url in ("http://hooks.example.com:443/", "https://hooks.example.com:80/"):
        assert egress.parse(url, SANDBOX).authority == url.split("/")[2], "the other one's port"


@pytest.mark.parametrize(
    "headers",
    [{"X": "a\r\nY: b"}, {"X": "a\0"}, {"X": "é"}, {"X\r\n": "a"}, {"X Y": "a"}, {"": "a"}],
)
def test_a_header_that_would_break_out_is_not_sent(headers: dict[str, str]) -> None:
    with receiving() as receiver:
        got = post(receiver.url, headers, BODY, rules=SANDBOX, connect=5, whole=LONG_S)
    assert (got.status, receiver.seen) == (None, [])


def test_the_excerpt_shows_nothing_raw_and_is_short() -> None:
    hostile = "a\x00b\x1b[2Jc\u202ed\u200be\r\nf\ud7ff".encode() + b"\xff\xfe"
    with receiving(answer(500, hostile)) as receiver:
        got = sent(receiver.url)
    assert got.excerpt.isprintable()
    assert got.excerpt.startswith(r"a\x00b\x1b[2Jc\u202ed\u200be\r\nf")
    assert got.excerpt.endswith(r"\xff\xfe")
    assert len(excerpt(b"\0" * 16_384)) == 2_000


def test_a_secret_that_the_receiver_says_back_is_not_kept() -> None:
    with receiving(answer(500, b"your key is s3cr3t-key!")) as receiver:
        assert sent(receiver.url, hide=("s3cr3t-key",)).excerpt == "your key is [secret]!"


BASE64 = "whsec_MfKQ9r8G/KYqrTwj/UPD8ILPZIo2LaLaSw=="


@pytest.mark.parametrize(
    "said",
    [
        BASE64,
        BASE64.removeprefix("whsec_"),
        BASE64.rstrip("="),
        BASE64.removeprefix("whsec_").rstrip("="),
        BASE64.replace("/", "\\/"),
        BASE64.removeprefix("whsec_").replace("/", "\\/"),
    ],
)
def test_a_secret_is_hidden_in_every_spelling_that_libraries_take(said: str) -> None:
    kept = excerpt(f"<{said}>".encode(), (BASE64,))
    assert kept.replace("whsec_", "").replace("=", "") == "<[secret]>"


def test_hiding_a_secret_that_is_no_more_than_its_prefix_hides_nothing_else() -> None:
    assert excerpt(b"fine", ("whsec_", "")) == "fine"


def test_a_compressed_answer_is_never_decompressed() -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    with receiving(answer(500, bomb, "Content-Encoding: gzip")) as receiver:
        got = sent(receiver.url)
    assert got.status == 500
    assert got.excerpt.startswith(r"\x1f")
    assert len(got.excerpt) <= 2_000


def test_chunks_are_read_without_their_framing() -> None:
    raw = (
        b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    )
    with receiving(stays_open_after(raw)) as receiver:
        got = sent(receiver.url)
    assert (got.status, got.excerpt) == (500, "abcde")


def test_an_answer_reads_the_same_however_it_is_cut() -> None:
    raw = (
        b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 429 Slow\r\nRETRY-AFTER: 9\r\n"
        b"Content-Length: 3\r\n\r\nabc"
    )
    for size in range(1, len(raw) + 1):
        incoming = Incoming()
        for at in range(0, len(raw), size):
            assert not incoming.complete
            incoming.feed(raw[at : at + size])
        assert incoming.complete
        assert (incoming.status, incoming.header("retry-after"), incoming.body) == (
            429,
            "9",
            b"abc",
        )


def tls_for(tmp_path: Path, *, name: str = "127.0.0.1") -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver")])
    alternative: x509.GeneralName = (
        x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)
    )
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    file = tmp_path / f"{name}.pem"
    file.write_bytes(
        pem
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=pem.decode())
    return server, client


def test_tls_is_verified_by_name_and_delivers(tmp_path: Path) -> None:
    server, client = tls_for(tmp_path)
    with receiving(answer(200), tls=server) as receiver:
        assert sent(receiver.url, tls=client).status == 200
    assert receiver.bodies() == [BODY]


def test_the_keys_of_a_connection_are_written_to_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = tls_for(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "127.0.0.1.pem"))
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    send._shared_tls.cache_clear()
    try:
        with receiving(answer(200), tls=server) as receiver:
            assert sent(receiver.url).status == 200
    finally:
        send._shared_tls.cache_clear()
    assert not (tmp_path / "keys").exists()


def test_a_certificate_that_nobody_vouches_for_gets_nothing(tmp_path: Path) -> None:
    server, _ = tls_for(tmp_path)
    with receiving(answer(200), tls=server) as receiver:
        got = sent(receiver.url)
    assert (got.status, receiver.seen) == (None, [])
    assert "CERTIFICATE_VERIFY_FAILED" in got.excerpt


def test_a_certificate_for_another_name_gets_nothing(tmp_path: Path) -> None:
    server, client = tls_for(tmp_path, name="other.example.com")
    with receiving(answer(200), tls=server) as receiver:
        got = sent(receiver.url, tls=client)
    assert (got.status, receiver.seen) == (None, [])


def test_a_plain_server_on_an_https_url_is_an_attempt_without_an_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # never says a TLS word
        port = server.getsockname()[1]
        got = sent(f"https://127.0.0.1:{port}/", whole=SHORT_S)
    assert got.status is None
    assert got.address == "127.0.0.1"


def test_a_stalling_tls_body_is_left_at_the_deadline(tmp_path: Path) -> None:
    server, client = tls_for(tmp_path)
    with receiving(for_ever(OK + b"\r\n", b"x", pause=DRIP_S), tls=server) as receiver:
        assert sent(receiver.url, whole=SHORT_S, tls=client).status == 200


def test_a_sender_that_lost_its_right_while_it_connected_sends_no_byte() -> None:
    with receiving() as receiver, pytest.raises(send.Withheld):
        post(receiver.url, {}, b"{}", rules=SANDBOX, connect=5, whole=5, may_send=lambda: False)
    assert [seen.line for seen in receiver.seen if seen.line] == []
