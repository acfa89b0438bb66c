# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Runs the Python of the documentation: every block behind a line `<!-- run -->`, each in a process
of its own.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in sorted(DOCS.glob("*.md"))
    for number, block in enumerate(
        re.findall(r"^<!-- run -->\n```python\n(.*?)^```$", page.read_text(), re.M | re.S), 1
    )
]


def test_there_are_blocks():
    assert len(BLOCKS) >= 4
    marked = sum(page.read_text().count("<!-- run -->") for page in DOCS.glob("*.md"))
    assert len(BLOCKS) == marked, "a marker without a block of Python behind it"


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block):
    done = subprocess.run(
        [sys.executable, "-c", block], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "a reader sees nothing"


def test_other_python_blocks_compile():
    """Those that want a GPU or an engine are read at least."""
    for page in sorted(DOCS.glob("*.md")):
        for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S):
            compile(block, str(page), "exec")


@pytest.mark.skipif(importlib.util.find_spec("sglang") is not None, reason="it would check SGLang")
def test_engines_check_takes_an_interpreter_by_its_way_from_here(tmp_path):
    """As its own text and the pages of the engines call it: venv/bin/python."""
    link = tmp_path / "venv"
    link.symlink_to(pathlib.Path(sys.executable).parent)
    tool = DOCS.parent / "tools/engines_check"
    name = pathlib.Path(sys.executable).name
    for python, text in ((f"venv/{name}", f"{tmp_path}/venv/{name} lacks "), ("nosuch", "nosuch is no")):
        done = subprocess.run(
            [sys.executable, tool, "sglang", "--python", python], capture_output=True, text=True, cwd=tmp_path,
            env={**os.environ, "PATH": "/nowhere", "PYTHONPATH": ""}, check=False,
        )
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr
