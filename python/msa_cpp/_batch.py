# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The batch of one step."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any

from ._arrays import described, view
from ._library import Error

PAGE_SIZE = 128
"""Tokens of a cache page, and of a selectable block."""


@dataclass(slots=True, eq=False)
class BatchMetadata:
    """What one step computes, decode requests first (msa/metadata.h).

    The first ``num_decodes * decode_query_len`` tokens belong to `num_decodes` requests of exactly
    `decode_query_len` query tokens each, the rest to `num_prefills` requests of any lengths. Decode
    token t of request r sits at position ``seq_len - m + t % m``, prefill token i of a request at
    ``context_len + i``; a row sees the keys up to its own position.

    One object may serve any number of calls: its views of the arrays are made once, and what the
    arrays hold may change between calls.
    """

    seq_lens: Any
    """[R] i32: keys in the cache, this step's tokens included; 0 = a padding row."""
    block_table: Any
    """[R, W] i32: logical page -> physical page; entries past a request's keys may hold anything."""
    _: KW_ONLY
    cu_seqlens_q: Any = None
    """[num_prefills + 1] i32, starts at 0; not needed without prefill requests."""
    context_lens: Any = None
    """[num_prefills] i32: seq_len - query_len; not needed without prefill requests."""
    num_decodes: int | None = None
    """R_d; default: the requests that are not prefill requests."""
    num_prefills: int = 0
    """R_p."""
    decode_query_len: int = 1
    """m, 1 to 16."""
    num_actual_tokens: int | None = None
    """T; default: the decode tokens. Required where there are prefill requests."""
    max_query_len: int | None = None
    """Upper bound of any request's query tokens; default: T, or m without prefill requests."""
    max_seq_len: int | None = None
    """Upper bound of any request's keys; default: what the table's columns can hold."""
    _args: tuple[Any, ...] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._check()
        if self.num_decodes is None:
            self.num_decodes = int(self.seq_lens.shape[0]) - self.num_prefills
        if self.num_actual_tokens is None:
            self.num_actual_tokens = self.num_decodes * self.decode_query_len
        if self.max_query_len is None:
            self.max_query_len = max(self.num_actual_tokens, 1) if self.num_prefills else (
                self.decode_query_len)
        if self.max_seq_len is None:
            self.max_seq_len = int(self.block_table.shape[1]) * PAGE_SIZE

    def _check(self) -> None:
        """What the defaults are made of; everything else is checked by the calls."""
        failures = []
        for name, allowed in (("seq_lens", "[R] i32"), ("block_table", "[R, W] i32")):
            dimensions = 1 if name == "seq_lens" else 2
            array = getattr(self, name)
            shape = getattr(array, "shape", None)
            if shape is None:
                failures.append(f"argument '{name}' is {described(array)}; allowed: {allowed}")
            elif len(shape) != dimensions:
                failures.append(f"argument '{name}' has shape {list(shape)}; allowed: {allowed}")
        counts = ("num_decodes", "num_prefills", "decode_query_len", "num_actual_tokens",
                  "max_query_len", "max_seq_len")
        for name in counts:
            value = getattr(self, name)
            required = name in ("num_prefills", "decode_query_len")
            if not isinstance(value, int) and not hasattr(value, "__index__") and (
                    required or value is not None):
                failures.append(f"argument '{name}' is {value!r}; allowed: a whole number"
                                + ("" if required else ", or None"))
        if not failures and self.num_prefills > 0 and self.num_actual_tokens is None:
            failures.append("argument 'num_actual_tokens' is None; allowed: T, since it is known "
                            f"without prefill requests only, and 'num_prefills' is "
                            f"{self.num_prefills}")
        if failures:
            raise Error("\n".join(f"BatchMetadata: {failure}" for failure in failures))

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name != "_args":
            object.__setattr__(self, "_args", None)  # made of the fields

    def __getstate__(self) -> dict[str, Any]:
        # Without the views, which belong to this object's arrays and cannot be copied.
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "_args"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def packed(self) -> tuple[Any, ...]:
        """The fields as the library's functions take them, in order."""
        if self._args is None:
            self._args = (
                _viewed(self.seq_lens),
                _viewed(self.block_table),
                _viewed(self.cu_seqlens_q),
                _viewed(self.context_lens),
                self.num_decodes,
                self.num_prefills,
                self.decode_query_len,
                self.num_actual_tokens,
                self.max_query_len,
                self.max_seq_len,
            )
        return self._args


def _viewed(array: Any) -> Any:
    """A view; what can have none is given to the call as it is, which names the argument."""
    try:
        return None if array is None else view(array)
    except Error:
        return array
