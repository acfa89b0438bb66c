# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The vLLM plug-in against what was recorded of vLLM; needs neither vLLM nor torch.

`engines/check_vllm.py` is the same in a real vLLM. Arrays are numpy's: f16, and e4m3 as bytes.
"""

from __future__ import annotations

import copy
import enum
import importlib
import logging
import pathlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "engines"))
from recorded import Record, install  # noqa: E402

from reference import PAGE, Step, attend, relative_l2, select  # noqa: E402

VLLM = Record("vllm")
DECODE = {"query_lens": [1, 1, 1], "seq_lens": [1, 130, 1290]}
MIXED = {"query_lens": [1, 1, 40, 9], "seq_lens": [641, 128, 680, 9]}
E4M3_OF_INTEGER = {0: 0x00, 1: 0x38, 2: 0x40, 3: 0x44}


class Registry:
    """vLLM's model registry: what it was told."""

    def __init__(self, known=("MiniMaxM3SparseForCausalLM", "MiniMaxM3MTP")) -> None:
        self.known = set(known)
        self.named: dict[str, str] = {}

    def get_supported_archs(self):
        return self.known

    def register_model(self, model_arch, model_cls):
        self.named[model_arch] = model_cls


@pytest.fixture
def vllm(monkeypatch):
    """Stand-in modules for vLLM, and what a test wants to see or change of them."""
    state = SimpleNamespace(
        registry=Registry(),
        context=VLLM.make("ForwardContext", attn_metadata=None),
        rocm=False,
        envs=SimpleNamespace(VLLM_BATCH_INVARIANT=False),
    )
    layout = enum.Enum("KVCacheLayout", VLLM.symbol("KVCacheLayout")["names"])
    impl, indexer = VLLM.stub("MiniMaxM3SparseImpl"), VLLM.stub("MiniMaxM3IndexerImpl")
    state.layout = layout
    state.impl = VLLM.stub("MiniMaxM3SparseTritonImpl", impl)
    state.indexer = VLLM.stub("MiniMaxM3IndexerTritonImpl", indexer)
    state.backend = VLLM.stub(
        "MiniMaxM3SparseBackend", get_name=staticmethod(lambda: "MINIMAX_M3_SPARSE")
    )

    class Model:
        def __init__(self, *, vllm_config, prefix=""):
            self.layers = state.layers

        def modules(self):
            return [self, *self.layers]

    modules = {
        "vllm": {"ModelRegistry": state.registry, "envs": state.envs},
        "vllm.forward_context": {"get_forward_context": lambda: state.context},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.platforms": {"current_platform": SimpleNamespace(is_rocm=lambda: state.rocm)},
        "vllm.models.minimax_m3": {
            name: VLLM.stub(name, Model) for name in ("MiniMaxM3SparseForCausalLM", "MiniMaxM3MTP")
        },
        "vllm.models.minimax_m3.common.sparse_attention": {
            "MiniMaxM3SparseBackend": state.backend,
            "MiniMaxM3SparseImpl": impl,
        },
        "vllm.models.minimax_m3.common.indexer": {
            "MiniMaxM3IndexerBackend": VLLM.stub("MiniMaxM3IndexerBackend"),
            "MiniMaxM3IndexerImpl": indexer,
        },
        "vllm.v1.kv_cache_interface": {"KVCacheLayout": layout},
    }
    install(monkeypatch, modules, "msa_cpp.vllm")
    state.plugin = importlib.import_module("msa_cpp.vllm")
    yield state
    # What was imported on top of stand-ins must not meet a real vLLM.
    for name in [n for n in sys.modules if n.startswith("msa_cpp.vllm")]:
        del sys.modules[name]


