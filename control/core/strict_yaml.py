"""YAML as people write it, without its silent surprises.

A key written twice, a number that YAML 1.1 reads as octal or as base 60, a tab, a second document:
each is a complaint with its line, all of them are collected, and nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from control.core.encoding import SAVE_AS_UTF8, looks_like_utf16

_OCTAL = re.compile(r"[-+]?0[0-7_]+")
_TOO_DEEP = "nested too deeply to be meant"
_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"


@dataclass(frozen=True)
class Document:
    """What a text says, and what is wrong with it; `value` counts only without complaints."""

    value: object
    complaints: tuple[str, ...] = ()


def read(text: str, origin: str) -> Document:
    """Parse one document; every complaint starts with `origin`."""
    if looks_like_utf16(text):
        return Document(None, (f"{origin}: this file is UTF-16, expected UTF-8. {SAVE_AS_UTF8}",))
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return Document(None)
        found = tuple(f"{origin}: {complaint}" for complaint in _surprises(node, "", set()))
        return Document(None, found) if found else Document(_construct(loader, node))
    except yaml.MarkedYAMLError as error:
        return Document(None, (f"{origin}: {_marked(error)}",))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return Document(None, (f"{origin}: line {line}: the character U+{_code(error):04X} is not allowed in YAML",))
    except (ValueError, RecursionError) as error:  # a date or a number that cannot be; a bottomless list
        why = _TOO_DEEP if isinstance(error, RecursionError) else f"a value that YAML cannot read: {error}"
        return Document(None, (f"{origin}: {why}",))


def _construct(loader: yaml.SafeLoader, node: yaml.Node) -> object:
    value: object = loader.construct_document(node)  # type: ignore[no-untyped-call]
    return value


def _code(error: yaml.reader.ReaderError) -> int:
    character: object = error.character  # an int or one character, depending on the reader's input
    return character if isinstance(character, int) else ord(str(character))


def _marked(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}: " if mark else ""
    problem = error.problem or str(error)
    if r"'\t'" in problem or "\t" in problem:
        return f"{where}found a tab; YAML indents with spaces only. Replace it by two spaces"
    return where + ", ".join(filter(None, (error.context, problem)))


def _surprises(node: yaml.Node, path: str, seen: set[int]) -> Iterator[str]:
    """Walk the tree of nodes, each once: an alias may point upwards."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        yield from _repeated(node, path)
        for key, value in node.value:
            yield from _surprises(value, _join(path, key), seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _surprises(item, f"{path}[{number}]", seen)
    elif isinstance(node, yaml.ScalarNode) and _is_odd_number(node):
        value = yaml.SafeLoader("").construct_object(node)  # type: ignore[no-untyped-call]
        line = node.start_mark.line + 1
        name = f"{path}: " if path else ""
        yield f"{name}line {line}: YAML reads {node.value} as {value}; write {value}, or '{node.value}' for text"


def _repeated(node: yaml.MappingNode, path: str) -> Iterator[str]:
    lines: dict[str, list[int]] = {}
    for key, _ in node.value:
        lines.setdefault(_join(path, key), []).append(key.start_mark.line + 1)
    for where, at in lines.items():
        if len(at) > 1:
            yield f"{where}: written {len(at)} times, in lines {', '.join(map(str, at))}; keep one"


def _join(path: str, key: yaml.Node) -> str:
    name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
    return f"{path}.{name}" if path else name


def _is_odd_number(node: yaml.ScalarNode) -> bool:
    """True for 010 (octal 8) and 1:30 (90): what YAML 1.1 makes of them, nobody means."""
    if node.style or node.tag not in (_INT, _FLOAT):
        return False
    return bool(_OCTAL.fullmatch(node.value)) or ":" in node.value
