# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""examples/tiny_m3.py: a model through msa_cpp beside numpy, and that the comparison notices what
it is for.
"""

import importlib.util
import pathlib

import msa_cpp
import numpy as np
import pytest

PATH = pathlib.Path(__file__).resolve().parents[2] / "examples/tiny_m3.py"
# The largest difference of logits on any instruction set so far; the example allows more, a fault
# makes it much larger.
DIFFERENCE_SEEN = 0.006


@pytest.fixture
def tiny():
    spec = importlib.util.spec_from_file_location("tiny_m3", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(tiny, prompt, tokens, seed=0):
    lines = []
    return tiny.run(prompt, tokens, seed, report=lines.append), lines


def test_256_tokens_across_the_limit_of_dense_attention(tiny):
    seen, lines = run(tiny, 1920, 256, tiny.SEED)
    assert len(seen["tokens"]) == 256
    assert len(set(seen["tokens"])) > 100  # a text, not a loop
    assert seen["difference"] <= 2 * DIFFERENCE_SEEN <= tiny.LOGIT_TOLERANCE
    # 127 of the 256 steps have more than 2,048 tokens: a list for each of three layers and two
    # heads.
    assert seen["lists"] == 3 * 2 * 127
    assert seen["near_ties"] <= 0.05 * seen["lists"]
    assert "129 against dense attention and 127 against block-sparse" in lines[1]


def test_a_longer_context_selects_half_of_it(tiny):
    seen, _ = run(tiny, 4000, 8, tiny.SEED)
    assert seen["lists"] == 3 * 2 * (4000 - 2048 // tiny.CHUNK * tiny.CHUNK + 7)
    assert seen["near_ties"] <= 0.05 * seen["lists"]


def test_a_wrong_softmax_scale_is_noticed(tiny, monkeypatch):
    attend = msa_cpp.attend
    monkeypatch.setattr(
        msa_cpp,
        "attend",
        lambda *a, **k: attend(*a, **{**k, "softmax_scale": 1.1 * k["softmax_scale"]}),
    )
    with pytest.raises(SystemExit, match="logits differ"):
        run(tiny, 300, 4)


def test_a_lost_key_is_noticed(tiny, monkeypatch):
    """The cache write of one position goes astray: the slot of position 200."""
    write = msa_cpp.write_cache

    def astray(qkv, positions, *a, slot_mapping, **k):
        return write(
            qkv, positions, *a, slot_mapping=np.where(positions == 200, -1, slot_mapping), **k
        )

    monkeypatch.setattr(msa_cpp, "write_cache", astray)
    with pytest.raises(SystemExit, match="logits differ"):
        run(tiny, 300, 4)


def test_a_worse_block_is_noticed(tiny, monkeypatch):
    """The best of the blocks that an indexer may choose is left out for the first one that it did
    not choose.
    """
    index_blocks = msa_cpp.index_blocks

    def worse(*a, **k):
        selection = index_blocks(*a, **k)
        for row in selection.reshape(-1, selection.shape[-1]):
            left = [b for b in range(int(row.max())) if b not in row]
            if left:
                row[0] = left[0]
        return selection

    monkeypatch.setattr(msa_cpp, "index_blocks", worse)
    with pytest.raises(SystemExit, match="msa_cpp chose blocks"):
        run(tiny, 2600, 4)


def test_another_token_is_noticed(tiny, monkeypatch):
    """What is compared is the token too: the paged model's logits are those of numpy, but for two
    that changed places.
    """
    model = tiny.Model.__call__

    def swapped(self, tokens):
        logits = model(self, tokens)
        if isinstance(self.attention, tiny.PagedAttention):
            best = np.argsort(logits)[-2:]
            logits[best] = logits[best[::-1]]
        return logits

    monkeypatch.setattr(tiny.Model, "__call__", swapped)
    monkeypatch.setattr(tiny, "LOGIT_TOLERANCE", np.inf)
    with pytest.raises(SystemExit, match="token 0"):
        run(tiny, 100, 4)


def test_near_ties_are_refused(tiny, monkeypatch):
    """Weights whose last layer cannot tell two tokens apart."""
    weights = tiny.Weights

    class Tied(weights):
        def __init__(self, seed):
            super().__init__(seed)
            self.head[:] = self.head[:, :1]

    monkeypatch.setattr(tiny, "Weights", Tied)
    with pytest.raises(SystemExit, match="near tie"):
        run(tiny, 100, 4)


def test_the_command(tiny, capsys):
    assert tiny.main(["--prompt", "200", "--tokens", "2"]) == 0
    assert "2 tokens are the same" in capsys.readouterr().out
    assert tiny.main(["--prompt", "200", "--tokens", "1", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    with pytest.raises(SystemExit, match="allowed: at most 8192"):
        tiny.main(["--prompt", "8192", "--tokens", "1"])
    with pytest.raises(SystemExit) as usage:
        tiny.main(["--tokens", "0"])
    assert usage.value.code == 2
