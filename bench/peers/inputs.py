# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""What decode_bench computes on, made the same bit for bit: bench/gpu/inputs.h in Python (tests/tools compares the two)."""
import ast
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEAD_DIM = PAGE = 128
TOPK = 16
CALLS = 20  # of a graph, each with a table of its own
POOL_BYTES = 12 << 30
ELEMENT_BYTES = {"bf16": 2, "e4m3": 1}
GRID_KEYS, GRID_COLUMNS = 16384 - 3, 128
REAL_TOKENS, REAL_HEADS, REAL_FIRST_POSITION, REAL_BLOCKS = 8192, 4, 24576, 256
MASK = (1 << 64) - 1
GOLDEN, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
VALUE_BITS = {"bf16": (0x80FF, 0x3F00), "e4m3": (0x8F8F, 0x3030)}  # random ones, set ones


class SplitMix64:
    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + GOLDEN) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * MIX_1) & MASK
        z = ((z ^ (z >> 27)) * MIX_2) & MASK
        return z ^ (z >> 31)

    def below(self, n):
        return ((self.next() >> 32) * n) >> 32

    def chance(self, permille):
        return self.below(1000) < permille


def next_row(before, own, keep_permille, random):
    if own < TOPK:
        return list(range(own + 1))
    row = [block for block in before if block != own and random.chance(keep_permille)]
    while len(row) > TOPK - 1:
        row.pop(random.below(len(row)))
    while len(row) < TOPK - 1:
        block = random.below(own)
        if block not in row:
            row.append(block)
    return sorted(row) + [own]


def selection_rows(tokens, first_position, heads, keep_permille, seed):
    """Ids [tokens][heads][16] of a request, flat; docs/workloads.md."""
    ids = [-1] * (tokens * heads * TOPK)
    for head in range(heads):
        random = SplitMix64(seed * 1000003 + head)
        row = []
        for token in range(tokens):
            row = next_row(row, (first_position + token) // PAGE, keep_permille, random)
            at = (token * heads + head) * TOPK
            ids[at:at + len(row)] = row
    return ids


def decode_rows(batch, m, context, heads, seed):
    """Ids [batch · m][heads][16] of a decode batch, flat."""
    ids = []
    for request in range(batch):
        ids += selection_rows(m, context - m, heads, 900, seed * 100003 + request)
    return ids


def table_rows(batch, blocks, pool, seed):
    """Pages [batch][blocks], flat: a Fisher-Yates shuffle of which only the moved entries are kept."""
    random, moved = SplitMix64(seed), {}
    pages = []
    for i in range(min(batch * blocks, pool)):
        j = i + random.below(pool - i)
        pages.append(moved.get(j, j))
        moved[j] = moved.get(i, i)
    return pages


def checksum(ids):
    """FNV-1a over 32-bit ids, 64-bit state."""
    state = 0xCBF29CE484222325
    for number in ids:
        state = ((state ^ (number & 0xFFFFFFFF)) * 0x100000001B3) & MASK
    return f"{state:016x}"


def read_npy(path):
    """Shape and bytes of an .npy file, version 1, of unsigned bytes."""
    data = pathlib.Path(path).read_bytes()
    end = 10 + int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:end].decode()) if data[:7] == b"\x93NUMPY\x01" else {}
    if header.get("descr") != "|u1" or header.get("fortran_order"):
        raise SystemExit(f"{path}: is no .npy file, version 1, of unsigned bytes in C order")
    return header["shape"], data[end:]


def read_real_selection(path):
    shape, ids = read_npy(path)
    if shape != (REAL_TOKENS, REAL_HEADS, TOPK):
        raise SystemExit(f"{path}: its shape is {shape}, not {(REAL_TOKENS, REAL_HEADS, TOPK)}")
    return ids


def heads_of(shard):
    hq, hkv = map(int, shard.split("/"))
    return hq, hkv


def rows_of(shard, m, batch, selection, real=None):
    """Ids [batch · m][hkv][16], flat, lengths [batch] and the columns of the page table that they may reach."""
    _, hkv = heads_of(shard)
    if selection == "grid":
        return decode_rows(batch, m, GRID_KEYS, hkv, 1), [GRID_KEYS] * batch, GRID_COLUMNS
    ids, lengths = [], []
    for request in range(batch):
        first = request * REAL_TOKENS // batch
        lengths.append(REAL_FIRST_POSITION + first + m)
        for token in range(first, first + m):
            for head in range(hkv):
                at = (token * REAL_HEADS + (request * hkv + head) % REAL_HEADS) * TOPK
                ids += real[at:at + TOPK]
    return ids, lengths, REAL_BLOCKS


def pool_pages(shard, kv):
    return POOL_BYTES // (heads_of(shard)[1] * PAGE * 2 * HEAD_DIM * ELEMENT_BYTES[kv])


def table_of_call(batch, columns, pages, call):
    return table_rows(batch, columns, pages, 7 * call + 1)


def random_values(torch, kv, count, seed, device):
    """`count` pairs of bytes of about unit size, as int16: the stream of SplitMix64, all of it at once."""
    signed = lambda number: number - (1 << 64) if number >> 63 else number
    shifted = lambda z, bits: (z >> bits) & ((1 << (64 - bits)) - 1)
    z = torch.arange(1, count + 1, dtype=torch.int64, device=device) * signed(GOLDEN) + seed
    z = (z ^ shifted(z, 30)) * signed(MIX_1)
    z = (z ^ shifted(z, 27)) * signed(MIX_2)
    z = z ^ shifted(z, 31)
    keep, always = VALUE_BITS[kv]
    z = (z & keep) | always
    return ((z ^ 0x8000) - 0x8000).to(torch.int16)
