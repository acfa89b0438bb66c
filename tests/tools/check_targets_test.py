# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""tools/check_targets: what it says and how it ends, on records made for it.

    check_targets_test.py BUILD    a build tree that decode_bench is built in
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = sys.argv.pop(1)
HASH = subprocess.run([ROOT / "tools/gpu_check", "hash", BUILD, "decode"], check=True, capture_output=True,
                      text=True).stdout.strip()


def case(us, chain=None, **changes):
    return {"kv": "bf16", "shard": "64/4", "m": 1, "batch": 8, "layout": "LBHNC", "lse": False, "us": us,
            "chain_us": us - 1 if chain is None else chain, "rule_us": 11.0, **changes}


class CheckTargets(unittest.TestCase):
    def run_tool(self, cases, cell=None, ratios=(), record=None, part="decode"):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            cells = [{"kv": "bf16", "shard": "64/4", "m": 1, "batch": 8, "us": 10.0, **(cell or {})}]
            (folder / "targets.json").write_text(json.dumps({"decode": {
                "record": "r.json", "cells": cells, "ratios": list(ratios),
                "rule": {"limit_field": "rule_us"}, "chain": {"less": 0.8}}}))
            if record is not False:
                (folder / "r.json").write_text(json.dumps({
                    "passed": True, "sources_sha256": HASH, "results": {"cases": cases}, **(record or {})}))
            done = subprocess.run([ROOT / "tools/check_targets", part, "--build", BUILD, "--targets",
                                   folder / "targets.json", "--results", folder],
                                  capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

    def test_met(self):
        code, text = self.run_tool([case(10.0)])
        self.assertEqual(code, 0, text)
        self.assertIn("met         bf16 64/4 m 1 B 8: 10.00 of at most 10.00", text)

    def test_a_miss_fails(self):
        code, text = self.run_tool([case(10.1, 9.0)])
        self.assertEqual(code, 1)
        self.assertIn("missed      bf16 64/4 m 1 B 8: 10.10 of at most 10.00", text)

    def test_a_chain_must_be_faster(self):
        self.assertEqual(self.run_tool([case(10.0, 9.3)])[0], 1)

    def test_a_missing_result_fails(self):
        code, text = self.run_tool([case(9.0, batch=1)])
        self.assertEqual(code, 1)
        self.assertIn("no result   bf16 64/4 m 1 B 8", text)

    def test_a_missing_record_fails(self):
        self.assertEqual(self.run_tool([], record=False)[0], 1)

    def test_a_stale_record_fails(self):
        code, text = self.run_tool([case(9.0)], record={"sources_sha256": "0"})
        self.assertEqual(code, 1)
        self.assertIn("stale", text)

    def test_a_failed_run_fails(self):
        self.assertEqual(self.run_tool([case(9.0)], record={"passed": False})[0], 1)

    def test_other_cases_follow_the_rule(self):
        self.assertEqual(self.run_tool([case(9.0), case(11.0, batch=2)])[0], 0)
        self.assertEqual(self.run_tool([case(9.0), case(11.1, batch=2)])[0], 1)

    def test_ratios(self):
        ratio = {"what": "LSE", "of": {"lse": True}, "to": {"lse": False}, "at_most": 1.02}
        self.assertEqual(self.run_tool([case(9.0), case(9.1, lse=True)], ratios=[ratio])[0], 0)
        self.assertEqual(self.run_tool([case(9.0), case(9.3, lse=True)], ratios=[ratio])[0], 1)
        self.assertEqual(self.run_tool([case(9.0)], ratios=[ratio])[0], 1)

    def test_a_limit_needs_its_figure_file_and_section(self):
        limit = {"value": 10.2, "results_file": "bench/targets.json", "section": "The bound"}
        code, text = self.run_tool([case(10.4, 9.0)], {"limit": limit})
        self.assertEqual(code, 0, text)
        self.assertIn("limit       bf16", text)
        for wrong in ({"value": 10.0}, {"results_file": "no/such.json"}, {"section": "No such"}):
            self.assertEqual(self.run_tool([case(10.4, 9.0)], {"limit": {**limit, **wrong}})[0], 1, wrong)

    def test_an_unknown_part_is_wrong_use(self):
        code, text = self.run_tool([], part="nothing")
        self.assertEqual(code, 2)
        self.assertIn("unknown part 'nothing'; allowed: decode", text)


if __name__ == "__main__":
    unittest.main()
