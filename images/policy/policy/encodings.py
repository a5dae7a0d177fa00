"""Request bodies that come compressed, opened in bounded steps: what a few bytes unfold into is never held whole."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

try:
    import zstandard
except ImportError:  # an image without it answers 415
    zstandard = None  # type: ignore[assignment]

STEP = 256 << 10  # most bytes that zlib hands out at once
# zstandard cannot bound its output, so its input comes in slices: a block of 4 bytes unfolds into at most 128 KiB.
ZSTD_SLICE = 64
ZSTD_WINDOW = 8 << 20  # RFC 9659: what a decoder of content-encoding zstd has to support, and no more


class BadEncoding(Exception):
    """The bytes are not what content-encoding says."""


class Decoder(Protocol):
    """Compressed bytes in, plain ones out."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Plain bytes, a bounded number at a time."""

    def finish(self) -> None:
        """BadEncoding if the end is missing."""


class Deflate:
    """gzip, of one member or more, or zlib."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._inner = zlib.decompressobj(bits)
        self._begun = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        while piece:
            if self._inner.eof:
                self._inner = zlib.decompressobj(self._bits)
            self._begun = True
            try:
                plain = self._inner.decompress(piece, STEP)
            except zlib.error as error:
                raise BadEncoding(str(error)) from None
            if plain:
                yield plain
            piece = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail
            if not plain and not self._inner.eof and not piece:
                return
        # zlib may still keep output back that did not fit into the last step
        while not self._inner.eof and (plain := self._inner.decompress(b"", STEP)):
            yield plain

    def finish(self) -> None:
        if not self._begun or not self._inner.eof:
            raise BadEncoding("the end is missing")


class Zstd:
    """zstd, of one frame or more."""

    def __init__(self) -> None:
        self._make: Callable[[], zstandard.ZstdDecompressionObj] = zstandard.ZstdDecompressor(
            max_window_size=ZSTD_WINDOW
        ).decompressobj
        self._inner = self._make()
        self._begun = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(piece):
            if self._inner.eof:
                self._inner = self._make()
            self._begun = True
            some = piece[at : at + ZSTD_SLICE]
            try:
                plain = self._inner.decompress(some)
            except zstandard.ZstdError as error:
                raise BadEncoding(str(error)) from None
            if plain:
                yield plain
            at += len(some) - len(self._inner.unused_data)

    def finish(self) -> None:
        if not self._begun or not self._inner.eof:
            raise BadEncoding("the end is missing")


def decoder_of(encoding: str) -> Decoder | None:
    """The decoder for a content-encoding; None for one that is not supported."""
    if encoding in ("gzip", "x-gzip"):
        return Deflate(16 + zlib.MAX_WBITS)
    if encoding == "deflate":
        return Deflate(zlib.MAX_WBITS)
    if encoding == "zstd" and zstandard is not None:
        return Zstd()
    return None


def supported() -> str:
    """The names for people."""
    return ", ".join(("gzip", "deflate", *(("zstd",) if zstandard is not None else ())))
