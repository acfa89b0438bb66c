# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""tools/check_targets: what it says and how it ends, on targets and records made for it.

    check_targets_test.py BUILD    a build tree that the benchmarks are built in
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = sys.argv.pop(1)
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
from targets import DECODE, INDEX, LAYER, PREFILL, expand, key_of  # noqa: E402


LOADER = importlib.machinery.SourceFileLoader("check_targets", str(ROOT / "tools/check_targets"))
check_targets = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_targets", LOADER))
LOADER.exec_module(check_targets)
cpu_check, CPU = check_targets.cpu_check, check_targets.CPU
DEVICE = "NVIDIA H200"
CELL = {"kv": "bf16", "shard": "64/4", "m": 1, "batch": 8, "us": 10.0}


def case(us, chain=None, host=5.0, rule=11.0, **changes):
    """A case that the rule allows `rule` microseconds."""
    return {"kv": "bf16", "shard": "64/4", "m": 1, "batch": 8, "layout": "LBHNC", "lse": False, "us": us,
            "chain_us": us - 1 if chain is None else chain, "host_us": host,
            "bytes": (rule - 3.8) / 1.03 * 4.55e6, "flops": 0, **changes}


class ToolTest(unittest.TestCase):
    """Runs the tool in this process, where a hash is the part's name: asking ninja takes seconds."""

    def setUp(self):
        real = check_targets.hash_of
        self.addCleanup(lambda: setattr(check_targets, "hash_of", real))
        check_targets.hash_of = lambda build, part: part

    def run_tool(self, cases, cells=(CELL,), ratios=(), peers=(), peer_cases=(), record=None, peer_record=None,
                 measured=(), part="decode"):
        targets = {"decode": {
            "record": "r.json", "cells": list(cells), "ratios": list(ratios),
            "rule": {"start_us": 3.8, "bytes_factor": 1.03, "tbps": {"bf16": 4.55, "e4m3": 4.42}, "tflops": 600},
            "chain": {"less_us": 0.8}, "host": {"us": 8},
            "peers": {"record": "p.json", "measured": list(measured), "cells": list(peers)}}}
        return self.run_on(part, targets, (("r", "decode", {"cases": list(cases)}, record),
                                           ("p", "peers", {"cases": list(peer_cases)}, peer_record)))

    def run_on(self, part, targets, records):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "targets.json").write_text(json.dumps(targets))
            for name, of, results, changes in records:
                if changes is not False:
                    (folder / f"{name}.json").write_text(json.dumps({
                        "passed": True, "sources_sha256": of, "device": DEVICE, "results": results, **(changes or {})}))
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                try:
                    code = check_targets.main([part, "--targets", str(folder / "targets.json"), "--results", str(folder)])
                except SystemExit as wrong_use:
                    code = wrong_use.code
            return code, printed.getvalue()

    def passes(self, *arguments, **options):
        code, text = self.run_tool(*arguments, **options)
        self.assertEqual(code, 0, text)
        return text

    def fails(self, words, *arguments, **options):
        code, text = self.run_tool(*arguments, **options)
        self.assertEqual(code, 1, text)
        self.assertIn(words, text)
        return text


