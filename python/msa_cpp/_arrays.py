# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Arrays of any framework as views, and new arrays of a caller's framework.

Nothing here copies an element: a view has the array's own memory, shape and strides.
"""

from __future__ import annotations

import sys
from typing import Any

from ._library import Error, lib

# What ml_dtypes calls the types that numpy's DLPack refuses.
_ML_DTYPES = {"bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


def view(array: Any, dtype: str | None = None) -> Any:
    """The memory of `array` as a tensor of element type `dtype`, strides kept, nothing copied.

    Names what a framework's DLPack refuses or hides: ``view(uint16_array, "bf16")``,
    ``view(uint8_array, "e4m3")``. A view may be passed wherever a tensor may, and costs less than
    an array does; it keeps the array alive. With ``dtype=None`` the type stays.

    Args:
        array: anything with ``__dlpack__``, or a numpy array (read-only ones and those of
            ml_dtypes too).
        dtype: "bf16", "f16", "f32", "e4m3", "e5m2", "i32", "i64", "u8" or an engine's alias such
            as "fp8"; of the array's element size.

    Raises:
        Error: unknown name, or a type of another size.
    """
    return lib.view(_importable(array), dtype)


def _is_numpy(array: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, numpy.ndarray)


def _writable_alias(array: Any) -> Any:
    """The same memory as an array that numpy exports: its DLPack has no word for read-only."""
    import ctypes

    import numpy

    if array.size == 0:
        return numpy.empty(array.shape, array.dtype)
    low, high = numpy.lib.array_utils.byte_bounds(array) if hasattr(numpy.lib, "array_utils") else (
        numpy.byte_bounds(array))
    memory = (ctypes.c_char * (high - low)).from_address(low)
    memory.owner = array  # whoever holds the alias holds the array
    offset = array.__array_interface__["data"][0] - low
    return numpy.ndarray(array.shape, array.dtype, memory, offset, array.strides)


def _importable(array: Any) -> Any:
    """`array` in a form that tvm-ffi can import; itself where that is so already."""
    if not _is_numpy(array):
        return array
    name = _ML_DTYPES.get(array.dtype.name)
    raw = array if name is None else array.view(f"u{array.dtype.itemsize}")
    if not raw.flags.writeable:
        raw = _writable_alias(raw)
    return raw if name is None else lib.view(raw, name)


def retry(
    function: Any, args: tuple[Any, ...], outputs: tuple[int, ...], error: Exception
) -> Any:
    """``function(*args)`` after `error`; where an argument cannot be imported as it is, in another
    form.

    Arguments are imported before anything runs, so that the second try is the first run.
    `outputs` are the positions of what the function writes.
    """
    if isinstance(error, Error):
        raise error
    for position in outputs:
        if _is_numpy(args[position]) and not args[position].flags.writeable:
            raise Error(
                f"an output is a read-only array of shape {args[position].shape}; "
                "allowed: arrays that may be written"
            ) from None
    forms = tuple(_importable(arg) for arg in args)
    if all(form is arg for form, arg in zip(forms, args)):
        raise error
    return function(*forms)


def call(function: Any, args: tuple[Any, ...], outputs: tuple[int, ...] = ()) -> Any:
    """``function(*args)``, by `retry` where that does not go as it is."""
    try:
        return function(*args)
    except Exception as error:
        return retry(function, args, outputs, error)


def _numpy_maker(like: Any) -> Any:
    import numpy

    def make(like: Any, shape: tuple[int, ...], dtype: str | None) -> Any:
        return numpy.empty(shape, dtype or like.dtype)

    return make


def _torch_maker(like: Any) -> Any:
    import torch

    dtypes = {"float32": torch.float32, "int32": torch.int32}

    def make(like: Any, shape: tuple[int, ...], dtype: str | None) -> Any:
        return torch.empty(shape, dtype=dtypes[dtype] if dtype else like.dtype, device=like.device)

    return make


_makers: dict[type, Any] = {}


def empty_like(like: Any, shape: tuple[int, ...], dtype: str | None, name: str) -> Any:
    """A new array of `like`'s framework and device, and of its type where `dtype` is None."""
    maker = _makers.get(type(like))
    if maker is None:
        torch = sys.modules.get("torch")
        if _is_numpy(like):
            maker = _numpy_maker(like)
        elif torch is not None and isinstance(like, torch.Tensor):
            maker = _torch_maker(like)
        else:
            raise Error(f"argument '{name}' is missing; it is made for numpy and torch inputs only, "
                        f"and this one is of {type(like).__module__}.{type(like).__qualname__}")
        _makers[type(like)] = maker
    return maker(like, shape, dtype)
