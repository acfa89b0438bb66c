# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""What msa_cpp.flashinfer says of wrong arguments: all by the names that FlashInfer gives them."""

import msa_cpp
import msa_cpp.flashinfer as drop_in
import numpy as np
import pytest

CACHE = np.random.default_rng(0).standard_normal((4, 2, 128, 256)).astype(np.float16)
LENGTHS, TABLE = np.full(2, 200, np.int32), np.array([[1, 2]] * 2, np.int32)
STARTS = np.array([0, 1, 2], np.int32)
PAGED = {"page_table": TABLE, "seqused_k": LENGTHS}
ATTENTION = {
    "q": np.ones((2, 4, 128), np.float16),
    "k": CACHE[..., :128],
    "v": CACHE[..., 128:],
    "q2k_indices": np.zeros((2, 2, 2), np.int32),
    **PAGED,
}
RIGHT = {
    "msa_sparse_attention": {**ATTENTION, "cu_seqlens_q": STARTS},
    "msa_sparse_decode_attention": ATTENTION,
    "msa_proxy_score": {
        "q": np.ones((2, 2, 128), np.float16),
        "k": np.zeros((3, 1, 128, 128), np.uint8),
        "cu_seqlens_q": STARTS,
        **PAGED,
    },
    "msa_topk_select": {"max_score": np.zeros((2, 3, 2), np.float32), "topk": 2},
}
NO_ARRAYS = [
    (call, name, value)
    for call, arguments in RIGHT.items()
    for name, array in arguments.items()
    if name != "topk"
    for value in (None, [1])
]


def read_only(shape):
    array = np.zeros(shape, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("call", RIGHT)
def test_the_arguments_that_are_exchanged_are_right(call):
    getattr(drop_in, call)(**RIGHT[call])


@pytest.mark.parametrize("call, name, value", NO_ARRAYS)
def test_what_is_no_array_is_named(call, name, value):
    with pytest.raises(msa_cpp.Error) as caught:
        getattr(drop_in, call)(**{**RIGHT[call], name: value})
    (line,) = caught.value.failures
    shown = "None" if value is None else "<list>"
    assert line.startswith(f"{call}: argument '{name}' is {shown}; allowed: ")


@pytest.mark.parametrize(
    "call, wrong, text",
    [
        ("msa_sparse_attention", {"seqused_k": LENGTHS.astype(int)}, "'seqused_k' has dtype i64; allowed"),
        ("msa_sparse_attention", {"page_table": TABLE.astype(int)}, "'page_table' has dtype i64; allowed"),
        ("msa_sparse_attention", {"k": CACHE[..., :128].astype(float)}, "'k' has dtype float64; allowed"),
        ("msa_sparse_attention", {"v": CACHE[..., :64]}, "'v' is f16 of shape [4, 2, 128, 64]"),
        ("msa_sparse_attention", {"q_offset": 1.5}, "'q_offset' is <float>; allowed: None, an int"),
        ("msa_sparse_attention", {"q_offset": np.zeros(2)}, "'q_offset' has dtype float64; allowed: i32"),
        ("msa_sparse_attention", {"softmax_scale": "a"}, "'softmax_scale' is 'a'; allowed: a number"),
        ("msa_sparse_attention", {"k_global_scale": "a"}, "'k_global_scale' is 'a'; allowed: a number"),
        (
            "msa_sparse_attention",
            {"return_temperature_lse": True, "lse_temperature_scale": None},
            "'lse_temperature_scale' is None; allowed: a number",
        ),
        (
            "msa_sparse_decode_attention",
            {"q2k_indices": np.zeros((2, 2, 2), np.int64)},
            "'q2k_indices' has dtype i64; allowed: i32",
        ),
        ("msa_sparse_decode_attention", {"seqlen_q": None}, "'seqlen_q' is None; allowed: at least 1"),
        ("msa_proxy_score", {"max_k_tiles": -1}, "'max_k_tiles' is -1; allowed: a whole number"),
        ("msa_proxy_score", {"max_seqlen_q": "1"}, "'max_seqlen_q' is '1'; allowed: a whole number"),
        ("msa_proxy_score", {"q": np.zeros((2, 2, 128))}, "'q' has dtype float64; allowed"),
        ("msa_proxy_score", {"output": np.zeros(2)}, "'output' has shape [2]; allowed: 3 dimensions"),
        ("msa_proxy_score", {"output": np.zeros((2, 2, 2))}, "'output' has dtype float64; allowed: f32"),
        ("msa_proxy_score", {"output": read_only((2, 2, 2))}, "'output' is <numpy.ndarray"),
        (
            "msa_proxy_score",
            {"output": np.zeros((1, 2, 2)), "reduce_heads": True},
            "'output' has dtype float64; allowed: float32",
        ),
        (
            "msa_proxy_score",
            {"output": read_only((1, 2, 2)), "reduce_heads": True},
            "'output' is a read-only array; allowed",
        ),
        (
            "msa_proxy_score",
            {"output": np.zeros((1, 2, 1), np.float32), "reduce_heads": True},
            "'output' has 1 tokens; allowed: at least 2",
        ),
        ("msa_topk_select", {"topk": None}, "'topk' is None; allowed: 1 to 64"),
        ("msa_topk_select", {"num_valid_pages": 1.5}, "'num_valid_pages' is <float>; allowed: an array"),
        (
            "msa_topk_select",
            {"num_valid_pages": np.array([1, 2])},
            "'num_valid_pages' has dtype i64; allowed: i32",
        ),
        ("msa_topk_select", {"force_begin_blocks": -1}, "'force_begin_blocks' is -1; allowed: at least 0"),
        ("msa_topk_select", {"output": np.zeros((2, 2, 2))}, "'output' has dtype float64; allowed: i32"),
    ],
)
def test_what_is_said_of_a_wrong_argument(call, wrong, text):
    with pytest.raises(msa_cpp.Error) as caught:
        getattr(drop_in, call)(**{**RIGHT[call], **wrong})
    assert f"{call}: argument {text}" in str(caught.value)


def test_numbers_of_numpy_are_numbers():
    call = RIGHT["msa_sparse_attention"]
    want = drop_in.msa_sparse_attention(**call, q_offset=199)
    assert np.array_equal(drop_in.msa_sparse_attention(**call, q_offset=np.int64(199)), want)
    scores = RIGHT["msa_topk_select"]["max_score"]
    want = drop_in.msa_topk_select(scores, 2, 2)
    assert np.array_equal(drop_in.msa_topk_select(scores, 2, np.int32(2)), want)


def test_reduced_scores_go_to_a_buffer_of_more_tokens():
    call = RIGHT["msa_proxy_score"]
    want = drop_in.msa_proxy_score(**call, reduce_heads=True)
    buffer = np.full((1, want.shape[1], 5), np.nan, np.float32)
    assert drop_in.msa_proxy_score(**call, reduce_heads=True, output=buffer) is buffer
    assert np.array_equal(buffer[..., :2], want) and np.isnan(buffer[..., 2:]).all()