class CheckTargets(ToolTest):
    def test_met(self):
        self.assertIn("met         bf16 64/4 m 1 B 8: 10.00 of at most 10.00", self.passes([case(10.0)]))

    def test_a_miss_fails(self):
        self.fails("missed      bf16 64/4 m 1 B 8: 10.10 of at most 10.00", [case(10.1, 9.0)])

    def test_a_chain_must_be_faster(self):
        self.fails("missed      bf16 64/4 m 1 B 8, chain: 9.30 of at most 9.20", [case(10.0, 9.3)])

    def test_the_host_has_a_target(self):
        self.fails("missed      bf16 64/4 m 1 B 8, host: 8.10 of at most 8.00", [case(10.0, host=8.1)])

    def test_a_missing_result_or_figure_fails(self):
        self.fails("no result   bf16 64/4 m 1 B 8", [case(9.0, batch=1)])
        for field in ("chain_us", "host_us"):
            self.fails("no result   bf16", [{name: value for name, value in case(9.0).items() if name != field}])

    def test_a_missing_record_fails(self):
        self.fails("no record   ", [], record=False)
        self.fails("no record   ", [case(9.0)], peer_record=False)

    def test_a_stale_record_fails(self):
        self.fails("stale       r.json", [case(9.0)], record={"sources_sha256": "0"})
        self.fails("stale       p.json", [case(9.0)], peer_record={"sources_sha256": "0"})

    def test_a_failed_run_fails(self):
        self.fails("failed      r.json", [case(9.0)], record={"passed": False})

    def test_where_figure_and_rule_differ_by_rounding_the_larger_holds(self):
        self.passes([case(10.05, rule=10.06)])
        self.fails("missed", [case(10.3, rule=10.4)])  # more than a digit of 10.0
        self.passes([case(10.3, rule=10.4)], cells=[{**CELL, "us": 10}])
        self.fails("missed", [case(11.2, rule=11.3)], cells=[{**CELL, "us": 10}])

    def test_a_cell_without_a_figure_stands_under_the_rule(self):
        cells = [{"kv": ["bf16", "e4m3"], "shard": "64/4", "m": [2, 3], "batch": 8}]
        cases = [case(11.0, m=m, kv=kv, bytes=0, flops=7.2 * 600e6) for m in (2, 3) for kv in ("bf16", "e4m3")]
        self.passes(cases, cells=cells)
        self.fails("no result   e4m3 64/4 m 3 B 8", cases[:-1], cells=cells)
        self.fails("of at most 11.00", [*cases[:-1], {**cases[-1], "us": 11.1}], cells=cells)

    def test_other_cases_follow_the_rule(self):
        self.passes([case(9.0), case(11.0, batch=2)])
        self.fails("missed      bf16 64/4 m 1 B 2", [case(9.0), case(11.1, 9.0, batch=2)])

    def test_figures_by_batch(self):
        cells = [{"kv": "bf16", "shard": "64/4", "m": 1, "us": {"8": 10.0, "16": 12.0}}]
        cases = [case(10.0), case(12.0, batch=16)]
        self.passes(cases, cells=cells)
        self.fails("missed      bf16 64/4 m 1 B 16", [cases[0], {**cases[1], "us": 12.2}], cells=cells)

    def test_a_cell_named_twice_is_wrong_use(self):
        code, text = self.run_tool([case(9.0)], cells=[CELL, CELL])
        self.assertEqual(code, 2)
        self.assertIn("cell bf16 64/4 m 1 B 8 stands there twice", text)

    def test_ratios(self):
        ratio = {"what": "LSE", "of": {"lse": True}, "at_most": 1.02,
                 "at": {"kv": "bf16", "shard": "64/4", "m": 1, "batch": 8}}
        self.passes([case(9.0), case(9.1, lse=True)], ratios=[ratio])
        self.fails("missed      LSE, bf16", [case(9.0), case(9.3, lse=True)], ratios=[ratio])
        self.fails("no result   LSE, bf16", [case(9.0)], ratios=[ratio])
        wide = {**ratio, "what": "wide", "of": {"variant": "wide table"}}
        self.fails("no result   wide, bf16", [case(9.0), case(9.0, lse=True)], ratios=[ratio, wide])

    def test_ahead_of_a_published_time(self):
        peer = {"peer": "other", "kv": "bf16", "shard": "64/4", "m": 1, "us": {"8": 9.5}}
        self.passes([case(9.4)], peers=[peer])
        self.fails("missed      ahead of other, bf16 64/4 m 1 B 8, published: 9.50 of less than 9.50", [case(9.5)], peers=[peer])
        self.fails("no result   ahead of other, bf16 64/4 m 1 B 16", [case(9.4)], peers=[{**peer, "us": {"16": 20}}])

    def test_ahead_of_a_time_of_the_same_card(self):
        peer = {"peer": "other", "kv": "bf16", "shard": "64/4", "m": 1, "batch": 8}
        theirs = {**case(9.2), "peer": "other"}
        self.passes([case(9.1)], peers=[peer], peer_cases=[theirs], measured=["other"])
        self.fails("missed      ahead of other, bf16 64/4 m 1 B 8, same card", [case(9.3)], peers=[peer],
                   peer_cases=[theirs], measured=["other"])
        self.fails("of the peer", [case(9.1)], peers=[peer], measured=["other"])
        self.passes([case(9.1)], peers=[peer])  # one that need not be there
        self.fails("other card  p.json", [case(9.1)], peers=[peer], peer_cases=[theirs], measured=["other"],
                   peer_record={"device": "NVIDIA H100"})

    def test_an_unknown_part_is_wrong_use(self):
        code, text = self.run_tool([], part="nothing")
        self.assertEqual(code, 2)
        self.assertIn("unknown part 'nothing'; allowed: decode", text)


