"""Which GPUs stand together in one replica: first those that share NVLink and a CPU socket."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from control.core.capacity.choose import Candidate
from control.core.gpus import Links

Group = tuple[Candidate, ...]


def groups(candidates: Sequence[Candidate], size: int, links: Links | None) -> tuple[Group, ...]:
    """As many groups of `size` as there can be, each GPU in one of them, in the order of the machine."""
    island = islands(candidates, links)
    levels: tuple[Callable[[Candidate], Hashable], ...] = (
        lambda one: (island[id(one)], one.gpu.numa),
        lambda one: island[id(one)],
        lambda one: None,
    )
    left, made = list(candidates), []
    for level in levels:
        for together in _by(left, level):
            made += [tuple(together[i : i + size]) for i in range(0, len(together) - size + 1, size)]
        taken = {id(one) for group in made for one in group}
        left = [one for one in candidates if id(one) not in taken]
    order = {id(one): place for place, one in enumerate(candidates)}
    return tuple(sorted(made, key=lambda group: order[id(group[0])]))


def _by(candidates: Sequence[Candidate], key: Callable[[Candidate], Hashable]) -> list[list[Candidate]]:
    found: dict[Hashable, list[Candidate]] = {}
    for one in candidates:
        found.setdefault(key(one), []).append(one)
    return list(found.values())


def islands(candidates: Sequence[Candidate], links: Links | None) -> dict[int, int]:
    """id(candidate) -> number of its NVLink island. Without a topology all count as one island."""
    if links is None:
        return {id(one): 0 for one in candidates}
    number = {id(one): place for place, one in enumerate(candidates)}
    for one in candidates:
        for other in candidates:
            if linked(one, other, links):
                old, new = number[id(other)], number[id(one)]
                number = {key: new if value == old else value for key, value in number.items()}
    return number


def linked(one: Candidate, other: Candidate, links: Links) -> bool:
    """NVLink between two GPUs, in either row of the matrix."""
    a, b = one.gpu.index, other.gpu.index
    if a is None or b is None or a == b:
        return False
    return any(link.startswith("NV") for link in (links.get(a, {}).get(b, ""), links.get(b, {}).get(a, "")))


def crossings(group: Group, links: Links | None) -> tuple[str, ...]:
    """`GPU 0 - GPU 1: SYS` for every pair of a group that has no NVLink."""
    if links is None:
        return ()
    found = []
    for place, one in enumerate(group):
        for other in group[place + 1 :]:
            if not linked(one, other, links):
                a, b = one.gpu.index, other.gpu.index
                link = links.get(a, {}).get(b, "unknown") if a is not None and b is not None else "unknown"
                found.append(f"{one.gpu.label} - {other.gpu.label}: {link}")
    return tuple(found)
