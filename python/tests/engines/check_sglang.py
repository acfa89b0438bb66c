# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The SGLang plug-in in a real SGLang, without a GPU: real plug-in loader, hook registry and
attention backend on CPU tensors, served by the CPU backend.

`tools/engines_check sglang` runs this and records it. The names of the tests are what it records.
"""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from importlib.metadata import entry_points
from types import SimpleNamespace
from unittest import mock

import msa_cpp
import numpy as np
import pytest
import torch
from msa_cpp import sglang as plugin
from sglang.srt.layers.attention.minimax_sparse_backend import MiniMaxSparseAttnBackend
from sglang.srt.plugins import GENERAL_PLUGINS_GROUP, load_plugins
from sglang.srt.plugins.hook_registry import HookRegistry

from reference import PAGE, Step, attend, commands_of, relative_l2, select

TORCH_FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


@pytest.fixture(scope="session", autouse=True)
def sglang_process():
    """A process as SGLang's scheduler is before it builds a model: plug-ins loaded."""
    load_plugins()


@pytest.fixture
def functions():
    """The module as SGLang's backend imports from it, the hooks applied; nothing kept of a pass."""
    from msa_cpp.sglang.functions import step_batches

    step_batches.forget()
    return importlib.import_module(plugin.FUNCTIONS)


class Pools:
    """The slot pools and the slot table of a step, as SGLang's memory pool hands them out."""

    def __init__(self, step: Step, fp8: str | None = None, scales=(1.0, 1.0)) -> None:
        packed = torch.from_numpy(step.kv_pages()).transpose(1, 2).flatten(0, 1).contiguous()
        kind = TORCH_FP8[fp8] if fp8 else torch.bfloat16
        self.k = (packed[..., :PAGE] / scales[0]).to(kind)  # [slots, Hkv, 128]
        self.v = (packed[..., PAGE:] / scales[1]).to(kind)
        self.index_k = torch.from_numpy(step.index_pages_of(step.table)).flatten(0, 1)[:, None]
        self.index_k = self.index_k.to(torch.float8_e4m3fn if fp8 else torch.bfloat16)
        # Request r has row 2 r + 1; other rows, and columns past a request's end, are stale.
        requests, tokens = len(step.seq_lens), step.width * PAGE
        self.req_to_token = torch.full((2 * requests + 1, tokens), 2**31 - 1, dtype=torch.int32)
        self.slot_ids = torch.arange(requests) * 2 + 1
        for r, length in enumerate(step.seq_lens):
            slots = step.table[r].repeat(PAGE).reshape(-1, PAGE) * PAGE + np.arange(PAGE)
            self.req_to_token[2 * r + 1, :length] = torch.from_numpy(slots.ravel()[:length])
        # What the pools hold now is what the reference has to attend to.
        for r, length in enumerate(step.seq_lens):
            at = self.req_to_token[2 * r + 1, :length].long()
            step.keys[r, :length] = (self.k[at].float() * scales[0]).numpy()
            step.values[r, :length] = (self.v[at].float() * scales[1]).numpy()

    # What the backend asks of SGLang's MiniMaxSparseKVPool.
    def set_fused_kv_index_buffer(self, *args):
        pass

    def get_kv_buffer(self, layer_id):
        return self.k, self.v

    def get_index_k_buffer(self, layer_id):
        return self.index_k


def backend_of(step: Step, pools: Pools) -> MiniMaxSparseAttnBackend:
    """SGLang's backend without a model runner: what its forward methods read is set by hand."""
    backend = object.__new__(MiniMaxSparseAttnBackend)
    vars(backend).update(
        kv_pool=pools,
        req_to_token=pools.req_to_token,
        page_size=PAGE,
        is_npu=False,
        is_hip=False,
        use_msa=False,
        _use_msa_decode=False,
        _msa_owns_decode=False,
        use_dense_sparse_decode=False,
        fp8_attn_gemm=False,
        index_cache_enabled=False,
        hisparse_coordinator=None,
        indexer_cp=None,
        _loc_mapping=None,
        _prefill_seqblock_meta=None,
        disable_value_layer_ids={3},
        score_type="max",
        block_size_q=1,
        block_size_k=PAGE,
        topk_blocks=step.topk,
        init_blocks=0,
        local_blocks=1,
        max_context_len=step.width * PAGE,
        speculative_num_draft_tokens=None,
    )
    return backend


def forward_batch_of(step: Step, pools: Pools) -> SimpleNamespace:
    lens = torch.tensor(step.query_lens)
    decode = step.query_lens == [1] * len(step.query_lens)
    mode = SimpleNamespace(
        is_decode_or_idle=lambda: decode, is_target_verify=lambda: False, is_idle=lambda: False
    )
    return SimpleNamespace(
        forward_mode=mode,
        seq_lens=torch.tensor(step.seq_lens),
        seq_lens_cpu=torch.tensor(step.seq_lens),
        req_pool_indices=pools.slot_ids,
        out_cache_loc=None,
        extend_seq_lens=None if decode else lens,
        extend_seq_lens_cpu=None if decode else step.query_lens,
        extend_prefix_lens=None if decode else torch.tensor(step.seq_lens) - lens,
        minimax_m3_precached_sparse_layers=None,
    )


