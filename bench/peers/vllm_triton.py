# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""vLLM's Triton kernels for MiniMax-M3, three files of its wheel, loaded without the rest of vLLM."""
import importlib
import pathlib
import subprocess
import sys
import tempfile
import types
import zipfile

VERSION = "0.33.0"
INSIDE = "vllm/models/minimax_m3/common/ops/"
FILES = ("__init__.py", "index_topk.py", "sparse_attn.py")
PACKAGE = "m3ops"
NAME = "vllm-triton"
MUST_BE_RIGHT = True


def fetch(folder):
    """Gets the wheel (336 MB) and keeps the three files in `folder`."""
    with tempfile.TemporaryDirectory() as wheels:
        subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "-d", wheels,
                        f"vllm=={VERSION}"], check=True)
        (wheel,) = pathlib.Path(wheels).glob("vllm-*.whl")
        cut(wheel, folder)


def cut(wheel, folder):
    target = pathlib.Path(folder) / PACKAGE
    target.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in FILES:
            (target / name).write_bytes(archive.read(INSIDE + name))


def missing(folder):
    """Why the kernels cannot be loaded; None where they can."""
    absent = [name for name in FILES if not (pathlib.Path(folder) / PACKAGE / name).is_file()]
    return f"{folder}/{PACKAGE} lacks {', '.join(absent)}" if absent else None


def stand_in(torch, triton):
    """The few names of vLLM that the files import."""
    class Platform:
        def __getattr__(self, name):
            if name in ("is_cuda", "is_cuda_alike"):
                return lambda: True
            if name == "is_arch_support_pdl":
                return lambda: torch.cuda.get_device_capability()[0] >= 9
            if name == "get_device_capability":
                major, minor = torch.cuda.get_device_capability()
                return lambda *_: types.SimpleNamespace(major=major, minor=minor, to_int=lambda: 10 * major + minor)
            return lambda *_, **__: False

    def module(name, **members):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(members)

    module("vllm")
    module("vllm.platforms", current_platform=Platform())
    module("vllm.triton_utils", tl=triton.language, triton=triton)
    module("vllm.utils")
    module("vllm.utils.math_utils", round_up=lambda x, y: (x + y - 1) // y * y, cdiv=lambda a, b: -(-a // b),
           next_power_of_2=lambda n: 1 << max(n - 1, 0).bit_length())


class Peer:
    name = NAME
    must_be_right = MUST_BE_RIGHT

    def __init__(self, torch, folder):
        import triton
        import triton.language  # noqa: F401
        stand_in(torch, triton)
        sys.path.insert(0, str(folder))
        self.ops = importlib.import_module(PACKAGE)
        self.version = f"vLLM {VERSION}, Triton {triton.__version__}"
        self.torch = torch

    def call(self, q, kv, ids, table, lengths, m, out):
        """A closure that runs one decode attend. ids [T, Hkv, 16] is seen head-major, without a copy."""
        head_major = ids.transpose(0, 1)
        scales = {}
        if kv.dtype != self.torch.bfloat16:
            one = self.torch.ones(1, device=kv.device)
            scales = {"k_scale": one, "v_scale": one}
        return lambda: self.ops.minimax_m3_sparse_attn_decode(
            q, kv, head_major, table, lengths, kv.shape[1], q.shape[-1] ** -0.5, out, m, **scales)