def layer_of(vllm, step: Step, *, fp8=None, scales=(1.0, 1.0), **changes):
    """A sparse layer as vLLM builds it, its caches filled with the step's keys and values."""
    buffer = np.full((step.tokens + 3, step.kv_heads, step.topk), 2**31 - 1, np.int32)
    cache = VLLM.make(
        "MiniMaxM3IndexerCache",
        prefix="model.layers.3.attn.index_cache",
        backend_cls=None,
        kv_cache=e4m3(step.index_pages()),
    )
    kv_cache = step.kv_pages().astype(np.float16)
    if fp8 is not None:
        kv_cache = fp8(step, scales)
    shape = {
        "num_kv_heads": step.kv_heads,
        "topk_blocks": step.topk,
        "block_size": PAGE,
        "scale": PAGE**-0.5,
    }
    impl = VLLM.make(
        "MiniMaxM3SparseTritonImpl",
        vllm.impl,
        **{
            "num_heads": step.heads,
            "head_size": PAGE,
            "kv_cache_dtype": "fp8" if fp8 else "auto",
            **shape,
            **changes,
        },
    )
    indexer = VLLM.make(
        "MiniMaxM3IndexerTritonImpl",
        vllm.indexer,
        num_index_heads=step.kv_heads,
        index_head_dim=PAGE,
        init_blocks=0,
        local_blocks=1,
        score_type="max",
        indexer_kv_dtype="fp8",
        index_cache=cache,
        topk_indices_buffer=buffer,
        **shape,
    )
    layer = VLLM.make(
        "MiniMaxM3SparseAttention",
        layer_name="model.layers.3.attn",
        attn_backend=vllm.backend,
        impl=impl,
        indexer=SimpleNamespace(impl=indexer),
        topk_indices_buffer=buffer,
        kv_cache=kv_cache,
    )
    layer._k_scale, layer._v_scale = (np.float32(s).reshape(()) for s in scales)
    layer._k_scale_float, layer._v_scale_float = scales
    return layer


def e4m3(integers: np.ndarray) -> np.ndarray:
    """Small integers, and NaN, as the bytes of e4m3."""
    bytes_ = np.full(integers.shape, 0x7F, np.uint8)
    for magnitude, code in E4M3_OF_INTEGER.items():
        bytes_[integers == magnitude] = code
        bytes_[integers == -magnitude] = code | (0x80 if magnitude else 0)
    return bytes_


def integer_kv_bytes(step: Step, scales) -> np.ndarray:
    """Keys and values that e4m3 holds exactly, so that no rounding stands between the two sides."""
    rng = np.random.default_rng(1)
    for name, scale in (("keys", scales[0]), ("values", scales[1])):
        stored = rng.integers(-3, 4, getattr(step, name).shape).astype(np.float32)
        setattr(step, name, stored * scale)
    pages = step.kv_pages()
    return e4m3(
        np.concatenate([pages[..., :PAGE] / scales[0], pages[..., PAGE:] / scales[1]], axis=-1)
    )


CONFIG = SimpleNamespace(
    device_config=SimpleNamespace(device_type="cpu"),
    speculative_config=None,
    scheduler_config=SimpleNamespace(max_num_batched_tokens=1024),
)


def handed_over(vllm, layer, config=CONFIG, architecture="MiniMaxM3SparseForCausalLM"):
    """Builds our model class around a layer, as vLLM does."""
    vllm.layers = [layer]
    models = importlib.import_module("msa_cpp.vllm.models")
    return getattr(models, architecture)(vllm_config=config, prefix="model")


def metadata_of(step: Step, table, kind: str):
    """Metadata of a decode-first step with one query token for each decode request."""
    decodes = next((i for i, n in enumerate(step.query_lens) if n != 1), len(step.query_lens))
    seq_lens = np.array(step.seq_lens, np.int32)
    chunks = step.query_lens[decodes:]
    decode = VLLM.make(
        f"MiniMaxM3{kind}DecodeMetadata",
        seq_lens=seq_lens[:decodes],
        block_table=table[:decodes],
        decode_query_len=1,
    )
    prefill = VLLM.make(
        f"MiniMaxM3{kind}PrefillMetadata",
        seq_lens=seq_lens[decodes:],
        block_table=table[decodes:],
        cu_seqlens_q=np.cumsum([0, *chunks]).astype(np.int32),
        context_lens=seq_lens[decodes:] - np.array(chunks, np.int32),
        max_query_len=max(step.query_lens),
        max_seq_len=max(step.seq_lens),
    )
    return VLLM.make(
        f"MiniMaxM3{kind}Metadata",
        num_decodes=decodes,
        num_decode_tokens=decodes,
        num_prefills=len(chunks),
        num_actual_tokens=step.tokens,
        max_seq_len=max(step.seq_lens),
        decode=decode,
        prefill=prefill if chunks else None,
    )


