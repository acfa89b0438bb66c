# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Dense and sparse attention of one layer by `msa run`, and what the blocks that the indexer left out were worth."""
import dataclasses
import json
import subprocess

import numpy as np
from ml_dtypes import bfloat16
from safetensors.numpy import load_file, save_file

PAGE = 128
MOST_BLOCKS = 64  # that a row may select
TOPK = 16


def pages(x):
    """[T, heads, 128] as [pages, heads, 128, 128], the last page's tail zeros."""
    count = -(-len(x) // PAGE)
    padded = np.zeros((count * PAGE, *x.shape[1:]), x.dtype)
    padded[: len(x)] = x
    return padded.reshape(count, PAGE, *x.shape[1:]).transpose(0, 2, 1, 3)


@dataclasses.dataclass
class Attended:
    out: np.ndarray  # [T, Hq, 128]
    lse: np.ndarray  # [T, Hq]
    selection: np.ndarray  # [T, Hs, topk]


class Layer:
    """q [T, Hq, 128], k and v [T, Hkv, 128] of one prompt, rounded to bf16, in a folder of its own."""

    def __init__(self, msa, folder, q, k, v, scale):
        self.msa, self.folder, self.scale = msa, folder, scale
        self.q, self.k, self.v = (x.astype(bfloat16) for x in (q, k, v))
        self.tokens = len(q)
        self.blocks = -(-self.tokens // PAGE)
        self.group = q.shape[1] // k.shape[1]
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, name, heads, tensors, settings=None):
        """One call of `msa run` for the KV heads `heads`, a slice."""
        rows = slice(heads.start * self.group, heads.stop * self.group)
        source, result = self.folder / f"{name}.safetensors", self.folder / f"{name}.out.safetensors"
        base = {
            "q": self.q[:, rows],
            "k": pages(self.k[:, heads]),
            "v": pages(self.v[:, heads]),
            "seq_lens": np.array([self.tokens], np.int32),
            "cu_seqlens_q": np.array([0, self.tokens], np.int32),
        }
        arrays = {key: np.ascontiguousarray(array) for key, array in (base | tensors).items()}
        settings = {"softmax_scale": self.scale} | (settings or {})
        save_file(arrays, source, {key: str(value) for key, value in settings.items()})
        command = [self.msa, "run", source, "-o", result, "--device", "cpu", "--json"]
        report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        if report.get("ignored") or report.get("ignored_settings"):
            raise RuntimeError(f"msa run ignored a part of {source}: {report}")
        arrays = load_file(result)
        return Attended(arrays["out"].astype(np.float32), arrays["lse"], arrays.get("selection", tensors.get("selection")))

    def dense(self):
        """All blocks selected, as many at a time as a row may select; the parts' keys are disjoint."""
        whole, every = None, slice(0, self.k.shape[1])
        for first in range(0, self.blocks, MOST_BLOCKS):
            ids = np.arange(first, min(first + MOST_BLOCKS, self.blocks), dtype=np.int32)
            part = self.run("dense", every, {"selection": np.tile(ids, (self.tokens, 1, 1))})
            if whole is None:
                whole = part
                continue
            lse = np.logaddexp(whole.lse, part.lse)
            weights = (np.exp(x.lse - lse)[..., None] for x in (whole, part))
            whole = Attended(sum(w * x.out for w, x in zip(weights, (whole, part))), lse, None)
        return whole

    def chosen(self):
        """TOPK blocks by index_blocks: a KV head's keys are its index keys, its query heads the index heads, whose best
        score counts."""
        parts = []
        for h in range(self.k.shape[1]):
            heads = slice(h, h + 1)
            index = {
                "index_q": self.q[:, h * self.group : (h + 1) * self.group],
                "index_k": pages(self.k[:, heads])[:, 0],
            }
            parts.append(self.run(f"chosen-{h}", heads, index, {"topk": TOPK, "reduce_heads": 1}))
        return Attended(*(np.concatenate([getattr(p, f.name) for p in parts], axis=1) for f in dataclasses.fields(Attended)))

    def latest(self):
        """The TOPK blocks that end with a row's own: what a sliding window would keep."""
        own = np.arange(self.tokens)[:, None, None] // PAGE
        return self.run("latest", slice(0, self.k.shape[1]), {"selection": (own - np.arange(TOPK)).astype(np.int32)})

    def exact_row(self, t, blocks=None):
        """Row t of dense attention in f64, or of the blocks [Hkv, …] alone: out [Hq, 128], lse [Hq]."""
        out, lse = [], []
        for h in range(self.q.shape[1]):
            keys = np.arange(t + 1)
            if blocks is not None:
                keys = keys[np.isin(keys // PAGE, blocks[h // self.group])]
            k, v = (x[keys, h // self.group].astype(np.float64) for x in (self.k, self.v))
            logits = k @ self.q[t, h].astype(np.float64) * self.scale
            largest = logits.max()
            weights = np.exp(logits - largest)
            out.append(weights @ v / weights.sum())
            lse.append(largest + np.log(weights.sum()))
        return np.array(out), np.array(lse)

    def exact_blocks(self, t):
        """Row t's scores of its blocks in f64, as index_blocks defines them, and how far those of f32 sums may be off:
        a pair a KV head."""
        scores = []
        for h in range(self.k.shape[1]):
            queries = self.q[t, h * self.group : (h + 1) * self.group].astype(np.float64)
            keys = self.k[: t + 1, h].astype(np.float64)
            products = (queries @ keys.T).max(axis=0)
            tolerance = PAGE * 2.0**-24 * (np.abs(queries) @ np.abs(keys).T).max()
            scores.append((np.maximum.reduceat(products, np.arange(0, t + 1, PAGE)), tolerance))
        return scores

    def best_mass(self, t):
        """What the TOPK blocks that hold most of a KV head's mass keep of row t, [Hq]: no one list keeps more on average."""
        kept = []
        for h in range(self.k.shape[1]):
            queries = self.q[t, h * self.group : (h + 1) * self.group].astype(np.float64)
            logits = queries @ self.k[: t + 1, h].astype(np.float64).T * self.scale
            weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            blocks = np.add.reduceat(weights, np.arange(0, t + 1, PAGE), axis=-1)  # [G, blocks]
            kept.append(blocks[:, np.argsort(-blocks.sum(axis=0))[:TOPK]].sum(axis=-1))
        return np.concatenate(kept)


def long_rows(tokens):
    """Rows that see more than TOPK blocks: the others keep all."""
    return np.arange(TOPK * PAGE, tokens)


def mass_kept(part, dense):
    return np.exp(part.lse.astype(np.float64) - dense.lse)  # [T, Hq]


def overlap(selection, rows):
    """Share of a row's blocks that the row before it has too, [rows, Hs]; both have TOPK of them."""
    rows = rows[1:]
    same = selection[rows][..., :, None] == selection[rows - 1][..., None, :]
    return same.any(axis=-1).mean(axis=-1)


def relative_error(part, dense, rows):
    """‖out − dense‖ / ‖dense‖ of each row and head."""
    a, b = part.out[rows].astype(np.float64), dense.out[rows].astype(np.float64)
    return np.linalg.norm(a - b, axis=-1) / np.linalg.norm(b, axis=-1)