LAYER = SimpleNamespace(
    layer_id=3,
    q_scale_float=None,
    k_scale_float=None,
    v_scale_float=None,
    idx_q_scale_float=None,
    idx_k_scale_float=None,
    idx_v_scale_float=None,
)


def queries(step: Step, rows: int | None = None):
    rows = step.tokens if rows is None else rows
    q = torch.zeros(rows, step.heads, PAGE, dtype=torch.bfloat16)
    idx_q = torch.zeros(rows, step.kv_heads, PAGE, dtype=torch.bfloat16)
    q[: step.tokens] = torch.from_numpy(step.q)
    idx_q[: step.tokens] = torch.from_numpy(step.index_q)
    return q, idx_q


def run_backend(backend, batch, step: Step, layer=LAYER, rows=None):
    q, idx_q = queries(step, rows)
    forward = (
        backend.forward_decode if batch.forward_mode.is_decode_or_idle() else backend.forward_extend
    )
    index_out, out = forward(q, None, None, layer, batch, idx_q=idx_q, idx_k=None, idx_v=None)
    assert index_out is None
    return out


def expect_step(step: Step, out):
    expected, _ = attend(step, select(step))
    result = out[: step.tokens].float().reshape(expected.shape).numpy()
    assert relative_l2(result, expected) < 4e-3


DECODE = {"query_lens": [1, 1, 1], "seq_lens": [1, 130, 1290]}
PREFILL = {"query_lens": [70, 3, 129], "seq_lens": [700, 3, 1029]}


# --- how the plug-in gets in ---------------------------------------------------------------------


def test_sglang_finds_the_entry_point():
    (ours,) = [e for e in entry_points(group=GENERAL_PLUGINS_GROUP) if e.name == "msa"]
    assert ours.value == "msa_cpp.sglang:register"


def test_the_hook_registry_puts_our_functions_in_place(functions):
    for name in ("minimax_sparse_prefill", "minimax_sparse_decode"):
        assert f"{plugin.FUNCTIONS}.{name}" in HookRegistry._patched
        assert getattr(functions, name).__wrapped__.__module__ == plugin.FUNCTIONS
    for method in plugin.STEP_METHODS:
        assert f"{plugin.BACKEND}.{method}" in HookRegistry._patched


def test_registering_again_changes_nothing():
    before = {target: list(hooks) for target, hooks in HookRegistry._hooks.items()}
    plugin.register()
    assert before == HookRegistry._hooks