class Limits(ToolTest):
    """A miss that a measured limit excuses."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.probe_file = pathlib.Path(folder.name) / "probe.json"
        self.probe = {"probe": "an empty kernel", "device": DEVICE, "cases": [{
            "kv": "bf16", "shard": "64/4", "m": 1, "batch": 8, "limit_us": 10.2, "limit_chain_us": 9.5, "limit_host_us": 8.5}]}
        self.limit = {"value": 10.2, "results_file": str(self.probe_file), "section": "The bound"}

    def with_limit(self, changes=None, probe=None, result=None, name="limit"):
        self.probe_file.write_text(json.dumps({**self.probe, **(probe or {})}))
        return self.run_tool([result or case(10.4, 9.0)], cells=[{**CELL, name: {**self.limit, **(changes or {})}}])

    def test_it_is_printed_as_a_limit(self):
        code, text = self.with_limit()
        self.assertEqual(code, 0, text)
        self.assertIn("limit       bf16 64/4 m 1 B 8: 10.40 of at most 10.00", text)

    def test_chain_and_host_have_limits_of_their_own(self):
        for name, value, result in (("chain_limit", 9.5, case(10.0, 9.6)), ("host_limit", 8.5, case(10.0, host=8.4))):
            code, text = self.with_limit({"value": value}, result=result, name=name)
            self.assertEqual(code, 0, text)
            self.assertEqual(self.with_limit({"value": value}, result=result)[0], 1)

    def test_what_does_not_count_says_why(self):
        own = {**self.probe, "part": "decode"}
        other_cell = {"cases": [{**self.probe["cases"][0], "batch": 16}]}
        for changes, probe, words in (
                ({"value": 10.0}, None, "10.00 us is more than 3% away"),
                ({"value": 10.8}, None, "10.80 us is more than 3% away"),
                ({"value": 10.3}, None, "says 10.2, not 10.3"),
                ({"section": "No such"}, None, "the essay has no section 'No such'"),
                ({"results_file": "no/such.json"}, None, "no/such.json is not there"),
                (None, own, "is no results file of a separate probe"),
                (None, {"probe": ""}, "is no results file of a separate probe"),
                (None, {"device": "NVIDIA H100"}, "is of another device: NVIDIA H100"),
                (None, other_cell, "says None, not 10.2")):
            code, text = self.with_limit(changes, probe)
            self.assertEqual(code, 1, words)
            self.assertIn("missed      bf16 64/4 m 1 B 8", text)
            self.assertIn(words, text)


class Index(ToolTest):
    """The part of the indexer, at a gather rate of 4.4 TB/s."""
    CELL = {"products": "bf16", "m": 1, "context": 1000, "us": {"8": 10}}

    @staticmethod
    def case(us, rule=9.0, **changes):
        """A case that the rule allows `rule` microseconds."""
        return {"products": "bf16", "keys": "bf16", "heads": 4, "batch": 8, "m": 1, "tokens": 0, "context": 1000,
                "lengths": "alike", "variant": "usual", "us": us, "bytes": (rule - 4.5) / 1.02 * 4.4e6, **changes}

    def run_tool(self, cases, cells=None, ratios=(), peers=(), rate=4.4, record=None):
        targets = {"index": {
            "record": "r.json", "rates": {"at_least": {"gather_32k_tbps": 4.3}},
            "gather": {"bf16": "gather_32k_tbps", "e4m3": "gather_16k_tbps"},
            "rule": {"start_us": 4.5, "bytes_factor": 1.02}, "skewed_rule": {"start_us": 5, "bytes_factor": 1.15},
            "cells": [self.CELL] if cells is None else cells, "ratios": list(ratios),
            "peers": {"measured": [], "cells": list(peers)}}}
        rates = {"gather_32k_tbps": rate, "gather_16k_tbps": 2.2}
        return self.run_on("index", targets, [("r", "index", {"rates": rates, "cases": list(cases)}, record)])

    def test_the_larger_of_figure_and_rule_holds(self):
        self.assertIn("met         bf16 4 heads m 1 B 8 @ 1000: 10.00 of at most 10.00", self.passes([self.case(10.0)]))
        self.fails("missed      bf16 4 heads m 1 B 8 @ 1000: 10.10 of at most 10.00", [self.case(10.1)])
        self.passes([self.case(10.9, rule=11.0)])
        self.fails("missed", [self.case(11.1, rule=11.0)])

    def test_a_cell_without_a_figure_stands_under_the_rule_of_its_rate(self):
        cells = [{"products": ["bf16", "e4m3 exact"], "heads": 1, "m": 1, "batch": 8, "context": 1000}]
        fp8 = self.case(13.4, products="e4m3 exact", keys="e4m3", heads=1)  # half the rate: 4.5 and twice 4.5
        self.passes([self.case(8.9, heads=1), fp8], cells=cells)
        self.fails("missed      e4m3 exact 1 head m 1 B 8 @ 1000", [self.case(8.9, heads=1), {**fp8, "us": 13.6}], cells=cells)

    def test_a_skewed_batch_has_a_rule_of_its_own(self):
        cells = [{"products": "bf16", "m": 1, "batch": 8, "context": 1000, "lengths": "skewed"}]
        case = self.case(16.4, lengths="skewed", bytes=44e6)
        self.passes([case], cells=cells)
        self.fails("missed      bf16 4 heads m 1 B 8 @ 1000 skewed: 16.60 of at most 16.50", [{**case, "us": 16.6}], cells=cells)

    def test_prefill_has_figures_or_is_only_measured(self):
        cell = {"products": "bf16", "tokens": 64, "context": 1000}
        cells = [{**cell, "us": 20}, {**cell, "batch": 2}]
        cases = [self.case(20.0, m=0, tokens=64, batch=batch) for batch in (1, 2)]
        self.assertIn("measured    bf16 4 heads 2 x 64 @ 1000: 20.00", self.passes(cases, cells=cells))
        self.fails("missed      bf16 4 heads 64 @ 1000: 20.10 of at most 20.00", [{**cases[0], "us": 20.1}, cases[1]], cells=cells)
        self.fails("no result   bf16 4 heads 2 x 64 @ 1000", cases[:1], cells=cells)

    def test_ratios(self):
        ratio = {"what": "m 4", "of": {"m": 4}, "at_most": 1.1, "at": {"products": "bf16", "m": 1, "batch": 8, "context": 1000}}
        self.passes([self.case(9.0), self.case(9.9, m=4)], ratios=[ratio])
        self.fails("missed      m 4, bf16 4 heads m 1 B 8 @ 1000", [self.case(9.0), self.case(10.0, m=4)], ratios=[ratio])
        self.fails("no result   m 4, bf16", [self.case(9.0)], ratios=[ratio])

    def test_ahead_of_published_times(self):
        peer = {"peer": "other", "products": "bf16", "m": 1, "context": 1000, "us": {"8": 9.5}}
        self.passes([self.case(9.4)], peers=[peer])
        self.fails("missed      ahead of other, bf16 4 heads m 1 B 8 @ 1000, published", [self.case(9.5)], peers=[peer])
        self.fails("no result   ahead of other, bf16 4 heads m 1 B 16", [self.case(9.4)], peers=[{**peer, "us": {"16": 9}}])

    def test_results_records_and_cells_must_be_there_once(self):
        self.fails("no result   bf16 4 heads m 1 B 8 @ 1000", [self.case(9.0, m=4)])
        self.fails("no result   bf16", [{name: value for name, value in self.case(9.0).items() if name != "us"}])
        self.fails("no record   ", [], record=False)
        self.fails("stale       r.json", [self.case(9.0)], record={"sources_sha256": "0"})
        code, text = self.run_tool([self.case(9.0)], cells=[self.CELL, self.CELL])
        self.assertEqual(code, 2)
        self.assertIn("cell bf16 4 heads m 1 B 8 @ 1000 stands there twice", text)

    def test_a_slow_card_makes_a_run_void(self):
        self.fails("void        gather_32k_tbps is 4.20, of at least 4.3", [self.case(9.0)], rate=4.2)

    def test_a_limit_is_sought_in_the_essay_of_the_part(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "essay.md").write_text("# The indexer\n\n## The bound\n")
            (folder / "probe.json").write_text(json.dumps({
                "probe": "a gather", "device": DEVICE, "cases": [{**self.case(10.4), "limit_us": 10.2}]}))
            limit = {"value": 10.2, "results_file": str(folder / "probe.json"), "section": "The bound"}
            real = check_targets.ESSAYS["index"]
            self.assertEqual(real, ROOT / "src/cuda/sm90/index/README.md")
            self.addCleanup(lambda: check_targets.ESSAYS.update(index=real))
            cell = {**self.CELL, "limit": limit}
            check_targets.ESSAYS["index"] = folder / "no essay.md"
            self.fails("the essay has no section 'The bound'", [self.case(10.4)], cells=[cell])
            check_targets.ESSAYS["index"] = folder / "essay.md"
            text = self.passes([self.case(10.4)], cells=[cell])
            self.assertIn("limit       bf16 4 heads m 1 B 8 @ 1000: 10.40 of at most 10.00", text)


class Layer(ToolTest):
    """The part of the cache write and the whole layer."""
    WRITE = {"op": "write", "shard": "64/4", "kv": "bf16", "tokens": 2048, "context": 0, "us": 25, "percent_of_copy": 85}
    ONE = {"op": "layer_step", "shard": "64/4", "kv": "bf16", "tokens": 1, "context": 131072, "us": 18, "sum_us": 19}
    MANY = {**ONE, "tokens": 64, "us": 102, "sum_us": 100}

    def run_tool(self, cases):
        name = ("op", "shard", "kv", "tokens", "context")
        cell = lambda case, **bounds: {**{key: case[key] for key in name}, **bounds}
        targets = {"layer": {"record": "r.json", "cells": [
            cell(self.WRITE, percent_of_copy=85), cell(self.ONE, us=18, sum_less_us=1), cell(self.MANY, sum_factor=1.02)]}}
        return self.run_on("layer", targets, [("r", "layer", {"cases": cases}, None)])

    def test_shares_times_and_sums_are_met_at_their_bounds(self):
        text = self.passes([self.WRITE, self.ONE, self.MANY])
        self.assertEqual(text.count("met  "), 4, text)

    def test_each_is_missed_just_past_them(self):
        self.fails("missed      write 64/4 bf16 2048 tokens: 84.9 % of the copy rate", [{**self.WRITE, "percent_of_copy": 84.9}, self.ONE, self.MANY])
        self.fails("missed      layer_step 64/4 bf16 B 1 @ 131072: 18.10 of at most 18.00", [self.WRITE, {**self.ONE, "us": 18.1, "sum_us": 20}, self.MANY])
        self.fails("the operators' sum less 1 us: 18.00 of at most 17.90", [self.WRITE, {**self.ONE, "sum_us": 18.9}, self.MANY])
        self.fails("1.02 times the operators' sum: 102.10 of at most 102.00", [self.WRITE, self.ONE, {**self.MANY, "us": 102.1}])

    def test_a_cell_that_was_not_measured_fails(self):
        self.fails("no result   layer_step 64/4 bf16 B 64 @ 131072", [self.WRITE, self.ONE])


class Portable(ToolTest):
    """The part of the portable backend's kernels: three reports in one record."""
    DECODE = {"kv": "bf16", "shard": "64/4", "m": 1, "batch": 64, "us": 70.0, "percent_of_gather": 85.0, "backend": "portable"}
    PREFILL = {"kv": "bf16", "shard": "64/4", "queries": 8192, "context": 24576, "selection": "0.97", "us": 2000.0,
               "tflops": 250.0, "backend": "portable"}
    INDEX = {"products": "bf16", "m": 1, "batch": 64, "context": 32768, "us": 130.0, "percent_of_gather": 85.0, "backend": "portable"}

    def run_tool(self, decode=(DECODE,), prefill=(PREFILL,), index=(INDEX,), peer_us=71.0):
        cell = lambda case, *fields: {name: value for name, value in case.items() if name not in ("us", "backend") or name in fields}
        peer = lambda case, name, us: {**{key: value for key, value in cell(case).items() if key not in ("tflops", "percent_of_gather")},
                                       "peer": name, "us": us}
        others = {"cells": [], "ratios": []}
        targets = {
            "decode": {**others, "peers": {"record": "p.json", "measured": ["triton"], "cells": [peer(self.DECODE, "triton", 72.0), peer(self.DECODE, "other", 1.0)]}},
            "prefill": {**others, "peers": [peer(self.PREFILL, "triton", 2001.0), peer(self.PREFILL, "other", 1.0)]},
            "index": {**others, "peers": {"measured": [], "cells": [peer(self.INDEX, "triton", 131.0), peer(self.INDEX, "other", 1.0)]}},
            "portable": {"record": "r.json", "backend": "portable", "peers": {"names": ["triton"]},
                         "decode": {"cells": [cell(self.DECODE, "us")]}, "prefill": {"cells": [cell(self.PREFILL)]},
                         "index": {"cells": [cell(self.INDEX)]}}}
        results = {name: {"cases": list(cases)} for name, cases in (("decode", decode), ("prefill", prefill), ("index", index))}
        peers = {"cases": [{**peer(self.DECODE, "triton", peer_us)}]}
        return self.run_on("portable", targets, (("r", "portable", results, None), ("p", "peers", peers, None)))

    def test_shares_rates_and_times_are_met_at_their_bounds(self):
        text = self.passes()
        self.assertEqual(text.count("met  "), 8, text)  # of decode two and two peers, of prefill and index one and one
        self.assertNotIn("other", text)

    def test_each_is_missed_just_past_them(self):
        self.fails("missed      decode bf16 64/4 m 1 B 64: percent_of_gather 84.9 of at least 85.0", decode=[{**self.DECODE, "percent_of_gather": 84.9}])
        self.fails("missed      decode bf16 64/4 m 1 B 64: us 70.1 of at most 70.0", decode=[{**self.DECODE, "us": 70.1}])
        self.fails("missed      prefill bf16 64/4 8192 @ 24576 0.97: tflops 249.9 of at least 250.0", prefill=[{**self.PREFILL, "tflops": 249.9}])
        self.fails("missed      index bf16 4 heads m 1 B 64 @ 32768: percent_of_gather 84.9", index=[{**self.INDEX, "percent_of_gather": 84.9}])

    def test_ahead_of_the_peers(self):
        self.fails("missed      ahead of triton, bf16 64/4 m 1 B 64, same card: 70.00 of less than 69.00", peer_us=69.0)
        self.fails("us, ahead of triton: 2002.0 of less than 2001.0", prefill=[{**self.PREFILL, "us": 2002.0}])
        self.fails("missed      ahead of triton, bf16 4 heads m 1 B 64 @ 32768, published: 132.00 of less than 131.00", index=[{**self.INDEX, "us": 132.0}])

    def test_what_another_backend_served_or_nobody_measured_fails(self):
        self.fails("other       index bf16 4 heads m 1 B 64 @ 32768 is of backend sm90", index=[{**self.INDEX, "backend": "sm90"}])
        self.fails("no result   prefill bf16 64/4 8192 @ 24576 0.97: tflops", prefill=())


