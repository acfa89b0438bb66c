# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The SGLang plug-in against what was recorded of SGLang; needs no SGLang, and torch for most.

`engines/check_sglang.py` is the same in a real SGLang.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import logging
import pathlib
import sys
from types import SimpleNamespace

import msa_cpp
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "engines"))
from recorded import Record, install  # noqa: E402

from reference import PAGE, Step, attend, relative_l2, select  # noqa: E402

SGLANG = Record("sglang")
FUNCTIONS = ("minimax_sparse_prefill", "minimax_sparse_decode")


def plugin_source(name: str) -> ast.Module:
    return ast.parse((pathlib.Path(msa_cpp.__file__).parent / "sglang" / name).read_text())


# --- without torch -------------------------------------------------------------------------------


def test_record_is_of_the_released_version():
    assert SGLANG.version == "0.5.23"
    assert "sglang.srt.plugins" in SGLANG.texts


def test_arguments_that_are_read_are_sglangs():
    known = {name for function in FUNCTIONS for name in SGLANG.parameters(function)}
    read = {
        node.attr
        for file in ("functions.py", "pages.py")
        for node in ast.walk(plugin_source(file))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "call"
    }
    assert "k_cache" in read and read <= known


def test_names_that_are_asked_for_are_those_that_are_read():
    """What serves a call must not meet a call without a name that it reads."""
    source = plugin_source("functions.py")
    listed = {
        node.targets[0].id: node.value
        for node in ast.walk(source)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    common = set(ast.literal_eval(listed["_READ"]))
    optional = set(ast.literal_eval(listed["OPTIONAL"].args[0]))
    asked = {
        key.value: common | {e.value for e in value.elts if isinstance(e, ast.Constant)}
        for key, value in zip(listed["READ"].keys, listed["READ"].values)
    }

    def read_by(file, *functions):
        return {
            node.attr
            for function in ast.walk(plugin_source(file))
            if isinstance(function, ast.FunctionDef) and function.name in functions
            for node in ast.walk(function)
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "call"
        }

    for kind in ("prefill", "decode"):
        read = read_by("functions.py", "refusals", "_selection", "_attend", kind)
        read |= read_by("pages.py", "of", f"{kind}_batch")
        assert read - optional == asked[kind]
        assert asked[kind] <= set(SGLANG.parameters(f"minimax_sparse_{kind}"))


def test_hooks_are_put_where_sglang_has_something():
    plugin = importlib.import_module("msa_cpp.sglang")
    for name in FUNCTIONS:
        assert f"{plugin.FUNCTIONS}.{name}" in SGLANG.symbols
    assert set(plugin.STEP_METHODS) <= set(SGLANG.symbols[plugin.BACKEND]["methods"])
    register = SGLANG.symbols["sglang.srt.plugins.hook_registry.HookRegistry"]["methods"][
        "register"
    ]
    assert register == ["target", "hook", "hook_type=", "*", "source="]
    assert {"REPLACE", "AFTER"} <= set(SGLANG.symbol("HookType")["names"])


def test_register_never_raises(monkeypatch, caplog):
    plugin = importlib.import_module("msa_cpp.sglang")
    monkeypatch.setitem(sys.modules, "sglang", None)  # none to register with
    monkeypatch.delitem(sys.modules, "msa_cpp.sglang.functions", raising=False)
    plugin.register()
    assert "SGLang serves all layers" in caplog.text


@pytest.mark.parametrize("value", ["0", "off"])
def test_msa_sglang_switches_it_off(monkeypatch, caplog, value):
    monkeypatch.setenv("MSA_SGLANG", value)
    with caplog.at_level(logging.INFO):
        importlib.import_module("msa_cpp.sglang").register()
    assert [r.getMessage() for r in caplog.records] == ["msa.cpp is switched off (MSA_SGLANG=0)"]


# --- with torch ----------------------------------------------------------------------------------


class Registry:
    """SGLang's hook registry: what it was told."""

    def __init__(self) -> None:
        self.hooks: dict[str, tuple] = {}

    def register(self, target, hook, hook_type, *, source=None):
        assert target not in self.hooks, f"{target} is hooked twice"
        self.hooks[target] = (hook, hook_type)


def original(name: str):
    """A function that looks like SGLang's and says that it was called."""

    def function(*args, **kwargs):
        return f"SGLang's {name}"

    function.__name__ = name
    function.__signature__ = inspect.Signature(
        [
            inspect.Parameter(
                p.rstrip("="),
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=None if p.endswith("=") else inspect.Parameter.empty,
            )
            for p in SGLANG.symbol(name)["parameters"]
        ]
    )
    return function


@pytest.fixture
def sglang(monkeypatch):
    """Stand-in modules for SGLang with the plug-in registered in them."""
    pytest.importorskip("torch")
    state = SimpleNamespace(registry=Registry())
    hook_type = enum.Enum("HookType", SGLANG.symbol("HookType")["names"])
    paths = importlib.import_module("msa_cpp.sglang")
    module, backend = paths.BACKEND.rsplit(".", 1)
    methods = {name: lambda self, batch: None for name in paths.STEP_METHODS}
    modules = {
        "sglang.srt.plugins.hook_registry": {"HookRegistry": state.registry, "HookType": hook_type},
        paths.FUNCTIONS: {name: original(name) for name in FUNCTIONS},
        module: {backend: SGLANG.stub(backend, **methods)},
    }
    install(monkeypatch, modules, "msa_cpp.sglang")
    state.plugin = importlib.import_module("msa_cpp.sglang")
    state.plugin.register()
    state.plugin.register()  # changes nothing
    state.functions = importlib.import_module("msa_cpp.sglang.functions")
    yield state
    for name in [n for n in sys.modules if n.startswith("msa_cpp.sglang")]:
        del sys.modules[name]


def call(sglang, name: str, values: dict):
    """Calls the hook with the arguments in the places in which SGLang's backend gives them."""
    hook, _ = sglang.registry.hooks[f"{sglang.plugin.FUNCTIONS}.{name}"]
    (made,) = SGLANG.calls[name]
    positional = SGLANG.parameters(name)[: made["positional"]]
    left = set(values) - set(positional) - set(made["keywords"])
    assert not left, f"the backend gives {name} no {', '.join(sorted(left))}"
    keywords = {k: values.get(k) for k in made["keywords"]}
    return hook(*(values.get(n) for n in positional), **keywords)


def values_of(step: Step) -> dict:
    """Arguments of both functions for a step, in SGLang's pools."""
    import torch

    packed = torch.from_numpy(step.kv_pages()).transpose(1, 2).flatten(0, 1).to(torch.bfloat16)
    index_k = torch.from_numpy(step.index_pages_of(step.table)).flatten(0, 1)[:, None]
    slots = step.table[:, :, None] * PAGE + np.arange(PAGE, dtype=np.int32)
    seq_lens = torch.tensor(step.seq_lens)
    return {
        "q": torch.from_numpy(step.q).to(torch.bfloat16),
        "k_cache": packed[..., :PAGE],
        "v_cache": packed[..., PAGE:],
        "idx_q": torch.from_numpy(step.index_q).to(torch.bfloat16),
        "idx_k_cache": index_k.to(torch.bfloat16),
        "req_to_token": torch.from_numpy(slots.reshape(len(step.seq_lens), -1)),
        "slot_ids": torch.arange(len(step.seq_lens)),
        "seq_lens": seq_lens,
        "block_size_k": PAGE,
        "page_size": PAGE,
        "topk": step.topk,
        "init_blocks": 0,
        "local_blocks": 1,
        "score_type": "max",
        "disable_index_value": True,
    }


def prefill_values(step: Step) -> dict:
    import torch

    lens = torch.tensor(step.query_lens)
    return {
        **values_of(step),
        "cu_seqlens": torch.tensor([0, *np.cumsum(step.query_lens)], dtype=torch.int32),
        "prefix_lens": torch.tensor(step.seq_lens) - lens,
        "max_seqlen_q": max(step.query_lens),
        "max_seqlen_k": max(step.seq_lens),
        "return_topk_idx": True,
    }


def expect_step(step: Step, out) -> None:
    expected, _ = attend(step, select(step))
    assert relative_l2(out.float().numpy(), expected) < 4e-3


def test_decode_equals_the_reference(sglang):
    import torch

    step = Step([1, 1, 1], [1, 130, 1290], heads=8, kv_heads=2)
    selection = torch.full((2, 3, step.topk), 7, dtype=torch.int32)
    values = {**values_of(step), "max_seqlen": max(step.seq_lens), "topk_out": selection}
    index_out, out = call(sglang, "minimax_sparse_decode", values)
    assert index_out is None
    expect_step(step, out)
    np.testing.assert_array_equal(selection.transpose(0, 1).numpy(), select(step))


def test_prefill_equals_the_reference(sglang):
    step = Step([70, 3, 129], [700, 3, 1029], heads=8, kv_heads=2)
    index_out, out, selection = call(sglang, "minimax_sparse_prefill", prefill_values(step))
    assert index_out is None
    expect_step(step, out)
    np.testing.assert_array_equal(selection.transpose(0, 1).numpy(), select(step))


def test_block_table_is_shared_until_the_next_pass(sglang):
    step = Step([1, 1], [300, 5])
    values = {**values_of(step), "max_seqlen": 300}
    batches = sglang.functions.step_batches
    seen = []
    for _ in range(2):
        seen.append(batches.of(SimpleNamespace(**values), lambda call: object()))
    hook, kind = sglang.registry.hooks[f"{sglang.plugin.BACKEND}.{sglang.plugin.STEP_METHODS[0]}"]
    assert kind.name == "AFTER"
    assert hook(None, "self", "forward_batch") is None  # changes no result
    seen.append(batches.of(SimpleNamespace(**values), lambda call: object()))
    assert seen[0] is seen[1] and seen[1] is not seen[2]


def test_without_a_place_for_its_hooks_nothing_is_shared(sglang):
    batches = type(sglang.functions.step_batches)()
    call_ = SimpleNamespace(req_to_token=1, slot_ids=2, seq_lens=3)
    assert batches.of(call_, lambda c: object()) is not batches.of(call_, lambda c: object())


def test_calls_that_cannot_be_served_go_on_as_they_came(sglang, caplog):
    step = Step([1, 1], [300, 5])
    values = {**values_of(step), "max_seqlen": 300, "score_type": "lse", "page_size": 1}
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            answer = call(sglang, "minimax_sparse_decode", values)
            assert answer == "SGLang's minimax_sparse_decode"
    (line,) = [r.getMessage() for r in caplog.records]
    assert line == (
        "minimax_sparse_decode is left to SGLang: page size 1 (128: --page-size 128); "
        "block score 'lse' ('max')"
    )


def test_a_call_without_a_name_that_is_read_goes_on_as_it_came(sglang, caplog):
    """Of an SGLang whose functions name their arguments otherwise, or have fewer."""
    old = original("minimax_sparse_decode")
    kept = [p for p in old.__signature__.parameters.values() if p.name not in ("page_size", "topk")]
    old.__signature__ = inspect.Signature(kept)
    hook = sglang.functions.SparseFunction(
        old, sglang.functions.decode, sglang.functions.READ["decode"]
    )
    with caplog.at_level(logging.INFO):
        assert hook(*[None] * 16) == hook(*[None] * 16) == "SGLang's minimax_sparse_decode"
    (line,) = [r.getMessage() for r in caplog.records]
    assert line == (
        "minimax_sparse_decode is left to SGLang: its call has no page_size, topk: not the SGLang that "
        "msa.cpp knows"
    )


def test_fmha_sm100_comes_before_portable_kernels(sglang, monkeypatch):
    step = Step([1, 1], [300, 5])
    portable = [{"name": "portable", "reasons": []}]
    monkeypatch.setattr(msa_cpp, "backends", lambda: portable)
    cuda = SimpleNamespace(**vars(sglang.functions)["OPTIONAL"])
    vars(cuda).update(values_of(step), idx_sink=None, use_msa=True)
    cuda.q = SimpleNamespace(shape=cuda.q.shape, device=SimpleNamespace(type="cuda"))
    why = sglang.functions.refusals(cuda)
    assert any("fmha_sm100 is made for this device" in reason for reason in why)