@pytest.mark.parametrize("switch, hooks", [("0", 0), ("1", 4)])
def test_msa_sglang_switches_it_off(switch, hooks):
    script = (
        "from sglang.srt.plugins import load_plugins; load_plugins()\n"
        "from sglang.srt.plugins.hook_registry import HookRegistry\n"
        "print(sum('minimax_sparse' in target for target in HookRegistry._patched))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "MSA_SGLANG": switch},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split()[-1] == str(hooks)


def test_commands_of_the_docs_are_sglangs():
    import argparse

    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    commands = [c for c in commands_of("docs/sglang.md") if c[:2] == ["python", "-m"]]
    parsed = [parser.parse_args(command[3:]) for command in commands]
    assert [(a.tp_size, a.nnodes) for a in parsed] == [(8, 1), (16, 2)]
    assert {(a.page_size, a.kv_cache_dtype) for a in parsed} == {(PAGE, "fp8_e4m3")}


# --- what it computes ----------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [DECODE, PREFILL], ids=["decode", "prefill"])
@pytest.mark.parametrize("fp8", [None, "e4m3", "e5m2"])
def test_step_through_the_backend_equals_the_reference(functions, sizes, fp8):
    step = Step(**sizes, heads=8, kv_heads=2)
    scales = (0.25, 0.5) if fp8 else (1.0, 1.0)
    pools = Pools(step, fp8, scales)
    backend, batch = backend_of(step, pools), forward_batch_of(step, pools)
    layer = SimpleNamespace(
        **{**vars(LAYER), "k_scale_float": scales[0], "v_scale_float": scales[1]}
    )
    backend.init_forward_metadata(batch)
    expect_step(step, run_backend(backend, batch, step, layer))


def test_rows_padded_for_data_parallel_attention(functions):
    step = Step(**PREFILL)
    pools = Pools(step)
    backend, batch = backend_of(step, pools), forward_batch_of(step, pools)
    backend.init_forward_metadata(batch)
    out = run_backend(backend, batch, step, rows=step.tokens + 5)
    expect_step(step, out)
    assert (out[step.tokens :] == 0).all()


def test_query_in_fp8_with_its_scale(functions):
    step = Step(**DECODE)
    pools = Pools(step, "e4m3")
    q, idx_q = queries(step)
    fp8 = (q / 0.5).to(torch.float8_e4m3fn)
    step.q = fp8.float().numpy() * 0.5
    index_out, out = functions.minimax_sparse_decode(
        fp8,
        None,
        pools.k,
        pools.v,
        idx_q.to(torch.float8_e4m3fn),
        None,
        pools.index_k,
        None,
        pools.req_to_token,
        pools.slot_ids,
        torch.tensor(step.seq_lens),
        max(step.seq_lens),
        1,
        PAGE,
        step.topk,
        0,
        1,
        disable_index_value=True,
        page_size=PAGE,
        q_scale=0.5,
    )
    assert index_out is None and out.dtype == torch.bfloat16
    expect_step(step, out)


def test_block_table_is_made_once_a_pass(functions):
    step = Step(**DECODE)
    pools = Pools(step)
    backend, batch = backend_of(step, pools), forward_batch_of(step, pools)
    with mock.patch.object(msa_cpp, "BatchMetadata", wraps=msa_cpp.BatchMetadata) as batches:
        backend.init_forward_metadata(batch)
        run_backend(backend, batch, step)
        run_backend(backend, batch, step)
        assert batches.call_count == 1
        backend.init_forward_metadata(batch)
        run_backend(backend, batch, step)
        assert batches.call_count == 2


def test_next_pass_in_the_same_tensors_sees_their_new_contents(functions):
    step = Step(**DECODE)
    pools = Pools(step)
    backend, batch = backend_of(step, pools), forward_batch_of(step, pools)
    backend.init_forward_metadata(batch)
    run_backend(backend, batch, step)
    shorter = Step(step.query_lens, [1, 129, 1000])
    batch.seq_lens.copy_(torch.tensor(shorter.seq_lens))
    step.seq_lens = shorter.seq_lens
    backend.init_forward_metadata(batch)
    expect_step(step, run_backend(backend, batch, step))


@pytest.mark.parametrize("shared", ["prefill", "decode"])
def test_selection_is_shared_between_layers(functions, shared):
    step = Step(**(PREFILL if shared == "prefill" else DECODE), heads=8, kv_heads=2)
    pools = Pools(step)
    q, idx_q = queries(step)
    seq_lens = torch.tensor(step.seq_lens, dtype=torch.int32)
    lens = torch.tensor(step.query_lens, dtype=torch.int32)
    starts = torch.tensor([0, *np.cumsum(step.query_lens)], dtype=torch.int32)
    both = {"disable_index_value": True, "page_size": PAGE}

    def prefill(**more):
        return functions.minimax_sparse_prefill(
            q,
            pools.k,
            pools.v,
            None,
            idx_q,
            pools.index_k,
            None,
            None,
            pools.req_to_token,
            pools.slot_ids,
            starts,
            seq_lens,
            seq_lens - lens,
            max(step.query_lens),
            max(step.seq_lens),
            1,
            PAGE,
            step.topk,
            0,
            1,
            **both,
            **more,
        )

    def decode(**more):
        return functions.minimax_sparse_decode(
            q,
            None,
            pools.k,
            pools.v,
            idx_q,
            None,
            pools.index_k,
            None,
            pools.req_to_token,
            pools.slot_ids,
            seq_lens,
            max(step.seq_lens),
            1,
            PAGE,
            step.topk,
            0,
            1,
            **both,
            **more,
        )

    if shared == "prefill":
        _, first, selection = prefill(
            return_topk_idx=True, cu_seqblocks_q=starts, max_seqblock_q=1, all_seqblock_q=1
        )
        _, second = prefill(cached_topk_idx=selection)
    else:
        selection = torch.full((step.kv_heads, step.tokens, step.topk), 7, dtype=torch.int32)
        _, first = decode(topk_out=selection)
        _, second = decode(cached_topk_idx=selection)
    np.testing.assert_array_equal(selection.transpose(0, 1).numpy(), select(step))
    expect_step(step, first)
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    "change, why",
    [
        ({"page_size": 64}, "page size 64 (128: --page-size 128)"),
        ({"score_type": "lse"}, "block score 'lse' ('max')"),
        ({"disable_index_value": False}, "an indexer with values"),
        ({"hisparse_swap_in_fn": len}, "blocks swapped in by HiSparse"),
    ],
)
def test_what_cannot_be_served_is_left_to_sglang_and_said(functions, caplog, change, why):
    step = Step(**DECODE)
    pools = Pools(step)
    q, idx_q = queries(step)
    args = (
        q,
        None,
        pools.k,
        pools.v,
        idx_q,
        None,
        pools.index_k,
        None,
        pools.req_to_token,
        pools.slot_ids,
        torch.tensor(step.seq_lens),
        max(step.seq_lens),
        1,
        PAGE,
        step.topk,
        0,
        1,
    )
    kwargs = {"disable_index_value": True, "page_size": PAGE, **change}
    hook = plugin.functions.SparseFunction(
        mock.create_autospec(
            functions.minimax_sparse_decode.__wrapped__, return_value="SGLang's own"
        ),
        mock.Mock(side_effect=AssertionError("not served")),
    )
    hook.original.__name__ = "minimax_sparse_decode"
    with caplog.at_level(logging.INFO, logger="sglang"):
        assert hook(*args, **kwargs) == "SGLang's own"
    hook.original.assert_called_once_with(*args, **kwargs)
    assert f"minimax_sparse_decode is left to SGLang: {why}" in caplog.text
