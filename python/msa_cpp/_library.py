# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The shared library, loaded at its first use, and how its failures become exceptions.

Loading is late because tvm-ffi imports torch wherever torch is installed: ``import msa_cpp`` must
stay quick for a program that only looks (an engine's plug-in discovery, ``--help``).
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

MINIMUM_GLIBC = (2, 36)
"""What the wheel's library needs of the system; a test holds it to the library's own symbols."""

CUDA_DRIVERS = {"12": "525.60.13", "13": "580.65.06"}
"""The oldest driver of a CUDA major release: NVIDIA's table of minor-version compatibility."""


class Error(ValueError):
    """A call that was refused, before anything was written.

    ``str(error)`` is the library's text: one failed condition a line, each with the operator, the
    argument, its value and what is allowed.
    """

    def __init__(self, text: str, code: str = "invalid_argument") -> None:
        super().__init__(text)
        self.code = code
        """invalid_argument, unsupported, workspace, device, io or internal."""

    @property
    def failures(self) -> list[str]:
        """All conditions that failed, one text each."""
        return str(self).splitlines()

    def __reduce__(self) -> tuple[Any, ...]:
        return Error, (str(self), self.code)


def path() -> Path:
    """The shared object; ``tvm_ffi.load_module`` takes it too."""
    return Path(__file__).with_name("libmsa_ffi.so")


def running_glibc() -> str:
    """This system's, "" where it has another C library."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ")
    except (ValueError, OSError):
        return ""


def running_driver() -> str:
    """The version of NVIDIA's driver in this system's kernel, "" without one."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return ""


def _system_problem() -> str:
    version = running_glibc()
    needed = "{}.{}".format(*MINIMUM_GLIBC)
    if not version:
        return f"this system's C library is not glibc; needed: glibc {needed} or later"
    if tuple(int(part) for part in version.split(".")[:2]) < MINIMUM_GLIBC:
        return f"this system has glibc {version}; needed: {needed} or later"
    return ""


def _error_of(code: str) -> type[Error]:
    """tvm-ffi makes an exception of the type that is registered for an error's kind."""

    def init(self: Error, text: str, code: str = code) -> None:
        Error.__init__(self, text, code)

    return type("Error", (Error,), {"__init__": init, "__module__": __name__})


def _register_errors(core: Any) -> None:
    for code in ("unsupported", "workspace", "device", "io", "internal"):
        core.ERROR_NAME_TO_TYPE["msa_cpp." + code] = _error_of(code)
    core.ERROR_NAME_TO_TYPE["msa_cpp.invalid_argument"] = Error
    core.ERROR_TYPE_TO_NAME[Error] = "msa_cpp.invalid_argument"


_FUNCTIONS = (
    "attend", "attend_workspace_size", "backends", "command", "copy_pages", "cpu_info",
    "index_blocks", "index_blocks_workspace_size", "index_scores", "index_scores_workspace_size",
    "insert_cache", "last_backend", "layer_step", "layer_step_workspace_size", "merge_states",
    "select_blocks", "select_blocks_workspace_size", "version", "view", "write_cache",
)  # fmt: skip


class _Loaded:
    """The library's packed functions as attributes.

    Without ``__getattr__``: a class that has it looks up every attribute the long way.
    """


class _Library(_Loaded):
    """The same, from the first one asked for: then the object becomes a `_Loaded`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        with self._lock:
            if type(self) is _Library:
                self._load()
                self.__class__ = _Loaded
        return getattr(self, name)

    def _load(self) -> None:
        problem = _system_problem()
        if problem:
            raise ImportError("msa_cpp: " + problem)
        if not path().exists():
            raise ImportError(f"msa_cpp: {path()} is missing: install the wheel, or build it there")
        import tvm_ffi

        _register_errors(tvm_ffi.core)
        # Kept for ever: tensors and views that the library made need its code to be freed.
        self._from_dlpack = tvm_ffi.from_dlpack
        self._tensor = tvm_ffi.Tensor
        self._module = tvm_ffi.load_module(str(path()))
        for name in _FUNCTIONS:
            try:
                setattr(self, name, self._module.get_function(name))
            except AttributeError:  # the command, in a build that holds none
                continue


# Any: its attributes are the library's.
lib: Any = _Library()
