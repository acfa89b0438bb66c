# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""tools/gpu_check, as far as a machine without a GPU goes: hashes, what a build needs, and records of stand-ins.

    gpu_check_test.py BUILD    a build tree that the benchmarks are built in
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = sys.argv.pop(1)
TOOL = ROOT / "tools/gpu_check"


def run(*command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    return done.returncode, done.stdout + done.stderr


def script(path, text):
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Hashes(unittest.TestCase):
    def test_of_other_binaries_or_files_are_others(self):
        hashes = [run(TOOL, "hash", BUILD, part)[1] for part in ("decode", "index", "peers")]
        self.assertEqual(len(set(hashes)), 3)
        for text in hashes:
            self.assertRegex(text, r"^[0-9a-f]{64}\n$")

    def test_an_unknown_part_is_refused(self):
        code, text = run(TOOL, "hash", BUILD, "nothing")
        self.assertEqual(code, 1)
        self.assertIn("unknown part 'nothing'; known: conformance", text)

    def test_a_stage_of_an_unknown_part_is_refused(self):
        code, text = run(TOOL, "stage", BUILD, "unused", "nothing")
        self.assertEqual(code, 1)
        self.assertIn("unknown part 'nothing'; known: conformance", text)


class Builds(Scratch):
    """Of a build tree that knows one binary."""

    def setUp(self):
        super().setUp()
        (self.folder / "build.ninja").write_text(
            "rule copy\n  command = cp $in $out && chmod +x $out\n"
            f"build source.o: copy {TOOL}\nbuild tests/conformance/conformance_test: copy source.o\n"
            "build tests/gpu/cluster_barriers: copy source.o\n")

    def binary(self, path):
        (self.folder / path).parent.mkdir(parents=True)
        script(self.folder / path, "")

    def test_a_binary_that_the_build_does_not_make_is_refused(self):
        self.binary("bench/gpu/decode_bench")
        for command in (("hash", self.folder, "decode"), ("stage", self.folder, self.folder / "stage", "decode")):
            code, text = run(TOOL, *command)
            self.assertEqual(code, 1)
            self.assertIn("does not build bench/gpu/decode_bench", text)

    def test_the_sanitizers_are_four_parts(self):
        script(self.folder / "strip", 'cp "${@: -1}" "$2"\n')
        path = f"{self.folder}:{os.environ['PATH']}"
        code, text = run(TOOL, "stage", self.folder, self.folder / "stage", "sanitizers", PATH=path)
        self.assertEqual(code, 0, text)
        hashes = sorted(file.name for file in (self.folder / "stage").glob("*.sha256"))
        self.assertEqual(hashes, [f"{tool}check.sha256" for tool in ("init", "mem", "race", "sync")])

    def test_an_object_whose_headers_are_not_known_is_refused(self):
        (self.folder / "build.ninja").write_text(
            "rule copy\n  command = cp $in $out && chmod +x $out\n"
            "rule compile\n  command = cp $in $out && echo $out: >$out.d\n  depfile = $out.d\n  deps = gcc\n"
            f"build source.o: compile {TOOL}\nbuild tests/conformance/conformance_test: copy source.o\n")
        code, text = run(TOOL, "hash", self.folder, "conformance")
        self.assertEqual(code, 1)
        self.assertIn("ninja knows no header of source.o: touch their sources and build them again", text)

    def test_an_old_binary_is_built_again(self):
        self.binary("tests/conformance/conformance_test")
        code, _ = run(TOOL, "hash", self.folder, "conformance")
        self.assertEqual(code, 0)
        self.assertEqual((self.folder / "tests/conformance/conformance_test").read_bytes(), TOOL.read_bytes())


class Building(Scratch):
    def setUp(self):
        super().setUp()
        script(self.folder / "nvcc", 'echo "Cuda compilation tools, release 12.4, V12.4.131"\n')

    def test_everything_that_is_missing_is_named_at_once(self):
        few = self.folder / "bin"
        few.mkdir()
        for name in ("bash", "cat", "dirname", "head", "sed", "sort"):
            (few / name).symlink_to(shutil.which(name))
        code, text = run(TOOL, "--build", "decode", PATH=str(few), CUDACXX=str(self.folder / "nvcc"))
        self.assertEqual(code, 1)
        self.assertIn(f"{self.folder}/nvcc is of CUDA 12.4; allowed: 12.9 or later", text)
        self.assertIn("apt-get install cmake ninja-build g++ libhwy-dev libgtest-dev librapidcheck-dev "
                      "nlohmann-json3-dev libcli11-dev libfmt-dev", text)

    def test_what_is_there_is_not_named(self):
        code, text = run(TOOL, "--build", "decode", CUDACXX=str(self.folder / "nvcc"))
        self.assertEqual(code, 1)
        self.assertIn("allowed: 12.9 or later", text)
        self.assertNotIn("packages are missing", text)


class Stage(Scratch):
    """A stage whose binaries are scripts."""

    def setUp(self):
        super().setUp()
        self.stage = self.folder / "stage"
        (self.stage / "bench/peers").mkdir(parents=True)
        shutil.copy(TOOL, self.stage)
        for part in ("decode", "index", "peers", "conformance", "replay"):
            (self.stage / f"{part}.sha256").write_text(f"hash of {part}\n")
        smi = self.folder / "nvidia-smi"
        script(smi, '[[ $* == *driver* ]] && echo 580.1 || echo "NVIDIA H200"\n')
        self.bench('[[ $1 == --selection && $2 == */data/real_selection.npy ]] || exit 9\n'
                   'echo \'{"cases": [1]}\' >"$3"; echo "bf16 4.80 us (4 to 5)"\n')

    def bench(self, text):
        script(self.stage / "decode_bench", text)

    def check(self, *parts, **environment):
        code, text = run(self.stage / "gpu_check", *parts, PATH=f"{self.folder}:{os.environ['PATH']}", **environment)
        records = {path.stem: json.loads(path.read_text()) for path in self.stage.glob("results/*.json")}
        return code, text, records

    def test_a_benchmark_leaves_its_record(self):
        code, text, records = self.check("run", "decode")
        self.assertEqual(code, 0, text)
        record = records["h200-decode"]
        self.assertEqual({name: record[name] for name in ("part", "passed", "device", "driver", "sources_sha256",
                                                          "tests_passed", "results")},
                         {"part": "decode", "passed": True, "device": "NVIDIA H200", "driver": "580.1",
                          "sources_sha256": "hash of decode", "tests_passed": 1, "results": {"cases": [1]}})
        self.assertRegex(text, r"decode +ok +1 +0")

    def test_the_indexer_needs_no_file(self):
        script(self.stage / "index_bench", '[[ $# == 1 ]] || exit 9\n'
               'echo \'{"cases": [3]}\' >"$1"; printf "bf16 4 heads 6.40 us (6 to 7)\\ne4m3 4 heads 5.50 us (5 to 6)\\n"\n')
        code, text, records = self.check("index")
        self.assertEqual(code, 0, text)
        record = records["h200-index"]
        self.assertEqual((record["sources_sha256"], record["tests_passed"], record["results"]), ("hash of index", 2, {"cases": [3]}))
        self.assertRegex(text, r"index +ok +2 +0")

    def msa(self, digest):
        (self.stage / "data").mkdir(exist_ok=True)
        script(self.stage / "msa", 'while [[ $1 != --json ]]; do shift; done\n'
               f'echo run >>"$(dirname "$0")/runs"; echo "{{ \\"digest\\": \\"{digest}\\" }}" >"$2"\n')

    def test_a_replay_is_repeated_with_the_same_digest(self):
        self.msa("0x12ab")
        code, text, records = self.check("replay")
        self.assertEqual(code, 0, text)
        record = records["h200-replay"]
        self.assertEqual((record["tests_passed"], record["results"]), (4, {"runs": 4 * [{"digest": "0x12ab"}]}))

    def test_a_replay_with_another_digest_fails(self):
        self.msa("0x$(wc -l <\"$(dirname \"$0\")/runs\")")
        code, text, records = self.check("replay")
        self.assertEqual(code, 1, text)
        self.assertIn("the second run's digest is 0x2, the first's 0x1", text)
        self.assertFalse(records["h200-replay"]["passed"])

    def test_run_may_be_left_out(self):
        self.assertEqual(self.check("decode")[0], 0)

    def test_peers_run_in_the_python_that_is_named(self):
        script(self.folder / "python", 'echo \'{"cases": [2]}\' >"$2"; echo "vllm-triton 6.60 us (6 to 7)"\n')
        code, text, records = self.check("peers", PYTHON=str(self.folder / "python"))
        self.assertEqual(code, 0, text)
        self.assertEqual(records["h200-peers"]["results"], {"cases": [2]})

    def test_the_first_failure_is_the_last_part(self):
        self.bench("echo broken; exit 5\n")
        script(self.stage / "conformance_test", 'echo "[  PASSED  ] 3 tests."\n')
        code, text, records = self.check("decode", "conformance")
        self.assertEqual(code, 5)
        self.assertIn("broken", text)
        self.assertEqual(list(records), ["h200-decode"])
        self.assertFalse(records["h200-decode"]["passed"])

    def test_a_run_without_a_result_fails(self):
        self.bench("exit 0\n")
        code, _, records = self.check("decode")
        self.assertEqual(code, 1)
        self.assertFalse(records["h200-decode"]["passed"])

    def test_a_skipped_test_fails(self):
        script(self.stage / "conformance_test", 'echo "[  SKIPPED ] all"; echo "[  PASSED  ] 3 tests."\n')
        code, _, records = self.check("conformance")
        self.assertEqual(code, 1)
        self.assertFalse(records["h200-conformance"]["passed"])

    def test_synccheck_leaves_out_what_the_sanitizer_does_not_survive(self):
        (self.stage / "synccheck.sha256").write_text("hash of synccheck\n")
        script(self.stage / "conformance_test", f'echo "$*" >>{self.folder}/filters; echo "[  PASSED  ] 3 tests."\n')
        sanitizer = self.folder / "compute-sanitizer"
        for right, survives, passed, left_out in ((0, 0, True, False), (0, 1, True, True), (1, 1, False, None)):
            (self.folder / "filters").unlink(missing_ok=True)
            script(self.stage / "cluster_barriers", f"exit {right}\n")
            script(sanitizer, f'[[ $* == *cluster_barriers ]] && exit {survives}; shift 4; exec "$@"\n')
            code, text, records = self.check("synccheck", COMPUTE_SANITIZER=str(sanitizer))
            self.assertEqual((code == 0, records["h200-synccheck"]["passed"]), (passed, passed), text)
            if passed:
                filters = (self.folder / "filters").read_text()
                self.assertEqual("attend_shards.world 3*/cuda_sm90" in filters.splitlines()[0].partition(":-")[2], left_out, filters)

    def test_a_missing_binary_fails_before_anything_runs(self):
        code, text, records = self.check("decode", "conformance")
        self.assertEqual(code, 1)
        self.assertIn("conformance_test is missing: stage the tree first, or --build", text)
        self.assertEqual(records, {})

    def test_a_stage_cannot_be_built(self):
        code, text, _ = self.check("--build", "decode")
        self.assertEqual(code, 1)
        self.assertIn("--build needs the source tree", text)


if __name__ == "__main__":
    unittest.main()
