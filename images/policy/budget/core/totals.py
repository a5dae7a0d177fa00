"""Sums of one day by key and model, so that nobody has to read every line to answer "who used what"."""

from __future__ import annotations

from typing import Any

import orjson

from budget.core.lines import NUMBERS, RESULTS

FORM = 1
COLUMNS = ("requests", *RESULTS, *NUMBERS, "estimated")
MOST_MODELS = 100  # of one key in one day; further ones are summed as "other"
OTHER = "other"

Who = tuple[str, str, str]  # key, key's id, model


class Day:
    """One day's sums, and how far the files of lines are contained in them."""

    def __init__(self, day: str) -> None:
        self.day = day
        self.read: dict[str, int] = {}
        self._rows: dict[Who, dict[str, int]] = {}

    def add(self, line: dict[str, Any]) -> None:
        """One line of the ledger."""
        number = int(line.get("n", 1))
        row = self._row(line["key"], str(line.get("key_id", "")), str(line.get("model", "")))
        row["requests"] += number
        row[line["result"]] += number
        for name in NUMBERS:
            row[name] += int(line.get(name, 0))
        if line.get("estimated"):
            row["estimated"] += int(line.get("total", 0))

    def _row(self, key: str, key_id: str, model: str) -> dict[str, int]:
        who = (key, key_id, model)
        if who not in self._rows:
            if sum(1 for one in self._rows if one[0] == key) >= MOST_MODELS:
                who = (key, key_id, OTHER)
            self._rows.setdefault(who, dict.fromkeys(COLUMNS, 0))
        return self._rows[who]

    def rows(self) -> list[dict[str, Any]]:
        """Every sum with whose it is."""
        return [
            {"key": key, "key_id": key_id, "model": model, **sums}
            for (key, key_id, model), sums in sorted(self._rows.items())
        ]

    def dump(self) -> bytes:
        """As it is kept and shown: one line."""
        said = {"form": FORM, "day": self.day, "read": self.read, "rows": self.rows()}
        return orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def parse(cls, data: bytes) -> Day:
        """Raises ValueError for anything else than `dump` made."""
        try:
            said = orjson.loads(data)
            if said["form"] != FORM:
                raise ValueError(f"form {said['form']}")
            day = cls(str(said["day"]))
            day.read = {str(name): int(at) for name, at in said["read"].items()}
            for row in said["rows"]:
                who = (str(row["key"]), str(row["key_id"]), str(row["model"]))
                day._rows[who] = {name: int(row[name]) for name in COLUMNS}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        return day
