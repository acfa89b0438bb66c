#!/usr/bin/env python3
# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""A tiny model of MiniMax-M3's shape that decodes through msa_cpp, step by step beside plain numpy.

    python examples/tiny_m3.py [--prompt 1920] [--tokens 256] [--seed 4] [--quiet]

Four layers as M3 has them at tensor parallel size 2: 32 query heads, 2 KV heads and 2 index heads
of 128; the first layer is dense (all blocks are selected), the others select 16 blocks. Weights are
random, the hidden size is small, and a plain gated MLP stands for the experts. Attention of the
model under test is write_cache, index_blocks and attend on paged bf16 caches, whose pages are out
of order and start as NaN. Beside it runs a second model whose attention is numpy: dense while the
context has at most 2,048 tokens (16 blocks are all of them), block-sparse beyond. Both decode
greedily; each step's logits have to agree within LOGIT_TOLERANCE, and its token exactly. A step
whose two best tokens are not further apart than twice what the logits differ by could not tell, so
it fails too.

Exits 0 when all steps agree, 1 on the first that does not. Wants numpy and msa_cpp.
"""

import argparse
import sys
import time

import numpy as np

import msa_cpp

LAYERS, HIDDEN, MLP, VOCAB = 4, 256, 512, 512
HQ, HKV, HI, DIM, PAGE, TOPK = 32, 2, 2, 128, 128, 16
MAX_TOKENS = 64 * PAGE  # 64 blocks are the most that a row may select
EPS, SCALE, THETA, ROTARY = 1e-6, 128**-0.5, 5e6, 64
EMBEDDING = 4  # standard deviation: how much of the residual is the last token itself
SECOND = 0.7  # weight of the second successor
SEED = 4  # all of its 256 decisions are far from a tie
CHUNK = 512  # tokens of a prefill step

# Logits have a standard deviation of about 1. Both models round q, k, v and attention's output to
# bf16 (2^-9), the library the probabilities too: differences of up to 0.01 were seen.
LOGIT_TOLERANCE = 0.02
# Two scores closer than this, relative to the larger, may change places with the last bit of bf16
# of a query or key.
SCORE_TOLERANCE = 0.02


def to_bf16(x):
    """f32 to the bits of bf16, round to nearest even. No NaN occurs."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(x):
    return from_bf16(to_bf16(x))


def bf16(bits):
    return msa_cpp.view(bits, "bf16")


def rms_norm(x, weight):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(EPS)) * (1 + weight)


