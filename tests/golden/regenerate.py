"""Rewrite the golden trees, or with `docs` the generated pages, from the code: `make golden`, `make docs`.

Look at the diff: it is the change that an operator would see.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.golden import trees


def main(arguments: list[str]) -> int:
    """Write what differs and name it."""
    if arguments not in ([], ["docs"]):
        print("usage: python -m tests.golden.regenerate [docs]", file=sys.stderr)
        return 2
    if arguments:
        _write(trees.ROOT, trees.pages())
        return 0
    made = {name: trees.render(name) for name in trees.names()}
    for name, wanted in {**made, **{name: trees.refusal(name) for name in trees.refused()}}.items():
        for path in set(trees.on_disk(name)) - set(wanted):
            (trees.HERE / name / path).unlink()
            print(f"removed  tests/golden/{name}/{path}")
        _write(trees.HERE / name, dict(wanted))
    return 0


def _write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        target = root / path
        if not target.exists() or target.read_bytes() != text.encode("utf-8"):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode("utf-8"))
            print(f"wrote    {target.relative_to(trees.ROOT)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
