# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""What serves the calls."""

from __future__ import annotations

from typing import Any

from ._library import CUDA_DRIVERS, MINIMUM_GLIBC, lib, path, running_driver, running_glibc


def backends() -> list[dict[str, Any]]:
    """All backends of this build, in the order in which calls try them: ``name``, ``available``,
    and the ``reasons`` that keep it off. Starts CUDA in this process where the build holds it.
    """
    described = []
    for line in lib.backends().splitlines():
        name, *reasons = line.split("\t")
        described.append({"name": name, "available": not reasons, "reasons": reasons})
    return described


def last_backend() -> str:
    """Name of the backend that served this thread's last call; "" before the first."""
    return lib.last_backend()


def info() -> dict[str, Any]:
    """Version, backends, CPU instruction sets and threads, and what the package asks of a system.

    ``python -m msa_cpp info --json`` adds the build, the machine and its GPUs.

    Raises:
        Error: MSA_CPU_ISA or MSA_THREADS names nothing that exists.
    """
    isa, available, threads = lib.cpu_info().split("\n")
    return {
        "version": lib.version(),
        "library": str(path()),
        "backends": backends(),
        "cpu": {"isa": isa, "isas_available": available.split(), "threads": int(threads)},
        "glibc": {"minimum": "{}.{}".format(*MINIMUM_GLIBC), "running": running_glibc()},
        "cuda_driver": {"minimum": dict(CUDA_DRIVERS), "running": running_driver()},
    }


def requirements() -> str:
    """What the package asks of a system, and what this one has: a line each."""
    glibc = "{}.{}".format(*MINIMUM_GLIBC)
    drivers = ", ".join(f"{driver} for CUDA {cuda}" for cuda, driver in CUDA_DRIVERS.items())
    return (
        f"  glibc       {glibc} or later; here {running_glibc() or 'none'}\n"
        f"  CUDA driver {drivers}, or later; here {running_driver() or 'none'}\n"
    )
