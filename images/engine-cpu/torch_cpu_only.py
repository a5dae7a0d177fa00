"""Make PyPI's CUDA build of torch import on a machine without any CUDA library but libcudart.

usage: python torch_cpu_only.py SITE_PACKAGES

Takes out torch's GPU libraries (libtorch_cuda*, libtorch_nvshmem, libcaffe2_nvrtc) and puts small stub libraries in
their place: every symbol of libtorch_cuda, cuDNN, cuFile and CUPTI which the kept libraries ask for is there and
returns 0. Two of them are called on a machine without a GPU (REFERENCE and CONSTRUCT below). Standard library only;
x86-64 Linux only.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REFERENCE = {"_ZN4c10d15get_gil_checkerEv"}  # returns a reference that libtorch_python writes to when it is loaded
# torch >= 2.13 makes one ProcessGroupNCCL::Options when it is loaded and asks for its type; constructor: typeinfo.
# The object gets a virtual table of its own whose functions do nothing, as its members were never made.
CONSTRUCT = {"_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb": "_ZTIN4c10d16ProcessGroupNCCL7OptionsE"}
VIRTUAL = 16  # functions in that table
CLASS_TABLE = "_ZTVN10__cxxabiv117__class_type_infoE"
GPU_LIBRARY = re.compile(r"libtorch_cuda|libtorch_nvshmem|libcaffe2_nvrtc")
THIRD_PARTY = re.compile(r"cudnn|cuFile|cupti|nccl|cublas|cusparse|cusolver|cufft|curand|nvrtc|nvshmem|nvtx")
ZEROS = 1024  # bytes of data that nobody knows the size of
HEADS, ELF_HEADER, PROGRAM_HEADER, SYMBOL, DYNAMIC = 4, 64, 56, 24, 16  # number and sizes in an ELF64 file
SHT_DYNAMIC, SHT_DYNSYM = 6, 11
DT_NEEDED = 1


def read_library(path: Path) -> tuple[list[tuple[str, bool]], list[str]]:
    """(name, defined) of each dynamic symbol, and the libraries that it needs, of one ELF64 file."""
    content = path.read_bytes()
    if content[:5] != b"\x7fELF\x02":
        return [], []
    (start,) = struct.unpack_from("<Q", content, 40)
    size, count, _ = struct.unpack_from("<HHH", content, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, start + i * size) for i in range(count)]

    def text(section: tuple[int, ...], at: int) -> str:
        begin = sections[section[6]][4] + at
        return content[begin : content.index(b"\0", begin)].decode()

    def entries(kind: int, form: str) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        for section in sections:
            if section[1] == kind:
                for entry in struct.iter_unpack(form, content[section[4] : section[4] + section[5]]):
                    yield section, entry

    symbols = [(text(s, e[0]), e[3] != 0) for s, e in entries(SHT_DYNSYM, "<IBBHQQ") if e[0]]
    return symbols, [text(s, e[1]) for s, e in entries(SHT_DYNAMIC, "<qQ") if e[0] == DT_NEEDED]


@dataclass
class Strings:
    """The string table: each text once, by its place."""

    blob: bytearray = field(default_factory=lambda: bytearray(b"\0"))
    places: dict[str, int] = field(default_factory=dict)

    def place(self, text: str) -> int:
        """Where the text is; appended when it is new."""
        if text not in self.places:
            self.places[text] = len(self.blob)
            self.blob += text.encode() + b"\0"
        return self.places[text]


class Stub:
    """A shared object that has the given symbols: functions return 0, typeinfos are real, other data is zero."""

    def __init__(self, soname: str, names: Sequence[str] = ()) -> None:
        self.soname = soname
        self.infos = [n for n in names if n.startswith("_ZTI")]
        self.datas = [n for n in names if n.startswith("_ZTV")]
        functions = [n for n in names if n not in self.infos and n not in self.datas]
        self.makes = [n for n in functions if n in CONSTRUCT]
        self.foreign = ([CLASS_TABLE] if self.infos else []) + [CONSTRUCT[n] for n in self.makes]
        self.order = [*self.foreign, *self.infos, *self.datas, *functions]
        self.needed = ["libstdc++.so.6"] if self.infos else []
        self.strings = Strings()
        for text in (*self.order, soname, *self.needed):
            self.strings.place(text)
        self._place()
        self.address: dict[str, int] = {}  # of data
        self.entry = {name: self.text_at + 4 for name in REFERENCE}  # of functions that do more than return 0
        self.blob, self.relocations, self.text = bytearray(), bytearray(), bytearray(self._first_code())
        self._fill()

    def _place(self) -> None:
        """Where each part of the file is; part of the file and of the memory image alike."""
        self.symbols = len(self.order) + 1
        self.hash_at = ELF_HEADER + HEADS * PROGRAM_HEADER
        self.sym_at = _up(self.hash_at + 4 * (2 + 1 + self.symbols), 8)
        self.str_at = self.sym_at + SYMBOL * self.symbols
        self.rela_at = _up(self.str_at + len(self.strings.blob), 8)
        self.text_at = self.rela_at + 48 * len(self.infos) + 24 * len(self.makes) * (1 + VIRTUAL)
        self.data_at = _up(self.text_at + 16 + 16 * len(self.makes), 0x1000)
        self.dynamic_size = DYNAMIC * (10 + len(self.needed))
        self.zeros_at = self.data_at + self.dynamic_size  # for what returns a reference
        self.blob_at = self.zeros_at + ZEROS

    def _first_code(self) -> bytes:
        # +0: xor eax, eax; ret      +4: lea rax, [rip + the zeros]; ret
        zeros = struct.pack("<i", self.zeros_at - self.text_at - 11)
        return b"\x31\xc0\xc3\x90\x48\x8d\x05" + zeros + b"\xc3\x90\x90\x90\x90"

    def _fill(self) -> None:
        for name in self.infos:
            self._typeinfo(name)
        for name in self.makes:
            self._constructor(name)
        for name in self.datas:
            self.address[name] = self.blob_at + len(self.blob)
            self.blob += bytes(ZEROS)

    def _relocate(self, at: int, symbol: int, addend: int) -> None:
        """Let the loader write an address: of a symbol (R_X86_64_64), or of a place in here (R_X86_64_RELATIVE)."""
        self.relocations += struct.pack("<QQq", at, symbol << 32 | 1 if symbol else 8, addend)

    def _typeinfo(self, name: str) -> None:
        self.address[name] = at = self.blob_at + len(self.blob)
        self._relocate(at, 1, 16)  # the table of its class, foreign symbol 1
        self._relocate(at + 8, 0, at + 16)  # its name, which follows
        self.blob += bytes(16) + name[4:].encode() + b"\0"
        self.blob += bytes(-len(self.blob) % 16)

    def _constructor(self, name: str) -> None:
        table = self.blob_at + len(self.blob) + 16  # in front of it: offset to top (0), typeinfo
        self.blob += bytes(16 + 8 * VIRTUAL)
        self._relocate(table - 8, 1 + self.foreign.index(CONSTRUCT[name]), 0)
        for number in range(VIRTUAL):
            self._relocate(table + 8 * number, 0, self.text_at)
        self.entry[name] = at = self.text_at + len(self.text)
        # lea rax, [rip + table]; mov [rdi], rax; ret
        self.text += b"\x48\x8d\x05" + struct.pack("<i", table - at - 7) + b"\x48\x89\x07\xc3\x90\x90\x90\x90\x90"

    def _symbol(self, name: str) -> bytes:
        place = self.strings.place(name)
        if name in self.foreign:
            return struct.pack("<IBBHQQ", place, 0x10, 0, 0, 0, 0)
        if name in self.address:
            return struct.pack("<IBBHQQ", place, 0x11, 0, 1, self.address[name], 16)
        return struct.pack("<IBBHQQ", place, 0x12, 0, 1, self.entry.get(name, self.text_at), 4)

    def _hash(self) -> bytes:
        """One bucket: a chain through every symbol."""
        chain = [0, *range(2, self.symbols), 0] if self.symbols > 1 else [0]
        return struct.pack(f"<III{len(chain)}I", 1, self.symbols, int(self.symbols > 1), *chain)

    def _dynamic(self) -> bytes:
        place = self.strings.place
        pairs = [(DT_NEEDED, place(name)) for name in self.needed]
        pairs += [(14, place(self.soname)), (4, self.hash_at), (5, self.str_at), (6, self.sym_at)]
        pairs += [(10, len(self.strings.blob)), (11, SYMBOL)]
        if self.relocations:
            pairs += [(7, self.rela_at), (8, len(self.relocations)), (9, 24)]
        return b"".join(struct.pack("<qQ", *pair) for pair in pairs).ljust(self.dynamic_size, b"\0")

    def _headers(self) -> bytes:
        numbers = (3, 62, 1, 0, ELF_HEADER, 0, 0, ELF_HEADER, PROGRAM_HEADER, HEADS, 64, 0, 0)
        head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", *numbers)
        end = self.blob_at + len(self.blob)
        for kind, flags, at, size, align in (
            (1, 5, 0, self.text_at + len(self.text), 0x1000),
            (1, 6, self.data_at, end - self.data_at, 0x1000),
            (2, 6, self.data_at, self.dynamic_size, 8),
            (0x6474E551, 6, 0, 0, 16),
        ):
            head += struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, align)
        return head

    def content(self) -> bytes:
        """The whole file."""
        out = bytearray(self.blob_at)
        for at, part in (
            (0, self._headers()),
            (self.hash_at, self._hash()),
            (self.sym_at, bytes(SYMBOL) + b"".join(map(self._symbol, self.order))),
            (self.str_at, self.strings.blob),
            (self.rela_at, self.relocations),
            (self.text_at, self.text),
            (self.data_at, self._dynamic()),
        ):
            out[at : at + len(part)] = part
        return bytes(out + self.blob)


def _up(number: int, to: int) -> int:
    return (number + to - 1) & -to


def wanted_symbols(kept: Iterable[Path], gone: Iterable[Path]) -> tuple[list[str], list[str]]:
    """What the kept libraries ask for and no other has: symbols, and libraries that need only be there."""
    exported = {name for path in gone for name, defined in read_library(path)[0] if defined}
    asked, own, libraries = set(), set(), set()
    for path in kept:
        symbols, needed = read_library(path)
        own |= {name for name, defined in symbols if defined}
        asked |= {name for name, defined in symbols if not defined}
        libraries |= set(needed)
    names = sorted(name for name in asked - own if name in exported or THIRD_PARTY.match(name))
    empty = sorted(name for name in libraries if THIRD_PARTY.match(name.removeprefix("lib")))
    empty += sorted(name for name in libraries if name.startswith("libcufile"))
    return names, list(dict.fromkeys(empty))


def main(site: str) -> None:
    """Replace the GPU half of the torch in a site-packages folder."""
    folder = Path(site, "torch", "lib")
    libraries = sorted(folder.glob("*.so*"))
    gone = [path for path in libraries if GPU_LIBRARY.match(path.name)]
    names, empty = wanted_symbols([path for path in libraries if path not in gone], gone)
    saved = sum(path.stat().st_size for path in gone)
    for path in gone:
        path.unlink()
    # All symbols in one library: glibc refuses a versioned symbol from an unversioned library of the very name that
    # the reference gives (libcudnn.so.9), and takes it from a library of another name.
    (folder / "libtorch_cuda.so").write_bytes(Stub("libtorch_cuda.so", names).content())
    for name in empty:
        (folder / name).write_bytes(Stub(name).content())
    print(f"{len(names)} symbols in libtorch_cuda.so, empty: {', '.join(empty)}; {saved / 1e6:.0f} MB less")


if __name__ == "__main__":
    main(sys.argv[1])
