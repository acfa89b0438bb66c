# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""``python -m msa_cpp`` and the script ``msa``: the command msa, run by the wheel's library."""

from __future__ import annotations

import signal
import sys

from ._info import requirements
from ._library import lib


def main() -> int:
    """Runs the command with this process's arguments and returns its exit code."""
    # tvm-ffi imports torch where that is installed, three seconds of a command that has no use for it.
    sys.modules.setdefault("torch", None)
    try:
        command = lib.command
    except AttributeError:
        print("msa: error: this build holds no command (it needs CLI11, nlohmann-json and fmt)",
              file=sys.stderr)
        return 2
    # The command runs inside one call, where Python's own handlers would never get their turn.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    code = command("msa", *sys.argv[1:])
    if code == 0 and _shows_a_table_of_the_system(sys.argv[1:]):
        print("\nneeds of the Python package\n" + requirements(), end="")
    return code


def _shows_a_table_of_the_system(words: list[str]) -> bool:
    """`msa info` without an option that asks for something else than its table."""
    return words[:1] == ["info"] and not any(
        word.startswith(("--json", "--quiet", "--help", "-q", "-h")) for word in words
    )


if __name__ == "__main__":
    sys.exit(main())
