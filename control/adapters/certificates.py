"""Certificates of the public port: makes one for trial, and looks at what an operator brings before clients do."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import pairwise

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from control.core.errors import UsageError

DAYS = 90
TRIAL = "flashbox, self-signed for trial"  # the organisation of ours
_HOUR = timedelta(hours=1)  # clocks of clients that are behind


@dataclass(frozen=True)
class Pair:
    """A certificate with its chain, and its private key, both PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Pair(...)"

    @property
    def digest(self) -> str:
        """Of both: another pair has another."""
        return hashlib.sha256(f"{self.certificate}\n{self.key}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Certificate:
    """What clients will see of it."""

    names: tuple[str, ...]
    expires: datetime
    trial: bool  # made by `self_signed`


def self_signed(names: Sequence[str], now: datetime) -> Pair:
    """A certificate for these names and addresses, signed by its own key."""
    key = ec.generate_private_key(ec.SECP256R1())
    shown = names[0] if len(names[0]) <= 64 else "localhost"  # what a common name can hold
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, TRIAL), x509.NameAttribute(NameOID.COMMON_NAME, shown)]
    )
    public = key.public_key()
    built = (
        x509.CertificateBuilder(
            name, name, public, x509.random_serial_number(), now - _HOUR, now + timedelta(days=DAYS)
        )
        .add_extension(x509.SubjectAlternativeName([_general(each) for each in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(built.public_bytes(Encoding.PEM).decode(), private.decode())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def looked_at(pair: Pair, certificate_path: str, key_path: str, now: datetime) -> Certificate:
    """The server's own certificate; raises UsageError for what clients would refuse. No word of the key is told."""
    chain = _chain(pair.certificate, certificate_path)
    own, key = chain[0], _private(pair.key, key_path)
    mine = [place for place, one in enumerate(chain) if one.public_key() == key]
    if not mine:
        raise UsageError(f"{key_path}: this is not the key of the certificate in {certificate_path}", "", _PAIR)
    if mine[0] != 0:
        found = f"{certificate_path}: the server's own certificate is number {mine[0] + 1} of {len(chain)}"
        raise UsageError(found, "clients expect it first, then each one's issuer", _ORDER)
    _in_order(chain, certificate_path)
    if own.not_valid_after_utc <= now:
        raise UsageError(f"{certificate_path}: expired at {_shown(own.not_valid_after_utc)}", "", "Renew it.")
    if own.not_valid_before_utc > now:
        why = f"this machine's clock says {_shown(now)}"
        raise UsageError(
            f"{certificate_path}: valid from {_shown(own.not_valid_before_utc)} on", why, "Check the clock."
        )
    names = _names(own)
    if not names:
        why = "clients compare with its subjectAltName only"
        raise UsageError(f"{certificate_path}: names no host", why, "Have it issued with subjectAltName.")
    return Certificate(names, own.not_valid_after_utc, _organisation(own) == TRIAL)


_PAIR = "Set gateway.tls.certificate and gateway.tls.key to files that belong together."
_ORDER = "Put the server's certificate first: cat server.pem intermediate.pem > chain.pem"


def _chain(text: str, path: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        why = "expected one or more blocks -----BEGIN CERTIFICATE-----"
        raise UsageError(
            f"{path}: no PEM certificate", why, "Convert it: openssl x509 -in FILE -out cert.pem"
        ) from None


def _private(text: str, path: str) -> object:
    """The public half of the private key."""
    try:
        return serialization.load_pem_private_key(text.encode(), None).public_key()
    except TypeError:
        why = "the gateway starts without a person who could type it"
        fix = "Take it off: openssl pkey -in FILE -out key.pem"
        raise UsageError(f"{path}: the key has a passphrase", why, fix) from None
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"{path}: no PEM private key", "expected -----BEGIN PRIVATE KEY-----", _PAIR) from None


def _in_order(chain: Sequence[x509.Certificate], path: str) -> None:
    for place, (one, issuer) in enumerate(pairwise(chain), start=1):
        try:
            one.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature):
            found = f"{path}: certificate {place + 1} of {len(chain)} did not issue certificate {place}"
            raise UsageError(found, "clients expect each one's issuer behind it", _ORDER) from None


def _names(own: x509.Certificate) -> tuple[str, ...]:
    try:
        found = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = [str(address) for address in found.get_values_for_type(x509.IPAddress)]
    return (*found.get_values_for_type(x509.DNSName), *addresses)


def _organisation(own: x509.Certificate) -> str:
    return "".join(str(part.value) for part in own.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))


def _shown(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
