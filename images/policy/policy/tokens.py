"""Asks an engine how many tokens a conversation is."""

from __future__ import annotations

import asyncio
import http.client
import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import orjson

LONGEST_S = 2.0
AT_ONCE = 4
_COUNT = re.compile(rb'\s*\{\s*"count"\s*:\s*(\d+)\s*,')  # it comes first; the tokens behind it may be a megabyte


class CannotCount(Exception):
    """No answer that could be used; the text is one word for the metrics."""


class Tokenizer:
    """Counts by POST to an address that the rules name."""

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._longest_s = longest_s
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tokenize")

    async def count(self, url: str, body: bytes) -> int:
        """Tokens of the prompt; CannotCount after `longest_s`."""
        asked = asyncio.get_running_loop().run_in_executor(self._threads, self._ask, url, body)
        try:
            answer = await asyncio.wait_for(asked, self._longest_s)
        except (asyncio.TimeoutError, TimeoutError):
            raise CannotCount("slow") from None
        except (OSError, http.client.HTTPException):
            raise CannotCount("unreachable") from None
        return _count_in(answer)

    def _ask(self, url: str, body: bytes) -> bytes:
        where = urlsplit(url)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=self._longest_s)
        try:
            connection.request("POST", where.path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.read() if answer.status == 200 else b""
        finally:
            connection.close()


def _count_in(answer: bytes) -> int:
    if not answer:
        raise CannotCount("refused")
    found = _COUNT.match(answer)
    try:
        return int(found[1]) if found else int(orjson.loads(answer)["count"])
    except (ValueError, KeyError, TypeError):
        raise CannotCount("refused") from None
