# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""tools/real_activations: docs/real-activations.md says what its records say; SmolLM2's activations through `msa run`.

    real_activations_test.py Page
    real_activations_test.py SmolLM2 MSA FOLDER    exits 77 where the Python packages cannot be had
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOL = ROOT / "tools/real_activations"
REQUIREMENTS = ROOT / "tools/activations/requirements.txt"
SKIPPED = 77


def packages(folder):
    """A Python with the packages; made once for each list of them."""
    made, wanted = folder / "venv/requirements.txt", REQUIREMENTS.read_text()
    python = folder / "venv/bin/python"
    if made.exists() and made.read_text() == wanted:
        return python
    venv.create(folder / "venv", clear=True, with_pip=True)
    # A machine without network is to say so at once.
    pip = [python, "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "15", "--no-deps", "-r", REQUIREMENTS]
    subprocess.run(pip, check=True)
    made.write_text(wanted)
    return python


class Page(unittest.TestCase):
    def test_table_is_that_of_the_records(self):
        records = sorted((ROOT / "bench/results").glob("real-activations-*.json"), reverse=True)
        self.assertTrue(records)
        shown = subprocess.run([sys.executable, TOOL, "show", *records], check=True, stdout=subprocess.PIPE, encoding="utf-8")
        self.assertIn(shown.stdout, (ROOT / "docs/real-activations.md").read_text(encoding="utf-8"))

    def test_records_are_within_tolerance(self):
        for path in (ROOT / "bench/results").glob("real-activations-*.json"):
            for layer, figures in json.loads(path.read_text())["layers"].items():
                self.assertLessEqual(max(figures["share_of_tolerance"].values()), 1, f"{path.name}, layer {layer}")


class SmolLM2(unittest.TestCase):
    def measure(self, msa, *options):
        command = [PYTHON, TOOL, "measure", "smollm2", "--msa", msa, "--folder", FOLDER / "tensors", *options]
        return subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", env=os.environ | {"PYTHONUTF8": "1"})

    def test_msa_run_attends_as_f64_does(self):
        record = FOLDER / "record.json"
        ended = self.measure(MSA, "--tokens", "4096", "--layers", "3,21", "--json", record)
        print(ended.stdout)
        self.assertEqual(ended.returncode, 0)
        found = json.loads(record.read_text())
        self.assertLess(found["loss"], 4, "the model reads English: log(49152) = 10.8 would be a guess")
        for figures in found["layers"].values():
            mass = figures["mass"]
            self.assertGreater(mass["mean"], 0.9)
            self.assertLess(mass["mean"], 1)
            self.assertLess(mass["latest"], mass["mean"])
            self.assertLess(mass["mean"], mass["best"] + 0.01, "of other rows, so not exactly")
            self.assertGreater(figures["overlap"], 0.7)
            self.assertLess(figures["overlap"], 1)

    def test_a_wrong_scale_is_seen(self):
        wrong = FOLDER / "msa_of_another_scale"
        wrong.write_text(f"#!/bin/sh\nexec '{MSA}' \"$@\" --softmax-scale 0.13\n")
        wrong.chmod(0o755)
        ended = self.measure(wrong, "--tokens", "2200", "--layers", "0", "--no-loss")
        self.assertEqual(ended.returncode, 1, ended.stdout)
        self.assertIn("dense_out", ended.stdout)


if __name__ == "__main__":
    case = sys.argv.pop(1)
    if case == "SmolLM2":
        MSA, FOLDER = (pathlib.Path(argument) for argument in sys.argv[1:])
        del sys.argv[1:]
        try:
            PYTHON = packages(FOLDER)
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"skipped: the packages of {REQUIREMENTS.relative_to(ROOT)} cannot be had here: {error}")
            sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], case])
