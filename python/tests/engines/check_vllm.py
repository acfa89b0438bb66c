# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The vLLM plug-in in a real vLLM, without a GPU: real plug-in loader, registry, model class,
metadata builders and forward context on CPU tensors, served by the CPU backend.

`tools/engines_check vllm` runs this and records it. The names of the tests are what it records.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from importlib.metadata import entry_points
from unittest import mock

import msa_cpp
import numpy as np
import pytest
import torch
from msa_cpp import vllm as plugin
from transformers import AutoConfig
from vllm import ModelRegistry
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
    set_current_vllm_config,
)
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.forward_context import set_forward_context
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.models import minimax_m3
from vllm.models.minimax_m3.common import indexer as vllm_indexer
from vllm.plugins import DEFAULT_PLUGINS_GROUP, load_general_plugins, load_plugins_by_group
from vllm.transformers_utils.configs.minimax_m3 import MiniMaxM3TextConfig
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.utils import (
    get_supported_kv_cache_layouts,
    resolve_kv_cache_layout,
)
from vllm.v1.kv_cache_layout import KVCacheLayout

from reference import PAGE, Step, attend, commands_of, relative_l2, select

MAX_TOKENS = 1024
TORCH_FP8 = {"fp8": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


@pytest.fixture(scope="session", autouse=True)
def vllm_process(tmp_path_factory):
    """A process as vLLM's worker is before it builds a model: plug-ins loaded, one rank."""
    os.environ["VLLM_CACHE_ROOT"] = str(tmp_path_factory.mktemp("vllm"))
    # Checkpoints name the multimodal configuration; a text-only one is what fits a CPU.
    AutoConfig.register("minimax_m3_text", MiniMaxM3TextConfig)
    load_general_plugins()
    rendezvous = tmp_path_factory.mktemp("ranks") / "store"
    with set_current_vllm_config(VllmConfig(device_config=DeviceConfig(device="cpu"))):
        init_distributed_environment(1, 0, f"file://{rendezvous}", 0, "gloo")
        initialize_model_parallel(1, 1)


@pytest.fixture
def caplog_vllm(caplog):
    """vLLM's records of a start-up, which its logger may keep from the root's handlers."""
    logger = logging.getLogger("vllm")
    with caplog.at_level(logging.INFO, logger="vllm"):
        logger.addHandler(caplog.handler)
        yield caplog
        logger.removeHandler(caplog.handler)


def m3_config(tmp_path, *, step: Step, cache_dtype="auto", layers=2, sparse=(), attention=()):
    """A configuration of vLLM for a small MiniMax-M3 whose layers are all sparse."""
    text = {
        "architectures": ["MiniMaxM3SparseForCausalLM"],
        "model_type": "minimax_m3_text",
        "torch_dtype": "bfloat16",
        "hidden_size": 64,
        "dense_intermediate_size": 64,
        "vocab_size": 128,
        "num_hidden_layers": layers,
        "num_attention_heads": step.heads,
        "num_key_value_heads": step.kv_heads,
        "max_position_embeddings": 8192,
        "moe_layer_freq": [0] * layers,
        "sparse_attention_config": {
            "sparse_index_dim": 128,
            "sparse_num_index_heads": step.kv_heads,
            "sparse_topk_blocks": step.topk,
            "sparse_block_size": PAGE,
            "sparse_score_type": "max",
            "sparse_init_block": 0,
            "sparse_local_block": 1,
            "sparse_attention_freq": [1] * layers,
            **dict(sparse),
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(text))
    folder = str(tmp_path)
    return VllmConfig(
        model_config=ModelConfig(
            model=folder, tokenizer=folder, skip_tokenizer_init=True, max_model_len=8192
        ),
        cache_config=CacheConfig(block_size=PAGE, cache_dtype=cache_dtype),
        scheduler_config=SchedulerConfig(
            max_num_batched_tokens=MAX_TOKENS,
            max_num_seqs=16,
            max_model_len=8192,
            is_encoder_decoder=False,
        ),
        device_config=DeviceConfig(device="cpu"),
        attention_config=dict(attention),
    )


def build(config: VllmConfig):
    """The model as vLLM's loader builds it, without weights."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        return initialize_model(config)
    finally:
        torch.set_default_dtype(default)


def sparse_layers(model):
    return [
        m
        for m in model.modules()
        if isinstance(m, minimax_m3.nvidia.model.MiniMaxM3SparseAttention)
    ]


def bind_caches(layer, step: Step, *, layout="LBHNC", cache_dtype="auto", scales=(1.0, 1.0)):
    """Gives a layer its two caches, filled with the step's keys and values."""
    logical = torch.from_numpy(np.ascontiguousarray(step.kv_pages()))
    logical[..., :PAGE] /= scales[0]
    logical[..., PAGE:] /= scales[1]
    order = KVCacheLayout[layout].layer_view_order
    physical = logical.permute(order).contiguous().permute([order.index(d) for d in range(4)])
    if cache_dtype == "auto":
        layer.bind_kv_cache(physical.to(torch.bfloat16))
    else:
        fp8 = physical.to(TORCH_FP8[cache_dtype])
        layer.bind_kv_cache(fp8.view(torch.uint8))
        # What the cache holds now is what the reference has to attend to.
        back = fp8.float()
        for r in range(len(step.seq_lens)):
            for t in range(step.seq_lens[r]):
                slot = back[step.table[r, t // PAGE], :, t % PAGE]
                step.keys[r, t] = (slot[:, :PAGE] * scales[0]).numpy()
                step.values[r, t] = (slot[:, PAGE:] * scales[1]).numpy()
        layer._k_scale.fill_(scales[0])
        layer._v_scale.fill_(scales[1])
        layer._k_scale_float, layer._v_scale_float = scales
    index = torch.from_numpy(step.index_pages()).to(layer.indexer.index_cache.dtype)
    layer.indexer.index_cache.bind_kv_cache(index[:, None])


def metadata_of(config, layer, step: Step, *, decode_query_len=1, padded_requests=0):
    """What vLLM's builders make of a step for a layer and for its index cache."""
    query_lens = step.query_lens + [0] * padded_requests
    starts = torch.tensor([0, *np.cumsum(query_lens)], dtype=torch.int32)
    seq_lens = torch.tensor(step.seq_lens + [0] * padded_requests, dtype=torch.int32)
    made = {}
    for owner, name, table in (
        (layer, layer.layer_name, step.table),
        (layer.indexer.index_cache, layer.indexer.index_cache.prefix, step.index_table),
    ):
        stale = np.full((padded_requests, table.shape[1]), -1, np.int32)
        builder = owner.get_attn_backend().get_builder_cls()(
            owner.get_kv_cache_spec(config), [name], config, torch.device("cpu")
        )
        builder.reorder_batch_threshold = decode_query_len  # as with decode_query_len - 1 drafts
        made[name] = builder.build(
            0,
            CommonAttentionMetadata(
                query_start_loc=starts,
                query_start_loc_cpu=starts,
                seq_lens=seq_lens,
                num_reqs=len(query_lens),
                num_actual_tokens=step.tokens + padded_requests * decode_query_len,
                max_query_len=max(query_lens),
                max_seq_len=max(step.seq_lens),
                block_table_tensor=torch.from_numpy(np.concatenate([table, stale])),
                slot_mapping=torch.zeros(step.tokens, dtype=torch.int64),
                seq_lens_cpu_upper_bound=seq_lens,
            ),
        )
    return made


def poisoned(shape, dtype=torch.bfloat16):
    return torch.full(shape, float("nan"), dtype=dtype)


def run_layer(config, layer, step: Step, metadata, spare_rows=3):
    """The step through vLLM's layer, from q and index_q on; rows behind it must stay."""
    rows = step.tokens + spare_rows
    query, output = poisoned((rows, step.heads * PAGE)), poisoned((rows, step.heads * PAGE))
    query[: step.tokens] = torch.from_numpy(step.q).reshape(step.tokens, -1)
    index_query = torch.zeros(rows, step.kv_heads * PAGE, dtype=layer.indexer.index_cache.dtype)
    index_query[: step.tokens] = (
        torch.from_numpy(step.index_q).reshape(step.tokens, -1).to(index_query.dtype)
    )
    layer.topk_indices_buffer.fill_(2**31 - 1)
    with set_forward_context(metadata, config):
        returned = layer._run_attention(query, None, index_query, output)
    assert returned is output
    return output


def expect_step(layer, step: Step, output):
    chosen = select(step)
    np.testing.assert_array_equal(layer.topk_indices_buffer[: step.tokens].numpy(), chosen)
    expected, _ = attend(step, chosen)
    result = output[: step.tokens].float().reshape(expected.shape).numpy()
    assert relative_l2(result, expected) < 4e-3


DECODE = {"query_lens": [1, 1, 1], "seq_lens": [1, 130, 1290]}
PREFILL = {"query_lens": [70, 3, 129], "seq_lens": [700, 3, 1029]}
MIXED = {"query_lens": [1, 1, 40, 9], "seq_lens": [641, 128, 680, 9]}


# --- how the plug-in gets in ---------------------------------------------------------------------


def test_vllm_finds_the_entry_point():
    (ours,) = [e for e in entry_points(group=DEFAULT_PLUGINS_GROUP) if e.name == "msa"]
    assert ours.value == "msa_cpp.vllm:register"
    assert load_plugins_by_group(DEFAULT_PLUGINS_GROUP)["msa"] is plugin.register


def test_registry_names_our_model_classes():
    for architecture in plugin.ARCHITECTURES:
        ours = ModelRegistry.models[architecture].load_model_cls()
        assert ours.__module__ == "msa_cpp.vllm.models"
        assert issubclass(ours, getattr(minimax_m3, architecture))


def test_registry_inspects_our_model_as_vllms_own():
    ours = ModelRegistry.models["MiniMaxM3SparseForCausalLM"].inspect_model_cls()
    theirs = type(ours).from_model_cls(minimax_m3.MiniMaxM3SparseForCausalLM)
    assert ours == theirs


@pytest.mark.parametrize(
    "switch, module", [("0", "vllm.models.minimax_m3"), ("1", "msa_cpp.vllm.models")]
)
def test_msa_vllm_switches_it_off(switch, module):
    script = (
        "from vllm.plugins import load_general_plugins; load_general_plugins()\n"
        "from vllm import ModelRegistry\n"
        "print(ModelRegistry.models['MiniMaxM3SparseForCausalLM'].module_name)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "MSA_VLLM": switch},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split()[-1] == module


def test_register_never_raises(caplog):
    with mock.patch.object(type(ModelRegistry), "register_model", side_effect=RuntimeError("no")):
        plugin.register()
    assert "vLLM serves all layers" in caplog.text


def test_commands_of_the_docs_are_vllms(monkeypatch):
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.platforms import current_platform
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    monkeypatch.setattr(type(current_platform), "device_type", "cpu")  # wanted for defaults
    parser = make_arg_parser(FlexibleArgumentParser())
    commands = [c for c in commands_of("docs/vllm.md") if c[:2] == ["vllm", "serve"]]
    parsed = [parser.parse_args(command[2:]) for command in commands]
    assert [(a.tensor_parallel_size, a.pipeline_parallel_size) for a in parsed] == [(8, 1), (8, 2)]
    for args in parsed:
        assert args.block_size == PAGE and args.kv_cache_dtype == "fp8"
        assert args.attention_config.indexer_kv_dtype == "fp8"


# --- what it does to a model ---------------------------------------------------------------------


def test_layers_are_handed_over_and_the_index_cache_stays(tmp_path, caplog_vllm):
    created = []
    theirs = vllm_indexer.MiniMaxM3IndexerCache.__init__

    def counted(self, *args, **kwargs):
        created.append(self)
        theirs(self, *args, **kwargs)

    config = m3_config(tmp_path, step=Step(**DECODE))
    with mock.patch.object(vllm_indexer.MiniMaxM3IndexerCache, "__init__", counted):
        model = build(config)
    assert type(model).__module__ == "msa_cpp.vllm.models"
    layers = sparse_layers(model)
    assert [layer.indexer.index_cache for layer in layers] == created and len(created) == 2
    registered = config.compilation_config.static_forward_context
    for layer in layers:
        assert type(layer.impl).__name__ == "MsaSparseImpl"
        assert type(layer.indexer.impl).__name__ == "MsaIndexerImpl"
        assert layer.get_attn_backend().get_name() == "MINIMAX_M3_SPARSE"
        assert (
            layer.indexer.index_cache.get_attn_backend().get_name() == "MINIMAX_M3_SPARSE_INDEXER"
        )
        assert registered[layer.layer_name] is layer
        assert registered[layer.indexer.index_cache.prefix] is layer.indexer.index_cache
        assert not hasattr(layer.impl, "use_cutlass_decode")
        assert layer.impl.can_return_lse_for_decode and layer.impl.lse_base_on_e
    assert "indexer of decode and prefill serves 2 of 2 sparse layers;" in caplog_vllm.text
    assert "; attend of decode and prefill serves 2 of 2 sparse layers;" in caplog_vllm.text


def test_what_cannot_be_served_is_left_to_vllm_and_said(tmp_path, caplog_vllm):
    model = build(m3_config(tmp_path, step=Step(**DECODE), sparse={"sparse_score_type": "lse"}))
    for layer in sparse_layers(model):
        assert type(layer.impl).__name__ == "MsaSparseImpl"
        assert type(layer.indexer.impl).__name__ == "MiniMaxM3IndexerTritonImpl"
    assert (
        "0 of 2 sparse layers, 2 left to vLLM: block score 'lse' ('max'); attend"
        in caplog_vllm.text
    )


def test_context_parallel_layers_are_left_to_vllm(tmp_path, caplog_vllm):
    from vllm.distributed import parallel_state

    with mock.patch.object(parallel_state, "get_dcp_world_size_and_rank", return_value=(2, 0)):
        model = build(m3_config(tmp_path, step=Step(**DECODE)))
    assert {type(layer.impl).__name__ for layer in sparse_layers(model)} == {
        "MiniMaxM3SparseTritonImpl"
    }
    assert "2 left to vLLM: context parallelism over 2 ranks" in caplog_vllm.text


def test_draft_layers_without_a_selection_buffer_share_one(tmp_path):
    from msa_cpp.vllm.layers import hand_over

    config = m3_config(tmp_path, step=Step(**DECODE))
    model = build(config)
    layers = sparse_layers(model)
    for layer in layers:
        layer.topk_indices_buffer = layer.indexer.impl.topk_indices_buffer = None
    hand_over(model, config)
    buffers = {
        id(b)
        for layer in layers
        for b in (layer.topk_indices_buffer, layer.indexer.impl.topk_indices_buffer)
    }
    assert len(buffers) == 1
    assert layers[0].topk_indices_buffer.shape == (MAX_TOKENS, 1, Step(**DECODE).topk)


def test_layout_negotiation_prefers_lbhnc_and_takes_any(tmp_path):
    config = m3_config(tmp_path, step=Step(**DECODE))
    layer = sparse_layers(build(config))[0]
    backends = [layer.get_attn_backend(), layer.indexer.index_cache.get_attn_backend()]
    supported = get_supported_kv_cache_layouts(backends)
    assert set(supported) == set(KVCacheLayout)
    specs = [o.get_kv_cache_spec(config) for o in (layer, layer.indexer.index_cache)]
    names = [layout.name for layout in supported]
    assert resolve_kv_cache_layout(config, [names], specs) is KVCacheLayout.LBHNC


# --- what it computes ----------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [DECODE, PREFILL, MIXED], ids=["decode", "prefill", "mixed"])
@pytest.mark.parametrize(
    "layout", [layout.name for layout in KVCacheLayout if layout.is_layer_compact]
)
def test_step_equals_the_reference(tmp_path, batch, layout):
    step = Step(**batch, heads=8, kv_heads=2)
    config = m3_config(tmp_path, step=step)
    for layer in sparse_layers(build(config)):
        bind_caches(layer, step, layout=layout)
        output = run_layer(config, layer, step, metadata_of(config, layer, step))
        expect_step(layer, step, output)
        assert output[step.tokens :].isnan().all()
        assert (layer.topk_indices_buffer[step.tokens :] == 2**31 - 1).all()


def test_draft_window_of_four(tmp_path):
    step = Step([4, 4], [131, 1029])
    config = m3_config(tmp_path, step=step)
    layer = sparse_layers(build(config))[0]
    bind_caches(layer, step)
    metadata = metadata_of(config, layer, step, decode_query_len=4)
    assert metadata[layer.layer_name].decode.decode_query_len == 4
    expect_step(layer, step, run_layer(config, layer, step, metadata))


def test_padding_of_a_graph_is_written_as_empty_rows(tmp_path):
    step = Step(**DECODE)
    config = m3_config(tmp_path, step=step)
    layer = sparse_layers(build(config))[0]
    bind_caches(layer, step)
    metadata = metadata_of(config, layer, step, padded_requests=2)
    output = run_layer(config, layer, step, metadata)
    expect_step(layer, step, output)
    assert (output[3:5] == 0).all() and output[5:].isnan().all()


def test_whole_layer_from_hidden_states_on(tmp_path, monkeypatch):
    """vLLM's layer as its model calls it; the CUDA kernel that writes the caches is ours here."""
    step = Step(**MIXED)
    config = m3_config(tmp_path, step=step)
    layer = sparse_layers(build(config))[0]
    bind_caches(layer, step)
    hidden_size = layer.hidden_size
    rng = torch.Generator().manual_seed(0)
    for parameter in layer.parameters():
        parameter.data.normal_(0, 0.1, generator=rng)
    slots = {
        name: torch.tensor([int(table[r, p // PAGE]) * PAGE + p % PAGE for r, p in step.rows()])
        for name, table in (
            (layer.layer_name, step.table),
            (layer.indexer.index_cache.prefix, step.index_table),
        )
    }

    # The names that vLLM's wrapper gives its arguments, in its order.
    def write(
        qkv, q_norm, k_norm, cos_sin, positions, heads, kv_heads, rotary_dim, eps, index_q_norm,
        index_k_norm, index_heads, slot_mapping, index_slot_mapping, kv_cache, index_cache,
        block_size, q_out, index_q_out, kv_cache_dtype, **of_other_caches,
    ):  # fmt: skip
        assert (block_size, rotary_dim, kv_cache_dtype) == (PAGE, 64, "auto")
        msa_cpp.write_cache(
            qkv, positions, cos_sin, q_norm=q_norm, k_norm=k_norm, slot_mapping=slot_mapping,
            kv_cache=kv_cache, q_out=q_out.view(-1, heads, PAGE), index_q_norm=index_q_norm,
            index_k_norm=index_k_norm, index_slot_mapping=index_slot_mapping,
            index_q_out=index_q_out.view(-1, index_heads, PAGE), index_cache=index_cache,
            norm_eps=eps, num_tokens=step.tokens,
        )  # fmt: skip
        step.q = q_out.float().reshape(step.q.shape).numpy()
        step.index_q = index_q_out.float().reshape(step.index_q.shape).numpy()
        for r, position in step.rows():
            page, at = step.table[r, position // PAGE], position % PAGE
            step.keys[r, position] = kv_cache[page, :, at, :PAGE].float().numpy()
            step.values[r, position] = kv_cache[page, :, at, PAGE:].float().numpy()
            index_page = step.index_table[r, position // PAGE]
            step.index_keys[r, position] = index_cache[index_page, at].float().numpy()

    monkeypatch.setattr(
        minimax_m3.nvidia.model.ops, "fused_minimax_m3_qknorm_rope_kv_insert", write
    )
    hidden = torch.randn(step.tokens, hidden_size, generator=rng).to(torch.bfloat16)
    positions = torch.tensor([position for _, position in step.rows()])
    metadata = metadata_of(config, layer, step)
    with set_forward_context(metadata, config, slot_mapping=slots):
        result = layer(positions, hidden)
    expected, _ = attend(step, layer.topk_indices_buffer[: step.tokens].numpy())
    projected = expected.reshape(step.tokens, -1) @ layer.o_proj.weight.detach().double().numpy().T
    assert (
        relative_l2(result.detach().double().numpy(), projected) < 8e-3
    )  # bf16 before and after o_proj


@pytest.mark.parametrize("cache_dtype", ["fp8", "fp8_e5m2"])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.25, 0.5)], ids=["unscaled", "scaled"])
def test_fp8_cache_with_the_layers_scales(tmp_path, cache_dtype, scales):
    step = Step(**MIXED)
    config = m3_config(tmp_path, step=step, cache_dtype=cache_dtype)
    layer = sparse_layers(build(config))[0]
    bind_caches(layer, step, cache_dtype=cache_dtype, scales=scales)
    expect_step(layer, step, run_layer(config, layer, step, metadata_of(config, layer, step)))


def test_fp8_index_cache(tmp_path):
    step = Step(**MIXED)
    config = m3_config(tmp_path, step=step, attention={"indexer_kv_dtype": "fp8"})
    # vLLM's own indexer wants a GPU for this; ours replaces it before anything runs.
    gpu = mock.Mock(
        **{"is_rocm.return_value": False, "is_device_capability_family.return_value": False}
    )
    with mock.patch.object(vllm_indexer, "current_platform", gpu):
        model = build(config)
    layer = sparse_layers(model)[0]
    bind_caches(layer, step)
    assert layer.indexer.index_cache.kv_cache.dtype == torch.float8_e4m3fn
    expect_step(layer, step, run_layer(config, layer, step, metadata_of(config, layer, step)))


def test_lse_is_the_natural_log_of_the_sum(tmp_path):
    step = Step(**MIXED)
    config = m3_config(tmp_path, step=step)
    layer = sparse_layers(build(config))[0]
    bind_caches(layer, step)
    output = run_layer(config, layer, step, metadata := metadata_of(config, layer, step))
    lse = poisoned((step.tokens, step.heads), torch.float32)
    query = torch.from_numpy(step.q).reshape(step.tokens, -1).to(torch.bfloat16)
    again = torch.empty_like(query)
    with set_forward_context(metadata, config):
        layer.impl.forward(layer, query, layer.kv_cache, again, lse_out=lse)
    np.testing.assert_allclose(lse.numpy(), attend(step, select(step))[1], atol=1e-4)
    assert torch.equal(again, output[: step.tokens])


def test_query_in_fp8_and_unknown_arguments_are_taken(tmp_path):
    step = Step(**MIXED)
    config = m3_config(tmp_path, step=step)
    layer = sparse_layers(build(config))[0]
    bind_caches(layer, step)
    metadata = metadata_of(config, layer, step)
    for part in metadata.values():
        part.of_a_later_version = object()
    run_layer(config, layer, step, metadata)  # for the selection
    layer._q_scale_float = 0.5
    fp8 = (torch.from_numpy(step.q).reshape(step.tokens, -1) / 0.5).to(torch.float8_e4m3fn)
    step.q = fp8.float().numpy().reshape(step.q.shape) * 0.5
    query = poisoned(fp8.shape)
    output = poisoned(fp8.shape)
    with set_forward_context(metadata, config):
        layer.impl.forward(
            layer, query, layer.kv_cache, output, query_fp8=fp8, of_a_later_version=1
        )
    expect_step(layer, step, output)


def test_profiling_run_touches_nothing(tmp_path):
    step = Step(**DECODE)
    config = m3_config(tmp_path, step=step)
    layer = sparse_layers(build(config))[0]
    output = run_layer(config, layer, step, None)
    assert output.isnan().all()
    assert (layer.topk_indices_buffer == 2**31 - 1).all()


def test_batches_are_made_once_a_step_and_again_after_a_change(tmp_path):
    step = Step(**DECODE)
    config = m3_config(tmp_path, step=step)
    layer = sparse_layers(build(config))[0]
    bind_caches(layer, step)
    metadata = metadata_of(config, layer, step)
    with mock.patch.object(msa_cpp, "BatchMetadata", wraps=msa_cpp.BatchMetadata) as batches:
        run_layer(config, layer, step, metadata)
        run_layer(config, layer, step, metadata)
        assert batches.call_count == 2  # of the main and of the index metadata
        metadata[layer.layer_name].max_seq_len += 1
        run_layer(config, layer, step, metadata)
        assert batches.call_count == 3


def test_wrong_arguments_are_named(tmp_path):
    step = Step(**DECODE)
    config = m3_config(tmp_path, step=step)
    layer = sparse_layers(build(config))[0]
    bind_caches(layer, step)
    layer.kv_cache = layer.kv_cache[:, :, :64]
    with pytest.raises(msa_cpp.Error, match="kv_cache.*64"):
        run_layer(config, layer, step, metadata_of(config, layer, step))
