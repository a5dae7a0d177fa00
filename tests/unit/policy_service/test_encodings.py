"""Compressed bodies: opened as they come, however they are cut, and never further than a step at once."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest
import zstandard
from policy.encodings import STEP, BadEncoding, decoder_of, supported

PLAIN = random.Random(7).randbytes(200_000) + b"a" * 3_000_000
MADE = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}
MOST = 2 * 1024 * 1024  # what 64 bytes of zstd unfold into


def opened(encoding: str, raw: bytes, piece: int) -> list[bytes]:
    decoder = decoder_of(encoding)
    assert decoder is not None
    found = [plain for at in range(0, len(raw), piece) for plain in decoder.feed(raw[at : at + piece])]
    decoder.finish()
    return found


@pytest.mark.parametrize("encoding", sorted(MADE))
@pytest.mark.parametrize("piece", [7, 1000, 65_536, 10**9])
def test_what_was_packed_comes_out_however_it_is_cut(encoding: str, piece: int) -> None:
    assert b"".join(opened(encoding, MADE[encoding](PLAIN), piece)) == PLAIN


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_several_members_follow_one_another(encoding: str) -> None:
    raw = MADE[encoding](b"one, ") + MADE[encoding](b"two")
    assert b"".join(opened(encoding, raw, 5)) == b"one, two"


@pytest.mark.parametrize(("encoding", "most"), [("gzip", STEP), ("deflate", STEP), ("zstd", MOST)])
def test_a_bomb_unfolds_step_by_step(encoding: str, most: int) -> None:
    decoder = decoder_of(encoding)
    assert decoder is not None
    bomb = MADE[encoding](b"\0" * 300_000_000)
    first = [len(plain) for plain, _ in zip(decoder.feed(bomb), range(5), strict=False)]
    assert max(first) <= most


@pytest.mark.parametrize("encoding", sorted(MADE))
@pytest.mark.parametrize("wrong", [b"", b"no such thing", b"{}"])
def test_other_bytes_are_refused(encoding: str, wrong: bytes) -> None:
    with pytest.raises(BadEncoding):
        opened(encoding, wrong, 10)


@pytest.mark.parametrize("encoding", sorted(MADE))
def test_a_missing_end_is_noticed(encoding: str) -> None:
    with pytest.raises(BadEncoding):
        opened(encoding, MADE[encoding](PLAIN)[:-6], 1000)


def test_a_zstd_window_beyond_the_standards_is_refused() -> None:
    wide = zstandard.ZstdCompressionParameters(window_log=27, compression_level=3)
    packer = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    raw = packer.compress(PLAIN) + packer.flush()
    with pytest.raises(BadEncoding):
        opened("zstd", raw, 1000)


@pytest.mark.parametrize("encoding", ["br", "compress", "gzip, gzip", "x"])
def test_others_have_no_decoder(encoding: str) -> None:
    assert decoder_of(encoding) is None
    assert supported() == "gzip, deflate, zstd"