def run_layer(vllm, layer, step: Step):
    """What vLLM's layer does with q and index_q, by the calls that were recorded."""
    vllm.context.attn_metadata = {
        layer.layer_name: metadata_of(step, step.table, "Sparse"),
        layer.indexer.impl.index_cache.prefix: metadata_of(step, step.index_table, "Indexer"),
    }
    rows = step.tokens + 3
    query = np.full((rows, step.heads * PAGE), np.nan, np.float16)
    query[: step.tokens] = step.q.reshape(step.tokens, -1)
    index_query = np.full((rows, step.kv_heads * PAGE), np.nan, np.float16)
    index_query[: step.tokens] = step.index_q.reshape(step.tokens, -1)
    output = np.full_like(query, np.nan)
    VLLM.call("self.indexer", layer.indexer.impl.forward, index_query)
    assert (
        VLLM.call("self.impl.forward", layer.impl.forward, layer, query, layer.kv_cache, output)
        is output
    )
    return output


def expect_step(layer, step: Step, output):
    np.testing.assert_array_equal(layer.topk_indices_buffer[: step.tokens], select(step))
    expected, _ = attend(step, select(step))
    assert (
        relative_l2(output[: step.tokens].astype(np.float64).reshape(expected.shape), expected)
        < 4e-3
    )
    assert np.isnan(output[step.tokens :]).all()
    assert (layer.topk_indices_buffer[step.tokens :] == 2**31 - 1).all()


# --- registering ---------------------------------------------------------------------------------


def test_record_is_of_the_released_version():
    assert VLLM.version == "0.33.0"
    assert "vllm.general_plugins" in VLLM.texts


def test_register_names_our_classes_as_vllm_takes_them(vllm):
    assert VLLM.parameters("_ModelRegistry", "register_model") == ["model_arch", "model_cls"]
    assert set(vllm.plugin.ARCHITECTURES) <= set(VLLM.texts)
    vllm.plugin.register()
    vllm.plugin.register()  # vLLM may, in another process of the same model
    assert vllm.registry.named == {a: f"msa_cpp.vllm.models:{a}" for a in vllm.plugin.ARCHITECTURES}


@pytest.mark.parametrize("value", ["0", "off", "False", " no "])
def test_msa_vllm_switches_it_off(vllm, monkeypatch, value):
    monkeypatch.setenv("MSA_VLLM", value)
    vllm.plugin.register()
    assert vllm.registry.named == {}


def test_vllm_without_the_model_is_left_alone(vllm, caplog):
    vllm.registry.known.clear()
    with caplog.at_level(logging.INFO):
        vllm.plugin.register()
    assert vllm.registry.named == {}
    assert "this vLLM has no MiniMaxM3SparseForCausalLM" in caplog.text


def test_register_never_raises(vllm, monkeypatch, caplog):
    monkeypatch.delattr(sys.modules["vllm"], "ModelRegistry")
    vllm.plugin.register()
    assert "vLLM serves all layers" in caplog.text


def test_model_classes_are_built_as_vllms_are(vllm):
    for architecture in vllm.plugin.ARCHITECTURES:
        assert VLLM.parameters(architecture, "__init__") == ["vllm_config", "prefix"]
        model = handed_over(vllm, layer_of(vllm, Step(**DECODE)), architecture=architecture)
        assert type(model).__name__ == architecture


# --- handing over --------------------------------------------------------------------------------


def test_layer_is_handed_over_and_its_index_cache_stays(vllm, caplog):
    layer = layer_of(vllm, Step(**DECODE))
    cache, layer.impl.use_cutlass_decode = (
        layer.indexer.impl.index_cache,
        True,
    )  # as SM100's impl has it
    with caplog.at_level(logging.INFO):
        handed_over(vllm, layer)
    assert layer.attn_backend.__name__ == "MsaSparseBackend"
    assert layer.attn_backend.get_name() == "MINIMAX_M3_SPARSE"
    assert layer.attn_backend.get_impl_cls() is type(layer.impl)
    assert type(layer.impl).__name__ == "MsaSparseImpl"
    assert not hasattr(layer.impl, "use_cutlass_decode")
    assert layer.indexer.impl.index_cache is cache
    assert cache.backend_cls.__name__ == "MsaIndexerBackend"
    (line,) = [r.getMessage() for r in caplog.records if "sparse layers" in r.getMessage()]
    assert "(cpu): indexer of decode and prefill serves 1 of 1 sparse layers;" in line
    assert "; attend of decode and prefill serves 1 of 1 sparse layers;" in line
    assert "left" not in line