class Cpu(ToolTest):
    """The part of the CPU: shares of a bound, times between cells and beside a peer's."""
    CELL = {"isa": "amx", "op": "decode", "kv": "bf16", "shard": "16/1", "m": 1, "batch": [1, 8], "context": 1024, "percent": 60}
    PEER = {"peer": "torch", "isa": "amx", "op": "decode", "kv": "bf16", "shard": "16/1", "m": 1, "context": 1024, "times": 3}
    TEXT = "amx decode 16/1 bf16 m 1 batch 1 context 1024"

    @staticmethod
    def case(percent=60.0, **changes):
        return {"isa": "amx", "op": "decode", "kv": "bf16", "shard": "16/1", "m": 1, "tokens": 0, "batch": 1, "context": 1024,
                "selection": "0.90", "us": 100.0, "percent": percent, "bound": "memory", **changes}

    def run_tool(self, cases, cells=None, ratios=(), peers=(), theirs=(), record=None, peer_record=None):
        targets = {"cpu": {"record": "r.json", "cells": [self.CELL] if cells is None else cells, "ratios": list(ratios),
                           "peers": {"record": "p.json", "cells": list(peers)}}}
        return self.run_on("cpu", targets, [("r", "bench", {"cases": list(cases)}, record), ("p", "torch", {"cases": list(theirs)}, peer_record)])

    def test_shares_of_the_bound(self):
        both = [self.case(), self.case(61, batch=8)]
        self.assertIn(f"met         {self.TEXT}: 60.0 % of the bound, of at least 60 (memory)", self.passes(both))
        self.fails(f"missed      {self.TEXT}: 59.9 %", [self.case(59.9), both[1]])
        self.fails("no result   amx decode 16/1 bf16 m 1 batch 8", both[:1])
        self.fails("stale       r.json", both, record={"sources_sha256": "0"})

    def test_ratios(self):
        ratio = {"what": "long", "of": {"context": 2048}, "at_most": 1.1, "at": {**self.CELL, "batch": 1}}
        cases = [self.case(), self.case(batch=8), self.case(context=2048, us=110.0)]
        self.assertIn(f"met         long, {self.TEXT}: 1.10 of at most 1.1", self.passes(cases, ratios=[ratio]))
        self.fails(f"missed      long, {self.TEXT}: 1.11", [*cases[:2], {**cases[2], "us": 111.0}], ratios=[ratio])
        self.fails(f"no result   long, {self.TEXT}", cases[:2], ratios=[ratio])

    def test_times_as_fast_as_a_peer_in_the_same_run(self):
        theirs = [{**self.case(), "peer": "torch", "us": 300.0, "our_us": 100.0}]
        self.assertIn(f"met         ahead of torch, {self.TEXT}: 3.00 times as fast", self.passes([], cells=[], peers=[self.PEER], theirs=theirs))
        self.fails("2.97 times as fast, of at least 3", [], cells=[], peers=[self.PEER], theirs=[{**theirs[0], "our_us": 101.0}])
        self.fails(f"no result   ahead of torch, {self.TEXT}", [], cells=[], peers=[self.PEER])
        self.fails("no record   ", [], cells=[], peers=[self.PEER], peer_record=False)


