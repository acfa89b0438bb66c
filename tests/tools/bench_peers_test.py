# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""bench/peers: its inputs are decode_bench's, and it says what it misses. Needs neither PyTorch nor a GPU.

    bench_peers_test.py DECODE_BENCH
"""
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DECODE_BENCH = sys.argv.pop(1)
PEERS = ROOT / "bench/peers"
sys.dont_write_bytecode = True
sys.path[:0] = [str(PEERS), str(ROOT / "bench")]
import decode_peers  # noqa: E402
import inputs  # noqa: E402
import vllm_triton  # noqa: E402

SELECTION = ROOT / "data/real_selection.npy"


class Int64Vector:
    """As much of a tensor of int64 as inputs.random_values uses: sums and products wrap around."""

    def __init__(self, numbers):
        self.numbers = [((number + 2**63) & (2**64 - 1)) - 2**63 for number in numbers]

    def zipped(self, other, operation):
        others = other.numbers if isinstance(other, Int64Vector) else [other] * len(self.numbers)
        return Int64Vector([operation(a, b) for a, b in zip(self.numbers, others)])

    def __mul__(self, other):
        return self.zipped(other, lambda a, b: a * b)

    def __add__(self, other):
        return self.zipped(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self.zipped(other, lambda a, b: a - b)

    def __xor__(self, other):
        return self.zipped(other, lambda a, b: a ^ b)

    def __rshift__(self, other):
        return self.zipped(other, lambda a, b: a >> b)

    def __and__(self, other):
        return self.zipped(other, lambda a, b: a & b)

    def __or__(self, other):
        return self.zipped(other, lambda a, b: a | b)

    def to(self, _):
        assert all(-2**15 <= number < 2**15 for number in self.numbers)
        return [number & 0xFFFF for number in self.numbers]


class Vectors:
    int64 = int16 = None

    @staticmethod
    def arange(begin, end, dtype, device):
        return Int64Vector(range(begin, end))


class Inputs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bench = json.loads(subprocess.run([DECODE_BENCH, "--selection", SELECTION, "--inputs"], check=True,
                                              capture_output=True, text=True).stdout)
        cls.real = inputs.read_real_selection(SELECTION)

    def test_every_cell_has_the_rows_and_tables_of_decode_bench(self):
        cases = {decode_peers.key_of(case): case for case in self.bench["cases"]}
        tables = {}
        keys = {key for name in decode_peers.NAMES for key in decode_peers.cells_of(
            json.loads((ROOT / "bench/targets.json").read_text()), name)}
        self.assertGreater(len(keys), 80)
        for key in keys:
            case = cases[key]
            ids, lengths, columns = inputs.rows_of(case["shard"], case["m"], case["batch"], case["selection"], self.real)
            self.assertEqual(inputs.checksum(ids), case["ids"], key)
            self.assertEqual(inputs.checksum(lengths), case["lengths"], key)
            table = case["batch"], columns, inputs.pool_pages(case["shard"], case["kv"])
            if table not in tables:
                tables[table] = inputs.checksum(inputs.table_of_call(*table, 3))
            self.assertEqual(tables[table], case["table_of_call_3"], key)

    def test_values_are_those_of_decode_bench(self):
        for kv in inputs.VALUE_BITS:
            values = inputs.random_values(Vectors, kv, 1024, 1, None)
            self.assertEqual(inputs.checksum(values), self.bench["values"][kv], kv)

    def test_the_grid_has_its_published_checksums(self):
        for m, published in ((1, "ddbcdd0cc64181e9"), (4, "528f48380314d31f"), (8, "207284e5acadaa05"),
                             (16, "0f9b0d56464939cb")):
            self.assertEqual(inputs.checksum(inputs.decode_rows(64, m, 131072 - 3, 4, 1)), published)
        self.assertEqual(inputs.checksum(inputs.selection_rows(2048, 24576, 4, 900, 11)), "1887fb46325c99c4")
        self.assertEqual(inputs.checksum(inputs.table_rows(64, 1024, 300000, 7)), "3a5da9bbb7be957e")

    def test_a_file_that_is_no_selection_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "other.npy"
            path.write_bytes(b"PK")
            with self.assertRaisesRegex(SystemExit, "other.npy: is no .npy file"):
                inputs.read_npy(path)
            path.write_bytes(SELECTION.read_bytes().replace(b"(8192, 4, 16)", b"(4096, 8, 16)"))
            with self.assertRaisesRegex(SystemExit, r"its shape is \(4096, 8, 16\)"):
                inputs.read_real_selection(path)


class MissingPieces(unittest.TestCase):
    def test_without_pytorch_it_says_so(self):
        # -S: no site packages, so that a PyTorch of this machine does not count.
        done = subprocess.run([sys.executable, "-S", PEERS / "decode_peers.py"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("decode_peers: PyTorch is not installed", done.stderr)

    def test_without_pytorch_that_of_the_cpu_is_skipped_with_a_message(self):
        done = subprocess.run([sys.executable, "-S", PEERS / "torch_cpu.py", ROOT / "bench/workloads/cpu.jsonl"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, "writes are nothing to PyTorch's attention")
        self.assertIn("allowed: op decode or prefill and kv bf16", done.stderr)
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write('{"op": "decode", "hq": 16, "hkv": 1, "kv": "bf16", "m": 1, "batch": 1, "context": 131072}\n')
            file.flush()
            done = subprocess.run([sys.executable, "-S", PEERS / "torch_cpu.py", file.name], capture_output=True, text=True)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("torch_cpu: skipped: PyTorch is not installed", done.stderr)

    def test_without_the_kernels_it_names_the_files_and_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "m3ops").mkdir()
            (pathlib.Path(folder) / "m3ops/__init__.py").touch()
            with self.assertRaises(decode_peers.Unavailable) as caught:
                decode_peers.open_peer("vllm-triton", None, folder)
            self.assertIn("m3ops lacks index_topk.py, sparse_attn.py: run `decode_peers.py fetch --ops DIR`",
                          str(caught.exception))

    def test_wrong_use(self):
        done = subprocess.run([sys.executable, PEERS / "decode_peers.py", "--peer", "none"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)

    def test_of_the_wheel_three_files_are_kept(self):
        wheel = io.BytesIO()
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in (*vllm_triton.FILES, "other.py"):
                archive.writestr(vllm_triton.INSIDE + name, name)
        with tempfile.TemporaryDirectory() as folder:
            vllm_triton.cut(wheel, folder)
            self.assertEqual(sorted(path.name for path in (pathlib.Path(folder) / "m3ops").iterdir()),
                             sorted(vllm_triton.FILES))
            self.assertIsNone(vllm_triton.missing(folder))


if __name__ == "__main__":
    unittest.main()