def test_layer_of_a_later_vllm_that_calls_flashinfer_is_handed_over(vllm):
    """Another impl, attributes of its own, a forward that is called without `query_fp8`."""
    step = Step(**MIXED)
    layer = layer_of(vllm, step)
    later = type("MiniMaxM3SparseFlashInferImpl", (vllm.impl.__mro__[1],), {})
    theirs, layer.impl = layer.impl, object.__new__(later)
    vars(layer.impl).update(vars(theirs), plan_of_a_later_version=object())
    handed_over(vllm, layer)
    assert type(layer.impl).__name__ == "MsaSparseImpl"
    run_layer(vllm, layer, step)
    query = step.q.reshape(step.tokens, -1).astype(np.float16)
    output = np.full((step.tokens + 3, step.heads * PAGE), np.nan, np.float16)
    layer.impl.forward(layer, query, layer.kv_cache, output[: step.tokens])
    expect_step(layer, step, output)


@pytest.mark.parametrize("gone", ["LBHNC", "BHLNC"])
def test_layouts_that_this_vllm_does_not_have_are_not_named(vllm, monkeypatch, gone):
    names = [name for name in vllm.layout.__members__ if name != gone]
    interface = sys.modules["vllm.v1.kv_cache_interface"]
    monkeypatch.setattr(interface, "KVCacheLayout", enum.Enum("KVCacheLayout", names))
    backend = importlib.import_module("msa_cpp.vllm.attention").MsaSparseBackend
    assert {layout.name for layout in backend.supported_kv_cache_layouts()} == set(names)


@pytest.mark.parametrize(
    "change, why",
    [
        ({"head_size": 64}, "head size 64 (128)"),
        ({"block_size": 64}, "block size 64 (128)"),
        ({"topk_blocks": 65}, "topk 65 (1 to 64)"),
        ({"num_heads": 17}, "17 query heads over 1 KV heads (1 to 16 may share one)"),
        ({"kv_cache_dtype": "nvfp4"}, "KV cache type 'nvfp4' (bf16, f16, e4m3 or e5m2)"),
    ],
)
def test_layer_that_attend_cannot_serve_is_left_to_vllm(vllm, caplog, change, why):
    layer = layer_of(vllm, Step(**DECODE), **change)
    with caplog.at_level(logging.INFO):
        handed_over(vllm, layer)
    assert type(layer.impl) is vllm.impl and layer.attn_backend is vllm.backend
    assert type(layer.indexer.impl).__name__ == "MsaIndexerImpl"
    assert (
        f"attend of decode and prefill serves 0 of 1 sparse layers, 1 left to vLLM: {why};"
        in caplog.text
    )


@pytest.mark.parametrize(
    "change, why",
    [
        ({"score_type": "lse"}, "block score 'lse' ('max')"),
        ({"num_index_heads": 2}, "2 index heads for 1 KV heads (one each)"),
        ({"indexer_kv_dtype": "nvfp4"}, "index cache type 'nvfp4' (bf16 or e4m3)"),
        ({"indexer_kv_dtype": "fp8_e5m2"}, "index cache type 'fp8_e5m2' (bf16 or e4m3)"),
    ],
)
def test_indexer_that_cannot_be_served_is_left_to_vllm(vllm, caplog, change, why):
    layer = layer_of(vllm, Step(**DECODE))
    vars(layer.indexer.impl).update(change)
    with caplog.at_level(logging.INFO):
        handed_over(vllm, layer)
    assert type(layer.impl).__name__ == "MsaSparseImpl"
    assert type(layer.indexer.impl) is vllm.indexer
    assert (
        f"indexer of decode and prefill serves 0 of 1 sparse layers, 1 left to vLLM: {why};"
        in caplog.text
    )