class TheTool(unittest.TestCase):
    def test_hashes_are_those_of_gpu_check(self):
        for part in ("decode", "peers"):
            done = subprocess.run([ROOT / "tools/gpu_check", "hash", BUILD, part], check=True, capture_output=True, text=True)
            self.assertEqual(check_targets.hash_of(BUILD, part), done.stdout.strip())

    def test_hashes_of_the_cpu_are_of_what_computes_and_measures(self):
        hashes = {part: check_targets.hash_of(BUILD, part) for part in ("bench", "torch")}
        self.assertEqual(len(set(hashes.values())), 2)
        for figure in hashes.values():
            self.assertRegex(figure, "^[0-9a-f]{64}$")

    def test_it_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([ROOT / "tools/check_targets", "decode", "--results", folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"no record   {folder}/h200-decode.json", done.stdout)


class TheTargets(unittest.TestCase):
    """bench/targets.json names the cells that the benchmarks measure, all of them."""

    def test_cells_are_those_of_decode_bench(self):
        bench = json.loads(subprocess.run(
            [pathlib.Path(BUILD) / "bench/gpu/decode_bench", "--selection", ROOT / "data/real_selection.npy", "--inputs"],
            check=True, capture_output=True, text=True).stdout)
        targets = json.loads((ROOT / "bench/targets.json").read_text())["decode"]
        named = {key for cell in targets["cells"] for key, _ in expand(cell)}
        for ratio in targets["ratios"]:
            for key, cell in expand(ratio["at"]):
                self.assertIn(key, named)
                named_too = key_of({"kv": key[0], "shard": key[1], "m": key[2], "batch": key[3]}, **ratio["of"])
                named = named | {named_too}
        self.assertEqual(named, {key_of(one) for one in bench["cases"]})
        for cell in targets["peers"]["cells"]:
            for key, _ in expand(cell):
                self.assertIn(key, named)

    def test_cells_are_workloads_of_cpu_check(self):
        targets = json.loads((ROOT / "bench/targets.json").read_text())["cpu"]
        timed = {CPU.key_of(cpu_check.cell_of("any", json.loads(line))) for line in (ROOT / "bench/workloads/cpu.jsonl").read_text().splitlines()}
        named = {CPU.key_of(dict(zip(CPU.key, key)), isa="any")
                 for cell in [*targets["cells"], *targets["peers"]["cells"]] for key, _ in CPU.expand(cell)}
        for ratio in targets["ratios"]:
            for key, _ in CPU.expand({**ratio["at"], "isa": "any"}):
                named |= {key, CPU.key_of(dict(zip(CPU.key, key)), **ratio["of"])}
        self.assertEqual(named, timed)

    def test_the_page_of_the_cpu_shows_its_records(self):
        for part in ("bench", "torch"):
            record = ROOT / f"bench/results/cpu-{part}.json"
            shown = subprocess.run([ROOT / "tools/cpu_check", "table", record], check=True, capture_output=True, text=True).stdout
            self.assertIn(shown, (ROOT / "docs/cpu.md").read_text())

    def test_cells_are_those_of_index_bench(self):
        bench = json.loads(subprocess.run([pathlib.Path(BUILD) / "bench/gpu/index_bench", "--inputs"], check=True,
                                          capture_output=True, text=True).stdout)
        targets = json.loads((ROOT / "bench/targets.json").read_text())["index"]
        named = {key for cell in targets["cells"] for key, _ in INDEX.expand(cell)}
        for cell in targets["peers"]["cells"]:
            self.assertLessEqual({key for key, _ in INDEX.expand(cell)}, named)
        for ratio in targets["ratios"]:
            base = {key for key, _ in INDEX.expand(ratio["at"])}
            self.assertLessEqual(base, named)
            named = named | {INDEX.key_of(dict(zip(INDEX.key, key)), **ratio["of"]) for key in base}
        self.assertEqual(named, {INDEX.key_of(case) for case in bench["cases"]})
        texts = {INDEX.text_of(key) for key in named}
        self.assertEqual(len(texts), len(named))
        for text in ("e4m3 exact 4 heads 8192 @ 24576", "e4m3 q bf16 1 head m 1 B 64 @ 131072"):
            only = subprocess.run([pathlib.Path(BUILD) / "bench/gpu/index_bench", "--inputs", "--only", text], check=True,
                                  capture_output=True, text=True).stdout
            self.assertEqual([INDEX.text_of(INDEX.key_of(case)) for case in json.loads(only)["cases"]], [text])

    def test_cells_of_the_layer_are_among_those_of_layer_bench(self):
        bench = json.loads(subprocess.run([pathlib.Path(BUILD) / "bench/gpu/layer_bench", "--inputs"], check=True,
                                          capture_output=True, text=True).stdout)
        measured = {LAYER.key_of(case) for case in bench["cases"]}
        self.assertEqual(len(measured), len(bench["cases"]))
        targets = json.loads((ROOT / "bench/targets.json").read_text())["layer"]
        self.assertLessEqual({key for cell in targets["cells"] for key, _ in LAYER.expand(cell)}, measured)
        text = "layer_step 64/4 e4m3 B 64 @ 131072"
        only = subprocess.run([pathlib.Path(BUILD) / "bench/gpu/layer_bench", "--inputs", "--only", text], check=True,
                              capture_output=True, text=True).stdout
        self.assertEqual([LAYER.text_of(LAYER.key_of(case)) for case in json.loads(only)["cases"]], [text])

    def test_cells_of_the_portable_kernels_are_among_those_of_the_benchmarks(self):
        targets = json.loads((ROOT / "bench/targets.json").read_text())["portable"]
        for operator, kind in (("decode", DECODE), ("prefill", PREFILL), ("index", INDEX)):
            selection = [] if operator == "index" else ["--selection", ROOT / "data/real_selection.npy"]
            bench = json.loads(subprocess.run([pathlib.Path(BUILD) / f"bench/gpu/{operator}_bench", *selection, "--inputs"],
                                              check=True, capture_output=True, text=True).stdout)
            named = {key for cell in targets[operator]["cells"] for key, _ in kind.expand(cell)}
            self.assertLessEqual(named, {kind.key_of(case) for case in bench["cases"]})


if __name__ == "__main__":
    unittest.main()
