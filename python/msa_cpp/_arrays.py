# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Arrays of any framework as views, and new arrays of a caller's framework.

Nothing here copies an element: a view has the array's own memory, shape and strides.
"""

from __future__ import annotations

import sys
from numbers import Integral
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
    return call(lib.view, (_importable(array), dtype))


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


def described(array: Any, why: str = "") -> str:
    """In a message: what an argument is that the library cannot be given."""
    if array is None:
        return "None"
    kind = f"{type(array).__module__}.{type(array).__qualname__}".removeprefix("builtins.")
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    of_shape = "" if shape is None else f" of shape {list(shape)}"
    of_dtype = "" if dtype is None else f" and dtype {dtype}"
    return f"<{kind}{of_shape}{of_dtype}{': ' if why else ''}{why}>"


def _importable(array: Any, output: bool = False) -> Any:
    """`array` in a form that tvm-ffi can import; itself where that is so already, and a text that
    describes it where there is none.
    """
    if not _is_numpy(array):
        return _importable_object(array)
    name = _ML_DTYPES.get(array.dtype.name)
    raw = array if name is None else array.view(f"u{array.dtype.itemsize}")
    if not raw.flags.writeable:
        if output:
            return described(array, "a read-only array")
        raw = _writable_alias(raw)
    try:
        raw.__dlpack__()
    except (BufferError, TypeError) as error:  # a byte order or a type that DLPack does not know
        return described(array, str(error).rstrip("."))
    return raw if name is None else lib.view(raw, name)


def _importable_object(value: Any) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()  # a number of numpy's as one of Python's
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"<{value}>"
    if isinstance(value, (str, int, float)) or value is None or hasattr(value, "__cuda_stream__"):
        return value
    if not hasattr(value, "__dlpack__"):
        return value if hasattr(value, "cuda_stream") else described(value)
    try:
        lib.view(value, None)
    except Exception as error:  # whatever the framework has against it
        return described(value, str(error).partition("\n")[0])
    return value


def _is_immutable(array: Any) -> bool:
    """Of a framework whose arrays never change, and which exports their memory all the same."""
    return type(array).__module__.partition(".")[0] in ("jax", "jaxlib")


# Types of outputs that need no look; numpy says by itself where one may not be written.
writable: set[type] = set()


def check_outputs(function: Any, args: tuple[Any, ...], outputs: tuple[int, ...]) -> None:
    """That outputs of types not yet in `writable` may be written, which tvm-ffi does not ask.

    Where one may not, the library names it, beside all else that cannot be read.
    """
    forms = list(args)
    for position in outputs:
        if _is_immutable(args[position]):
            forms[position] = described(args[position], "an array that never changes")
        else:
            writable.add(type(args[position]))
    if any(form is not arg for form, arg in zip(forms, args)):
        _call_again(function, tuple(forms))


def retry(
    function: Any, args: tuple[Any, ...], outputs: tuple[int, ...], error: Exception
) -> Any:
    """``function(*args)`` after `error`; where an argument cannot be imported as it is, in another
    form.

    Arguments are imported before anything runs, and nothing is written by a call that is refused
    for an argument's sake, so that the second try is the first run.
    `outputs` are the positions of what the function writes.
    """
    if isinstance(error, Error) and error.code != "invalid_argument":
        raise error
    forms = tuple(_importable(arg, i in outputs) for i, arg in enumerate(args))
    if all(form is arg for form, arg in zip(forms, args)):
        raise error
    return _call_again(function, forms)


def _call_again(function: Any, forms: tuple[Any, ...]) -> Any:
    try:
        return function(*forms)
    except Error as refused:
        raise refused from None


def call(function: Any, args: tuple[Any, ...], outputs: tuple[int, ...] = ()) -> Any:
    """``function(*args)``, by `retry` where that does not go as it is."""
    for position in outputs:
        if type(args[position]) not in writable:
            check_outputs(function, args, outputs)
    try:
        return function(*args)
    except Exception as error:
        return retry(function, args, outputs, error)


def extent(array: Any, dimension: int) -> int:
    """Of an array's shape; 0 where it has no such dimension, or is no array."""
    shape = getattr(array, "shape", ())
    return shape[dimension] if dimension < len(shape) else 0


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


def empty_like(
    op: str, name: str, like: Any, like_name: str, shape: tuple[Any, ...], dtype: str | None
) -> Any:
    """A new array of `like`'s framework and device, and of its type where `dtype` is None.

    None where another argument is wrong and no array can be made: the library will name that one.
    """
    maker = _makers.get(type(like))
    if maker is None:
        torch = sys.modules.get("torch")
        if _is_numpy(like):
            maker = _numpy_maker(like)
        elif torch is not None and isinstance(like, torch.Tensor):
            maker = _torch_maker(like)
        elif hasattr(like, "__dlpack__"):
            raise Error(f"{op}: argument '{name}' is None; allowed: an array, since one is made of "
                        f"numpy arrays and torch tensors only, and '{like_name}' is "
                        f"{described(like)}")
        else:
            return None
        _makers[type(like)] = maker
    try:
        return maker(like, shape, dtype)
    except Exception:
        if all(isinstance(n, Integral) and 0 <= int(n) < 2**31 for n in shape):
            raise
        return None
