# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""tools/sparsity: docs/sparsity.md and its drawing are those of the records; a record that lacks a case is refused."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOL = ROOT / "tools/sparsity"
RECORD = ROOT / "bench/results/h200-dense.json"


def run(*arguments):
    return subprocess.run([sys.executable, TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")


class Page(unittest.TestCase):
    def test_table_and_drawing_are_those_of_the_record(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = pathlib.Path(folder) / "drawn.svg"
            shown = run(RECORD, "--svg", svg)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertIn("begin -->\n" + shown.stdout + "<!-- tools/sparsity: end", (ROOT / "docs/sparsity.md").read_text(encoding="utf-8"))
            self.assertEqual(svg.read_text(encoding="utf-8"), (ROOT / "docs/sparsity.svg").read_text(encoding="utf-8"))
            xml.etree.ElementTree.parse(svg)

    def test_record_has_every_case_of_the_workloads(self):
        wanted = [json.loads(line) for line in (ROOT / "bench/workloads/dense.jsonl").read_text().splitlines()]
        report = json.loads(RECORD.read_text())
        report = report.get("results", report)
        found = [{key: case["workload"][key] for key in workload} for workload, case in zip(wanted, report["cases"])]
        self.assertEqual(found, wanted)

    def test_pages_are_filled_between_their_marks(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            marks = "<!-- tools/sparsity: begin -->\n{}<!-- tools/sparsity: end -->\n"
            page.write_text("before\n" + marks.format("old\n") + "after\n")
            self.assertEqual(run(RECORD, "--page", page).returncode, 0)
            self.assertEqual(page.read_text(), "before\n" + marks.format(run(RECORD).stdout) + "after\n")
            page.write_text("no marks\n")
            self.assertIn("lacks the marks", run(RECORD, "--page", page).stderr)

    def test_records_that_lack_a_case_are_refused(self):
        report = json.loads(RECORD.read_text())
        report = copy.deepcopy(report.get("results", report))
        del report["cases"][0]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "record.json"
            path.write_text(json.dumps(report))
            ended = run(path)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("lack a time", ended.stderr)


if __name__ == "__main__":
    unittest.main()