def rotary_table(positions):
    """[positions, 64] f32: cos, then sin, of angle p / THETA^(i / 32)."""
    angles = np.arange(positions)[:, None] * THETA ** (-np.arange(ROTARY // 2) / (ROTARY // 2))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


class Weights:
    """Random weights, the same for both models."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)

        def matrix(rows, columns):
            return rng.standard_normal((rows, columns), np.float32) / np.float32(rows**0.5)

        def norm(size):
            return rng.standard_normal(size, np.float32) * np.float32(0.1)

        self.embedding = rng.standard_normal((VOCAB, HIDDEN), np.float32) * np.float32(EMBEDDING)
        self.layers = []
        for layer in range(LAYERS):
            index_heads = HI + 1 if layer > 0 else 0
            self.layers.append(
                {
                    "input_norm": norm(HIDDEN),
                    "qkv": matrix(HIDDEN, (HQ + 2 * HKV + index_heads) * DIM),
                    "q_norm": norm(DIM),
                    "k_norm": norm(DIM),
                    "index_q_norm": norm(DIM),
                    "index_k_norm": norm(DIM),
                    # Attention averages over many values; without the factor it would drown in the
                    # residual.
                    "out": matrix(HQ * DIM, HIDDEN) * np.float32(8),
                    "mlp_norm": norm(HIDDEN),
                    "gate": matrix(HIDDEN, MLP),
                    "up": matrix(HIDDEN, MLP),
                    "down": matrix(MLP, HIDDEN),
                }
            )
        self.norm = norm(HIDDEN)
        # Tokens stand in a circle; the next one is each one's likely successor, the one behind that
        # almost as likely, and the context decides. The text never runs in a short loop, which
        # greedy decoding of wholly random weights does at once.
        circle = rng.permutation(VOCAB)
        before = np.empty((2, VOCAB), np.int64)
        before[:, circle] = np.roll(circle, 1), np.roll(circle, 2)
        head = self.embedding[before[0]] + np.float32(SECOND) * self.embedding[before[1]]
        self.head = head.T / np.float32((2 * HIDDEN) ** 0.5 * EMBEDDING)


class PagedAttention:
    """Attention of one request by msa_cpp: each layer has a paged cache, a sparse one an index
    cache too.
    """

    def __init__(self, weights, max_tokens, seed):
        pages = -(-max_tokens // PAGE)
        # Page 0 belongs to nobody, as in vLLM; the others come in no order.
        self.table = (
            np.random.default_rng(seed).permutation(np.arange(1, pages + 1)).astype(np.int32)[None]
        )
        self.cos_sin = rotary_table(max_tokens)
        self.weights = weights
        self.caches = [
            np.full((pages + 1, HKV, PAGE, 2 * DIM), 0x7FC0, np.uint16) for _ in range(LAYERS)
        ]
        self.index_caches = [
            np.full((pages + 1, PAGE, DIM), 0x7FC0, np.uint16) for _ in range(LAYERS)
        ]
        self.selections = {}  # [T, HI, TOPK] of the last call, by layer

    def __call__(self, layer, qkv, first):
        """qkv [T, …] f32 at positions first …: attention's output [T, HQ * DIM] f32."""
        tokens = len(qkv)
        length = np.array([first + tokens], np.int32)
        positions = np.arange(first, first + tokens)
        slots = self.table[0, positions // PAGE].astype(np.int64) * PAGE + positions % PAGE
        if tokens == 1:
            batch = msa_cpp.BatchMetadata(length, self.table)
        else:
            batch = msa_cpp.BatchMetadata(
                length,
                self.table,
                cu_seqlens_q=np.array([0, tokens], np.int32),
                context_lens=np.array([first], np.int32),
                num_prefills=1,
                num_actual_tokens=tokens,
            )
        w = self.weights.layers[layer]
        cache = bf16(self.caches[layer])
        q = bf16(np.empty((tokens, HQ, DIM), np.uint16))
        index = {}
        if layer > 0:
            index_q = bf16(np.empty((tokens, HI, DIM), np.uint16))
            index_cache = bf16(self.index_caches[layer])
            index = {
                "index_q_norm": w["index_q_norm"],
                "index_k_norm": w["index_k_norm"],
                "index_slot_mapping": slots,
                "index_q_out": index_q,
                "index_cache": index_cache,
            }
        msa_cpp.write_cache(
            bf16(to_bf16(qkv)),
            positions,
            self.cos_sin,
            q_norm=w["q_norm"],
            k_norm=w["k_norm"],
            slot_mapping=slots,
            kv_cache=cache,
            q_out=q,
            norm_eps=EPS,
            **index,
        )
        if layer > 0:
            selection = np.empty((tokens, HI, TOPK), np.int32)
            msa_cpp.index_blocks(index_q, index_cache, batch, topk=TOPK, out=selection)
            self.selections[layer] = selection
        else:  # dense: every block, one list for all heads
            blocks = np.arange(-(-int(length[0]) // PAGE), dtype=np.int32)
            selection = np.ascontiguousarray(np.broadcast_to(blocks, (tokens, 1, len(blocks))))
        out = np.empty((tokens, HQ, DIM), np.uint16)
        msa_cpp.attend(q, cache, selection, batch, out=bf16(out), softmax_scale=SCALE)
        return from_bf16(out).reshape(tokens, HQ * DIM)


class NumpyAttention:
    """The same attention in numpy, on plain arrays of all keys so far."""

    def __init__(self, weights, max_tokens, paged):
        self.weights = weights
        self.cos_sin = rotary_table(max_tokens)
        self.keys = [np.zeros((HKV, max_tokens, DIM), np.float32) for _ in range(LAYERS)]
        self.values = [np.zeros((HKV, max_tokens, DIM), np.float32) for _ in range(LAYERS)]
        self.index_keys = [
            np.zeros((-(-max_tokens // PAGE) * PAGE, DIM), np.float32) for _ in range(LAYERS)
        ]  # whole blocks
        self.paged = paged  # whose selections are checked
        self.lists = self.near_ties = 0

    def __call__(self, layer, qkv, first):
        tokens, w = len(qkv), self.weights.layers[layer]
        end = first + tokens
        positions = np.arange(first, end)
        heads = rounded(qkv).reshape(tokens, -1, DIM)
        q = self.norm_and_rotate(heads[:, :HQ], w["q_norm"], positions)
        self.keys[layer][:, first:end] = self.norm_and_rotate(
            heads[:, HQ : HQ + HKV], w["k_norm"], positions
        ).swapaxes(0, 1)
        self.values[layer][:, first:end] = heads[:, HQ + HKV : HQ + 2 * HKV].swapaxes(0, 1)
        selected = None
        if layer > 0:
            index = heads[:, HQ + 2 * HKV :]
            self.index_keys[layer][first:end] = self.norm_and_rotate(
                index[:, HI:], w["index_k_norm"], positions
            )[:, 0]
            if end > TOPK * PAGE:  # below, 16 blocks are all blocks
                index_q = self.norm_and_rotate(index[:, :HI], w["index_q_norm"], positions)
                selected = self.select(layer, index_q, positions)
        out = np.empty((tokens, HQ, DIM), np.float32)
        visible = np.arange(end) <= positions[:, None]
        for head in range(HQ):
            kv = head // (HQ // HKV)
            logits = q[:, head] @ self.keys[layer][kv, :end].T * np.float32(SCALE)
            seen = (
                visible
                if selected is None
                else visible & selected[:, kv].repeat(PAGE, axis=-1)[:, :end]
            )
            p = np.exp(
                np.where(seen, logits, -np.inf)
                - np.max(logits, axis=-1, keepdims=True, where=seen, initial=-np.inf)
            )
            out[:, head] = p @ self.values[layer][kv, :end] / p.sum(axis=-1, keepdims=True)
        return rounded(out).reshape(tokens, HQ * DIM)

    def norm_and_rotate(self, x, weight, positions):
        """Gemma RMSNorm over 128 elements, NeoX rotation of elements (i, i + 32), one rounding at
        the end.
        """
        x = rms_norm(x, weight)
        cos, sin = np.split(self.cos_sin[positions][:, None], 2, axis=-1)
        low, high = x[..., :32].copy(), x[..., 32:64].copy()
        x[..., :32], x[..., 32:64] = low * cos - high * sin, high * cos + low * sin
        return rounded(x)

    def select(self, layer, index_q, positions):
        """[T, HI, blocks] bool: the 16 best blocks of each row and index head, the row's own among
        them.

        Of blocks whose scores cannot be told apart the library's choice is taken, after a check
        that it is one of the best.
        """
        blocks = -(-int(positions[-1] + 1) // PAGE)
        keys = self.index_keys[layer][: blocks * PAGE]
        selected = np.zeros((len(positions), HI, blocks), bool)
        for head in range(HI):
            dots = np.where(
                np.arange(len(keys)) <= positions[:, None], index_q[:, head] @ keys.T, -np.inf
            )
            scores = dots.reshape(len(positions), blocks, PAGE).max(axis=-1)
            for row, position in enumerate(positions):
                valid = position // PAGE + 1
                score = np.append(scores[row, : valid - 1], np.inf)  # the own block is always in
                best = np.argsort(-score, kind="stable")[:TOPK]  # ties to the lower id
                chosen = self.paged.selections[layer][row, head]
                chosen = chosen[chosen >= 0]
                self.lists += 1
                if set(best) != set(chosen):
                    self.near_ties += 1
                    self.check_choice(layer, position, head, score, chosen)
                selected[row, head, chosen] = True
        return selected

    @staticmethod
    def check_choice(layer, position, head, score, chosen):
        last = np.sort(score)[-TOPK]
        left = np.delete(score, chosen)
        slack = SCORE_TOLERANCE * abs(last)
        if (
            len(set(chosen)) != TOPK
            or score[chosen].min() < last - slack
            or left.max(initial=-np.inf) > last + slack
        ):
            raise SystemExit(
                f"layer {layer}, position {position}, index head {head}: msa_cpp chose blocks "
                f"{sorted(chosen.tolist())}; numpy's scores are {np.round(score, 3)}"
            )


class Model:
    """Everything but attention: f32 numpy, the same for both."""

    def __init__(self, weights, attention):
        self.weights, self.attention = weights, attention
        self.length = 0

    def __call__(self, tokens):
        """Appends `tokens` to the context; logits [VOCAB] of the last one."""
        x = self.weights.embedding[tokens]
        for layer, w in enumerate(self.weights.layers):
            attended = self.attention(layer, rms_norm(x, w["input_norm"]) @ w["qkv"], self.length)
            x = x + attended @ w["out"]
            h = rms_norm(x, w["mlp_norm"])
            gate = h @ w["gate"]
            x = x + gate / (1 + np.exp(-gate)) * (h @ w["up"]) @ w["down"]
        self.length += len(tokens)
        return rms_norm(x[-1], self.weights.norm) @ self.weights.head


def run(prompt_tokens, new_tokens, seed, report=print):
    """Decodes `new_tokens` with both models. Raises SystemExit where they part; returns what was
    seen.
    """
    weights = Weights(seed)
    limit = prompt_tokens + new_tokens
    if limit > MAX_TOKENS:
        raise SystemExit(
            f"--prompt + --tokens is {limit}; allowed: at most {MAX_TOKENS} (the dense layer "
            "selects all blocks)"
        )
    paged_attention = PagedAttention(weights, limit, seed)
    numpy_attention = NumpyAttention(weights, limit, paged_attention)
    paged, plain = Model(weights, paged_attention), Model(weights, numpy_attention)
    prompt = np.random.default_rng(seed + 1).integers(0, VOCAB, prompt_tokens)
    seconds = {"msa_cpp": 0.0, "numpy": 0.0}

    def step(tokens):
        start = time.perf_counter()
        a = paged(tokens)
        middle = time.perf_counter()
        b = plain(tokens)
        seconds["msa_cpp"] += middle - start
        seconds["numpy"] += time.perf_counter() - middle
        return a, b

    for first in range(0, prompt_tokens, CHUNK):
        logits, expected = step(prompt[first : first + CHUNK])
    report(
        f"prompt of {prompt_tokens} tokens: msa_cpp {seconds['msa_cpp']:.1f} s, "
        f"numpy {seconds['numpy']:.1f} s"
    )
    worst, closest, tokens = 0.0, np.inf, []
    for i in range(new_tokens):
        difference = float(np.abs(logits - expected).max())
        second, first = np.sort(expected)[-2:]
        margin = float(first - second)
        worst, closest = max(worst, difference), min(closest, margin)
        if not difference <= LOGIT_TOLERANCE:  # NaN too
            raise SystemExit(
                f"token {i}: logits differ by {difference:.5f}; allowed: {LOGIT_TOLERANCE}"
            )
        if margin <= 2 * difference:
            raise SystemExit(
                f"token {i}: the two best tokens are {margin:.5f} apart and the logits differ by "
                f"{difference:.5f}: a near tie that proves nothing; take another --seed"
            )
        token = int(np.argmax(logits))
        if token != int(np.argmax(expected)):
            raise SystemExit(f"token {i}: msa_cpp {token}, numpy {int(np.argmax(expected))}")
        tokens.append(token)
        if i + 1 < new_tokens:
            logits, expected = step(np.array([token]))
    dense = max(0, min(new_tokens, TOPK * PAGE - prompt_tokens + 1))
    report(
        f"{new_tokens} tokens are the same, {dense} against dense attention and "
        f"{new_tokens - dense} against block-sparse; "
        f"logits differ by at most {worst:.5f}, the closest decision was {closest:.5f}"
    )
    report(
        f"{numpy_attention.lists} selections beyond {TOPK * PAGE} tokens, "
        f"{numpy_attention.near_ties} of them near ties"
    )
    report(f"first tokens: {tokens[:12]}; backend {msa_cpp.last_backend()}")
    return {
        "tokens": tokens,
        "difference": worst,
        "margin": closest,
        "lists": numpy_attention.lists,
        "near_ties": numpy_attention.near_ties,
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompt", type=int, default=1920, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=256, help="tokens to decode")
    parser.add_argument("--seed", type=int, default=SEED, help="of weights, prompt and page order")
    parser.add_argument("--quiet", action="store_true", help="print nothing unless the models part")
    args = parser.parse_args(arguments)
    if args.prompt < 1 or args.tokens < 1:
        parser.error("--prompt and --tokens are at least 1")
    run(args.prompt, args.tokens, args.seed, report=(lambda line: None) if args.quiet else print)
    return 0


if __name__ == "__main__":
    sys.exit(main())