@pytest.mark.parametrize(
    "speculative, rocm, ranks, why",
    [
        (SimpleNamespace(num_speculative_tokens=16), False, 1, "16 draft tokens (up to 15)"),
        (None, True, 1, "ROCm"),
        (None, False, 2, "context parallelism over 2 ranks"),
    ],
)
def test_configuration_that_cannot_be_served_is_left_to_vllm(
    vllm, caplog, speculative, rocm, ranks, why
):
    layer = layer_of(vllm, Step(**DECODE), dcp_world_size=ranks)
    vllm.rocm = rocm
    config = SimpleNamespace(**{**vars(CONFIG), "speculative_config": speculative})
    with caplog.at_level(logging.INFO):
        handed_over(vllm, layer, config)
    assert type(layer.impl) is vllm.impl and type(layer.indexer.impl) is vllm.indexer
    assert caplog.text.count(f"1 left to vLLM: {why}") == 2


def test_device_without_a_backend_is_left_to_vllm(vllm, caplog, monkeypatch):
    off = [{"name": "sm90", "reasons": ["no CUDA device"]}, {"name": "cpu", "reasons": []}]
    monkeypatch.setattr("msa_cpp.backends", lambda: off)
    layer = layer_of(vllm, Step(**DECODE))
    config = SimpleNamespace(
        **{**vars(CONFIG), "device_config": SimpleNamespace(device_type="cuda")}
    )
    with caplog.at_level(logging.INFO):
        handed_over(vllm, layer, config)
    assert type(layer.impl) is vllm.impl
    assert (
        "left to vLLM: no backend for device type 'cuda' (sm90 is off: no CUDA device)"
        in caplog.text
    )


def test_kernels_that_vllm_has_for_the_device_come_before_portable_ones(vllm, caplog, monkeypatch):
    portable = [{"name": "portable", "reasons": []}, {"name": "cpu", "reasons": []}]
    monkeypatch.setattr("msa_cpp.backends", lambda: portable)
    layer = layer_of(vllm, Step(**DECODE))
    layer.impl = VLLM.make(
        "MiniMaxM3SparseImpl", type("MiniMaxM3SparseMSAImpl", (vllm.impl,), {}), **vars(layer.impl)
    )
    config = SimpleNamespace(
        **{**vars(CONFIG), "device_config": SimpleNamespace(device_type="cuda")}
    )
    with caplog.at_level(logging.INFO):
        handed_over(vllm, layer, config)
    assert type(layer.impl).__name__ == "MiniMaxM3SparseMSAImpl"
    assert type(layer.indexer.impl).__name__ == "MsaIndexerImpl"
    assert "MiniMaxM3SparseMSAImpl is made for this device" in caplog.text


@pytest.mark.parametrize(
    "side, gone",
    [("impl", "topk_blocks"), ("impl", "scale"), ("layer", "attn_backend"), ("indexer", "init_blocks"),
     ("cache", "prefix")],
)
def test_names_that_this_vllm_does_not_have_leave_the_layer_to_it(vllm, caplog, side, gone):
    layer = layer_of(vllm, Step(**DECODE))
    indexer = layer.indexer.impl
    owner = {"layer": layer, "impl": layer.impl, "indexer": indexer, "cache": indexer.index_cache}[side]
    theirs = layer.impl, indexer
    delattr(owner, gone)
    with caplog.at_level(logging.INFO):
        handed_over(vllm, layer)
    attend_is_ours = side in ("indexer", "cache")
    assert (layer.impl is theirs[0]) != attend_is_ours
    assert (layer.indexer.impl is theirs[1]) == attend_is_ours
    (line,) = [r.getMessage() for r in caplog.records if "sparse layers" in r.getMessage()]
    assert "1 left to vLLM: not the vLLM that msa.cpp knows (AttributeError: " in line
    assert f"'{gone}')" in line


@pytest.mark.parametrize("broken", ["msa_cpp.backends", "msa_cpp.vllm.layers._sparse_layers"])
def test_the_model_is_built_whatever_is_wrong_with_us(vllm, caplog, monkeypatch, broken):
    def fail(*args):
        raise RuntimeError("nothing works")

    importlib.import_module("msa_cpp.vllm.layers")
    monkeypatch.setattr(broken, fail)
    layer = layer_of(vllm, Step(**DECODE))
    theirs = layer.impl
    assert handed_over(vllm, layer).layers == [layer]
    assert layer.impl is theirs and "nothing works" in caplog.text


