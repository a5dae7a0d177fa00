"""Text to token ids and back: 7 special tokens, 256 bytes, and, unless asked for bytes alone, some word pieces."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

SPECIAL = ("<|bos|>", "<|eos|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
BOS, EOS = 0, 1
FIRST_BYTE = len(SPECIAL)
FIRST_PIECE = FIRST_BYTE + 256
# A prompt with more characters than this for each token cannot fit, whatever its text: the longest token.
LONGEST_TOKEN = max(map(len, SPECIAL))

_SPECIAL_SPLIT = re.compile("(" + "|".join(map(re.escape, SPECIAL)) + ")")
_WORDS = re.compile(r" ?[A-Za-z']+| ?[0-9]+| ?[^\sA-Za-z0-9']+|\s+")


def _visible_byte_names() -> list[str]:
    """One printable character for each byte, as byte-level vocabularies write them (a blank as a dotted G)."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(hidden)) for byte in range(256)]


_BYTE_NAMES = _visible_byte_names()


class Tokenizer:
    """A vocabulary; `decode(encode(text)) == text` for every text that UTF-8 can carry."""

    def __init__(self, pieces: Iterable[str] = ()) -> None:
        self._pieces = tuple(dict.fromkeys(pieces))
        self._ids = {piece: FIRST_PIECE + i for i, piece in enumerate(self._pieces)}
        self.size = FIRST_PIECE + len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; UnicodeEncodeError for a lone surrogate."""
        ids: list[int] = []
        for part in _SPECIAL_SPLIT.split(text):
            if part in SPECIAL:
                ids.append(SPECIAL.index(part))
            elif part:
                ids.extend(self._encode_plain(part) if self._pieces else _bytes(part))
        return ids

    def _encode_plain(self, text: str) -> Iterable[int]:
        for word in _WORDS.findall(text):
            known = self._ids.get(word)
            if known is not None:
                yield known
            else:
                yield from self._encode_rare(word)

    def _encode_rare(self, word: str) -> Iterable[int]:
        for start in range(0, len(word), 2):
            pair = word[start : start + 2]
            known = self._ids.get(pair)
            if known is not None:
                yield known
            else:
                yield from _bytes(pair)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for; nothing for an id outside of the vocabulary."""
        if FIRST_PIECE <= token < self.size:
            return self._pieces[token - FIRST_PIECE].encode()
        if FIRST_BYTE <= token < FIRST_PIECE:
            return bytes([token - FIRST_BYTE])
        return SPECIAL[token].encode() if 0 <= token < FIRST_BYTE else b""

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of token ids."""
        return b"".join(map(self.token_bytes, tokens)).decode("utf-8", "replace")

    def name(self, token: int) -> str:
        """How the vocabulary writes a token (`token_strs` of /tokenize)."""
        if 0 <= token < FIRST_BYTE:
            return SPECIAL[token]
        return "".join(_BYTE_NAMES[byte] for byte in self.token_bytes(token))


def _bytes(text: str) -> Iterable[int]:
    return (byte + FIRST_BYTE for byte in text.encode("utf-8"))


def pieces_of(text: str) -> list[str]:
    """Word pieces for a vocabulary: the words of a text, then pairs of letters for all other words."""
    letters = string.ascii_lowercase
    pairs = [a + b for a in " " + letters for b in letters]
    return sorted(set(_WORDS.findall(text))) + pairs
