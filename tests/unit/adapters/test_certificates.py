"""What is found in an operator's certificate before a client finds it, and what of it is told."""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat
from cryptography.x509.oid import NameOID

from control.adapters.certificates import DAYS, Pair, looked_at, self_signed
from control.core.errors import UsageError

NOW = datetime(2026, 12, 1, tzinfo=timezone.utc)


class Authority:
    """Issues certificates; `over` is the one that issued its own."""

    def __init__(self, name: str, over: Authority | None = None) -> None:
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.pem = self._sign(over or self, self.name, self.key.public_key(), [], NOW, True)

    def _sign(self, by: Authority, name: x509.Name, public: Any, names: list[str], begin: datetime, ca: bool) -> str:
        built = x509.CertificateBuilder(
            by.name, name, public, x509.random_serial_number(), begin, begin + timedelta(days=10)
        ).add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        if names:
            built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False)
        return built.sign(by.key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()

    def issue(self, *names: str, begin: datetime = NOW, passphrase: bytes | None = None) -> Pair:
        """A server's certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
        lock = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock).decode()
        return Pair(self._sign(self, own, key.public_key(), list(names), begin, False), private)


ROOT = Authority("root")
MIDDLE = Authority("middle", ROOT)
GOOD = MIDDLE.issue("llm.example.com")


def look(pair: Pair, now: datetime = NOW + timedelta(hours=1)) -> Any:
    return looked_at(pair, "cert.pem", "key.pem", now)


def test_one_of_ours_has_the_names_and_the_time_that_were_asked_for() -> None:
    pair = self_signed(["llm.example.com", "*.example.org", "10.0.0.7", "::1"], NOW)
    seen = looked_at(pair, "c", "k", NOW)
    assert set(seen.names) == {"llm.example.com", "*.example.org", "10.0.0.7", str(ipaddress.ip_address("::1"))}
    assert (seen.trial, seen.expires) == (True, NOW + timedelta(days=DAYS))
    assert self_signed(["a"], NOW).digest != self_signed(["a"], NOW).digest
    assert "PRIVATE" not in repr(pair)


def test_a_name_that_no_common_name_can_hold_is_no_obstacle() -> None:
    long = ".".join(["a" * 60] * 3)
    assert looked_at(self_signed([long], NOW), "c", "k", NOW).names == (long,)


@pytest.mark.parametrize(
    "chain",
    [GOOD.certificate, GOOD.certificate + MIDDLE.pem, GOOD.certificate + MIDDLE.pem + ROOT.pem],
    ids=["alone", "with the middle", "with the root"],
)
def test_a_certificate_with_its_chain_in_order_is_good(chain: str) -> None:
    seen = look(Pair(chain, GOOD.key))
    assert (seen.names, seen.trial) == (("llm.example.com",), False)


BAD = [
    (Pair("", GOOD.key), "cert.pem: no PEM certificate"),
    (Pair(GOOD.key, GOOD.key), "cert.pem: no PEM certificate"),
    (Pair(GOOD.certificate, ""), "key.pem: no PEM private key"),
    (Pair(GOOD.certificate, GOOD.certificate), "key.pem: no PEM private key"),
    (Pair(GOOD.certificate, MIDDLE.issue("other").key), "key.pem: this is not the key of the certificate in cert.pem"),
    (Pair(MIDDLE.pem + GOOD.certificate, GOOD.key), "cert.pem: the server's own certificate is number 2 of 2"),
    (Pair(GOOD.certificate + ROOT.pem, GOOD.key), "cert.pem: certificate 2 of 2 did not issue certificate 1"),
    (
        Pair(GOOD.certificate + ROOT.pem + MIDDLE.pem, GOOD.key),
        "cert.pem: certificate 2 of 3 did not issue certificate 1",
    ),
    (MIDDLE.issue("a", begin=NOW - timedelta(days=20)), "cert.pem: expired at 2026-11-21 00:00 UTC"),
    (MIDDLE.issue("a", begin=NOW + timedelta(days=2)), "cert.pem: valid from 2026-12-03 00:00 UTC on"),
    (MIDDLE.issue(), "cert.pem: names no host"),
    (MIDDLE.issue("a", passphrase=b"secret"), "key.pem: the key has a passphrase"),
]


@pytest.mark.parametrize(("pair", "what"), BAD, ids=[what for _, what in BAD])
def test_what_clients_would_refuse_is_refused_here_in_words_and_without_a_line_of_the_key(
    pair: Pair, what: str
) -> None:
    with pytest.raises(UsageError) as refused:
        look(pair)
    assert refused.value.what == what
    told = "".join((refused.value.what, refused.value.why, refused.value.fix))
    assert not any(line and line in told for line in pair.key.splitlines() if "-----" not in line)
