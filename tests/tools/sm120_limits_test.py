#!/usr/bin/env python3
# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Whether every kernel for SM120 fits the device: `sm120_limits_test.py [--table] BUILD SOURCE`.

Compiles the sources of the portable backend to cubins of sm_120f, by the commands of the build tree
but for this one device, reads registers, threads, stack and static shared memory from their ELF
sections, and fails over the limits. Cubins of sources that have not changed are kept in
BUILD/sm120. `--table` prints what docs/sm120.md states. Nothing but the standard library.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys

ARCH = "120f"
# Of one CTA and of one SM, compute capability 12.x: CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability".
MOST_SHARED = 101_376
SM_SHARED, CTA_RESERVED = 102_400, 1_024
SM_REGISTERS, MOST_REGISTERS, SM_THREADS, SM_CTAS = 65_536, 255, 1_536, 24
FOLDERS = ("src/cuda/portable/", "src/cuda/common/")

# Attributes of a kernel's .nv.info sections.
REGCOUNT, FRAME_SIZE, MIN_STACK_SIZE, MAX_THREADS = 0x2F, 0x11, 0x12, 0x05


def sections(elf):
    """(name, size, bytes) of each section of a 64-bit little-endian ELF."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF")
    offset, = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    raw = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + i * size) for i in range(count)]
    text = raw[names]

    def name_of(at):
        begin = text[4] + at
        return elf[begin:elf.index(b"\0", begin)].decode()

    for head in raw:
        data = b"" if head[1] == 8 else elf[head[4]:head[4] + head[5]]  # 8: SHT_NOBITS
        yield name_of(head[0]), head[5], data


def attributes(data):
    """(attribute, value bytes) of a .nv.info section."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:  # a value of `size` bytes
            yield attribute, data[at:at + size]
            at += size
        else:  # the two bytes are the value
            yield attribute, struct.pack("<H", size)


def kernels(elf):
    """Registers, threads, stack and static shared memory of each kernel of a cubin."""
    found, symbols, strings = {}, b"", b""
    listed = list(sections(elf))
    for name, _, data in listed:
        if name == ".symtab":
            symbols = data
        elif name == ".strtab":
            strings = data
        elif name.startswith(".text."):
            found.setdefault(name[6:], {"registers": 0, "stack": 0, "threads": 0, "shared": 0})

    def symbol(index):
        at, = struct.unpack_from("<I", symbols, 24 * index)
        return strings[at:strings.index(b"\0", at)].decode()

    for name, size, data in listed:
        if name == ".nv.info":
            for attribute, value in attributes(data):
                if attribute not in (REGCOUNT, FRAME_SIZE, MIN_STACK_SIZE):
                    continue
                index, number = struct.unpack("<II", value)
                kernel = found.get(symbol(index))
                if kernel is None:
                    continue
                if attribute == REGCOUNT:
                    kernel["registers"] = number
                else:
                    kernel["stack"] = max(kernel["stack"], number)
        elif name.startswith(".nv.info.") and name[9:] in found:
            for attribute, value in attributes(data):
                if attribute == MAX_THREADS:
                    found[name[9:]]["threads"] = struct.unpack("<III", value)[0]
        elif name.startswith(".nv.shared.") and name[11:] in found:
            found[name[11:]]["shared"] = size
    return found


def commands(build, project):
    """The compile command of each source whose kernels run on SM120, for that device alone."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        relative = source.relative_to(project).as_posix() if source.is_relative_to(project) else ""
        if source.suffix != ".cu" or not relative.startswith(FOLDERS):
            continue
        words, command, skip = shlex.split(entry["command"]), [], False
        while words and not words[0].endswith("nvcc"):
            words = words[1:]  # a compiler cache
        for word in words:
            if skip:
                skip = False
            elif word in ("-o", "-gencode", "-x", "-MF", "-MT"):
                skip = True
            elif word not in ("-c", "-MD", entry["file"]) and not re.match(
                    r"--(generate-code|compress-mode)=|-gencode=", word):
                command.append(word)
        yield relative, source, entry["directory"], command


def compile_all(build, project):
    """{source: path of its cubin}; a cubin as new as every source of the backends is kept."""
    out = build / "sm120"
    out.mkdir(exist_ok=True)
    newest = max(path.stat().st_mtime for folder in ("src", "include")
                 for path in (project / folder).rglob("*") if path.suffix in (".h", ".cuh", ".cu"))

    def compile_one(job):
        relative, source, directory, command = job
        cubin = out / (relative.replace("/", "_") + ".cubin")
        if cubin.exists() and cubin.stat().st_mtime >= newest:
            return relative, cubin
        made = cubin.with_suffix(".new")
        subprocess.run([*command, "-cubin", "-gencode", f"arch=compute_{ARCH},code=sm_{ARCH}",
                        "-o", str(made), str(source)], cwd=directory, check=True)
        made.replace(cubin)
        return relative, cubin

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return dict(pool.map(compile_one, commands(build, project)))


def short(name):
    """A kernel's name and template arguments, without its parameters."""
    words, at = [], 0
    name = name[name.index("msa") - 1:] if "msa" in name else name
    while (match := re.match(r"(?:[IN]|NS\d*_|S\d*_|L[a-zA-Z])*(\d+)", name[at:])):
        begin = at + match.end()
        if not name[begin:begin + 1].isalpha() and name[begin:begin + 1] != "_":
            break
        words.append(name[begin:begin + int(match[1])])
        at = begin + int(match[1])
    numbers = re.findall(r"L[ib](\d+)E", name[at:])
    shown = [w for w in words if w not in ("msa", "cuda", "portable") and "GLOBAL" not in w]
    return "::".join(shown) + (f"<{', '.join(numbers)}>" if numbers else "")


def faults(kernel):
    if kernel["stack"] > 0:
        yield f"{kernel['stack']} bytes of stack: spills, or arrays in local memory"
    if kernel["shared"] > MOST_SHARED:
        yield f"{kernel['shared']} bytes of static shared memory, more than {MOST_SHARED}"
    if kernel["registers"] > MOST_REGISTERS:
        yield f"{kernel['registers']} registers, more than {MOST_REGISTERS}"
    if kernel["registers"] == 0:
        yield "the cubin names no registers"
    # Registers are given to a warp in units of 256.
    warps = (max(kernel["threads"], 1) + 31) // 32
    if warps * ((kernel["registers"] * 32 + 255) // 256 * 256) > SM_REGISTERS:
        yield f"{kernel['threads']} threads of {kernel['registers']} registers do not fit an SM"


def main():
    arguments = [a for a in sys.argv[1:] if a != "--table"]
    build, project = (pathlib.Path(a).resolve() for a in arguments)
    count, bad = 0, 0
    for source, cubin in sorted(compile_all(build, project).items()):
        for name, kernel in sorted(kernels(cubin.read_bytes()).items()):
            count += 1
            if "--table" in sys.argv:
                print(f"{source[9:]:34} {short(name):60} {kernel['threads']:4} threads "
                      f"{kernel['registers']:3} registers {kernel['shared']:6} B static "
                      f"{kernel['stack']:4} B stack")
            for fault in faults(kernel):
                bad += 1
                print(f"{source}: {short(name)}: {fault}")
    print(f"{count} kernels for sm_{ARCH}, {bad} faults")
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main())
