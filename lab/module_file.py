"""A kernel module file that holds nothing but what `modinfo` prints: enough for depmod and modinfo, no code at all."""

from __future__ import annotations

import struct

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
RELOCATABLE, X86_64, STRINGS, CONTENT, ALLOCATED = 1, 62, 3, 1, 2


def build(facts: dict[str, str]) -> bytes:
    """An ELF object with one section, .modinfo, of these key=value pairs."""
    modinfo = b"".join(f"{key}={value}".encode() + b"\0" for key, value in facts.items())
    names = b"\0.modinfo\0.shstrtab\0"
    body = modinfo + names
    body += b"\0" * (-(HEADER.size + len(body)) % 8)
    magic = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = HEADER.pack(
        magic, RELOCATABLE, X86_64, 1, 0, 0, HEADER.size + len(body), 0, HEADER.size, 0, 0, SECTION.size, 3, 2
    )
    sections = (
        SECTION.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        SECTION.pack(names.index(b".modinfo"), CONTENT, ALLOCATED, 0, HEADER.size, len(modinfo), 0, 0, 1, 0),
        SECTION.pack(names.index(b".shstrtab"), STRINGS, 0, 0, HEADER.size + len(modinfo), len(names), 0, 0, 1, 0),
    )
    return header + body + b"".join(sections)