def test_the_model_is_built_by_a_vllm_whose_modules_are_elsewhere(vllm, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm.models.minimax_m3.common.sparse_attention", None)
    layer = layer_of(vllm, Step(**DECODE))
    handed_over(vllm, layer)
    assert type(layer.impl) is vllm.impl
    assert "msa.cpp could not take over the sparse layers" in caplog.text


def test_layouts_are_those_of_this_vllm_with_lbhnc_first(vllm):
    backend = importlib.import_module("msa_cpp.vllm.attention").MsaSparseBackend
    layouts = backend.supported_kv_cache_layouts()
    assert layouts[0].name == "LBHNC" and set(layouts) == set(vllm.layout)


def test_lse_is_declared_for_context_parallel_use(vllm):
    impl = importlib.import_module("msa_cpp.vllm.attention").MsaSparseImpl
    known = VLLM.symbol("AttentionImplBase")["names"]
    assert {"can_return_lse_for_decode", "lse_base_on_e"} <= set(known)
    assert impl.can_return_lse_for_decode and impl.lse_base_on_e


# --- running -------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [DECODE, MIXED], ids=["decode", "mixed"])
def test_step_equals_the_reference(vllm, batch):
    step = Step(**batch, heads=8, kv_heads=2)
    layer = layer_of(vllm, step)
    handed_over(vllm, layer)
    expect_step(layer, step, run_layer(vllm, layer, step))


def test_arrays_that_are_exchanged_in_a_step_are_read_anew(vllm):
    """Between the steps of drafting an engine may put others into the metadata that it has."""
    from msa_cpp import engines

    step = Step(**MIXED)
    metadata = metadata_of(step, step.table, "Sparse")
    decode, prefill = engines.phases(metadata)
    assert engines.phases(metadata)[0] is decode
    metadata.decode.seq_lens = metadata.decode.seq_lens + 1
    assert engines.phases(metadata)[0].batch.seq_lens is metadata.decode.seq_lens
    metadata.prefill.context_lens = metadata.prefill.context_lens.copy()
    assert engines.phases(metadata)[1].batch.context_lens is metadata.prefill.context_lens
    assert prefill.batch.context_lens is not metadata.prefill.context_lens


def test_metadata_of_a_step_may_be_copied(vllm):
    step = Step(**DECODE, heads=8, kv_heads=2)
    layer = layer_of(vllm, step)
    handed_over(vllm, layer)
    expect_step(layer, step, run_layer(vllm, layer, step))
    vllm.context.attn_metadata = copy.deepcopy(vllm.context.attn_metadata)
    query = step.q.reshape(step.tokens, -1).astype(np.float16)
    output = np.full((step.tokens + 3, step.heads * PAGE), np.nan, np.float16)
    layer.impl.forward(layer, query, layer.kv_cache, output[: step.tokens])
    expect_step(layer, step, output)


def test_fp8_cache_as_bytes_with_the_layers_scales(vllm):
    step = Step(**MIXED)
    layer = layer_of(vllm, step, fp8=integer_kv_bytes, scales=(0.25, 0.5))
    handed_over(vllm, layer)
    expect_step(layer, step, run_layer(vllm, layer, step))


def test_profiling_run_touches_nothing(vllm):
    step = Step(**DECODE)
    layer = layer_of(vllm, step)
    handed_over(vllm, layer)
    output = np.full((3, step.heads * PAGE), np.nan, np.float16)
    VLLM.call("self.indexer", layer.indexer.impl.forward, output)
    VLLM.call("self.impl.forward", layer.impl.forward, layer, output, layer.kv_cache, output)
    assert np.isnan(output).all()
    assert (layer.topk_indices_buffer == 2**31 - 1).all()


def test_layer_that_the_step_does_not_know_is_named(vllm):
    step = Step(**DECODE)
    layer = layer_of(vllm, step)
    handed_over(vllm, layer)
    vllm.context.attn_metadata = {}
    with pytest.raises(KeyError, match="model.layers.3.attn"):
        layer.impl.forward(layer, None, layer.kv_cache, None)
