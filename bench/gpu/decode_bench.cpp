// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/io/generate.h"
#include "cuda/common/launch.h"
#include "graph_timer.h"
#include "msa/msa.h"
#include "rates.h"

/// \file
/// Decode attend on a CUDA device: cold pages, in a graph, beside the card's own rates.
///
///     decode_bench [FILE]    prints the table, and writes FILE (JSON) where one is named
///
/// Every call of a graph has a page table of its own over a pool of 12 GB, so that a page is met
/// again only after far more than L2 holds. Selections are the grid's (docs/workloads.md).

namespace msa::bench {
namespace {

using cuda::check;
using Json = nlohmann::json;

constexpr std::size_t pool_bytes = std::size_t{12} << 30;
constexpr int replays = 11;
constexpr std::int64_t keys = 16384 - 3;  // of every request; the time does not depend on it
constexpr std::int64_t columns = 128;     // of a page table
constexpr Device device{DeviceType::cuda, 0};

/// Device memory.
class Memory {
 public:
  explicit Memory(std::size_t bytes) {
    check(cudaMalloc(&data_, std::max<std::size_t>(bytes, 16)), "bench", "cudaMalloc");
  }
  template <class T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
    check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
          "bench", "cudaMemcpy");
  }
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() { cudaFree(data_); }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// Values of about unit size: random mantissas and signs, exponents around 0.
std::vector<std::uint16_t> random_values(DType type, std::size_t count, std::uint64_t seed) {
  struct Mask {
    std::uint16_t keep, set;
  };
  const Mask mask = type == DType::bf16   ? Mask{0x80ff, 0x3f00}
                    : type == DType::f16  ? Mask{0x87ff, 0x3800}
                    : type == DType::e4m3 ? Mask{0x8f8f, 0x3030}
                                          : Mask{0x8787, 0x3838};
  cli::SplitMix64 random(seed);
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& x : values) {
    x = static_cast<std::uint16_t>((random.next() & mask.keep) | mask.set);
  }
  return values;
}

void fill_pool(const Memory& pool, DType type) {
  constexpr std::size_t chunk = std::size_t{64} << 20;
  const Memory values(random_values(type, chunk / 2, 1));
  for (std::size_t at = 0; at < pool_bytes; at += chunk) {
    check(cudaMemcpy(static_cast<char*>(pool.data()) + at, values.data(), chunk,
                     cudaMemcpyDeviceToDevice),
          "bench", "cudaMemcpy");
  }
}

struct Shape {
  std::int64_t hq, hkv, m, batch;
  DType kv;
  KVLayout layout = KVLayout::LBHNC;
  bool lse = false;
};

/// What a call must do at least.
struct Work {
  double bytes = 0;  // distinct (page, head) tiles, q and out
  double flops = 0;  // of (row, page) pairs, rows in groups of four that skip a page none chose
};

Work work_of(const Shape& s, const std::vector<std::int32_t>& selection) {
  const auto distinct = [&](std::int64_t request, std::int64_t head, std::int64_t begin,
                            std::int64_t end) {
    std::set<std::int32_t> blocks;
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t slot = 0; slot < cli::generated_topk; ++slot) {
        const std::int64_t token = request * s.m + row;
        const std::size_t at =
            static_cast<std::size_t>((token * s.hkv + head) * cli::generated_topk + slot);
        if (selection[at] >= 0) blocks.insert(selection[at]);
      }
    }
    return static_cast<double>(blocks.size());
  };
  double tiles = 0, pairs = 0;
  for (std::int64_t r = 0; r < s.batch; ++r) {
    for (std::int64_t h = 0; h < s.hkv; ++h) {
      tiles += distinct(r, h, 0, s.m);
      for (std::int64_t row = 0; row < s.m; row += 4) {
        const std::int64_t end = std::min(row + 4, s.m);
        pairs += distinct(r, h, row, end) * static_cast<double>(end - row);
      }
    }
  }
  const double tile = page_size * 2 * head_dim * static_cast<double>(size_of(s.kv));
  const double rows = static_cast<double>(s.batch * s.m * s.hq);
  return {tiles * tile + 2 * rows * head_dim * 2,
          65536.0 * static_cast<double>(s.hq / s.hkv) * pairs};
}

/// One shape: `sets` calls on pages of their own.
class Calls {
 public:
  Calls(const Shape& s, const Memory& pool, cudaStream_t stream)
      : shape_(s),
        pages_(static_cast<std::int64_t>(pool_bytes) /
               (s.hkv * page_size * 2 * head_dim * static_cast<std::int64_t>(size_of(s.kv)))),
        ids_(cli::decode_rows(s.batch, s.m, keys, s.hkv, 1)),
        work_(work_of(s, ids_)),
        sets_(static_cast<int>(std::clamp(400e6 / work_.bytes + 1, 20.0, 64.0))),
        q_(random_values(DType::bf16, count(), 3)),
        out_(count() * 2),
        lse_(count() / head_dim * 4),
        lengths_(std::vector<std::int32_t>(static_cast<std::size_t>(s.batch),
                                           static_cast<std::int32_t>(keys))) {
    for (int i = 0; i < sets_; ++i) {
      selections_.emplace_back(ids_);
      tables_.emplace_back(
          cli::table_rows(s.batch, columns, pages_, static_cast<std::uint64_t>(7 * i + 1)));
    }
    const std::int64_t tokens = s.batch * s.m;
    args_.q = ConstTensor::dense(q_.data(), DType::bf16, {tokens, s.hq, head_dim}, device);
    args_.out = Tensor::dense(out_.data(), DType::bf16, {tokens, s.hq, head_dim}, device);
    if (s.lse) args_.lse = Tensor::dense(lse_.data(), DType::f32, {tokens, s.hq}, device);
    args_.kv_cache =
        KVCache(kv_layer_view(pool.data(), s.kv, s.layout, {1, pages_, s.hkv}, 0, device));
    args_.batch.seq_lens = ConstTensor::dense(lengths_.data(), DType::i32, {s.batch}, device);
    args_.batch.num_decodes = s.batch;
    args_.batch.decode_query_len = s.m;
    args_.batch.num_actual_tokens = tokens;
    args_.batch.max_query_len = s.m;
    args_.batch.max_seq_len = keys;
    args_.stream = {stream};
  }

  int sets() const { return sets_; }
  const Work& work() const { return work_; }
  void call(int set) {
    args_.selection =
        ConstTensor::dense(selections_[static_cast<std::size_t>(set)].data(), DType::i32,
                           {shape_.batch * shape_.m, shape_.hkv, cli::generated_topk}, device);
    args_.batch.block_table = ConstTensor::dense(tables_[static_cast<std::size_t>(set)].data(),
                                                 DType::i32, {shape_.batch, columns}, device);
    attend(args_);
  }

 private:
  std::size_t count() const {
    return static_cast<std::size_t>(shape_.batch * shape_.m * shape_.hq * head_dim);
  }

  Shape shape_;
  std::int64_t pages_;
  std::vector<std::int32_t> ids_;
  Work work_;
  int sets_;
  Memory q_, out_, lse_, lengths_;
  std::vector<Memory> selections_, tables_;
  AttendArgs args_;
};

Json measure_rates(const Memory& pool, cudaStream_t stream) {
  Json rates;
  constexpr std::size_t copied = std::size_t{2} << 30;
  char* bytes = static_cast<char*>(pool.data());
  const GraphTime copy = time_graph(stream, 3, replays, Edges::full, [&](int i) {
    launch_copy(bytes + (i % 2 + 3) * copied, bytes + i % 3 * copied, copied, stream);
  });
  rates["copy_tbps"] = 2e-6 * static_cast<double>(copied) / copy.median;
  for (const int kb : {64, 32, 16}) {
    const Gather gather(pool.data(), pool_bytes, static_cast<std::size_t>(kb) * 1024,
                        (std::int64_t{2} << 30) / (kb * 1024));
    const GraphTime time = time_graph(stream, 3, replays, Edges::full, [&](int i) {
      gather.launch(static_cast<std::uint32_t>(i + 1), stream);
    });
    rates["gather_" + std::to_string(kb) + "k_tbps"] =
        1e-6 * static_cast<double>(gather.bytes()) / time.median;
  }
  return rates;
}

Json measure(const Shape& s, const Memory& pool, cudaStream_t stream) {
  Calls calls(s, pool, stream);
  for (int i = 0; i < 2; ++i) calls.call(i);
  check(cudaStreamSynchronize(stream), "bench", "cudaStreamSynchronize");
  const auto run = [&](int i) { calls.call(i % calls.sets()); };
  const GraphTime alone = time_graph(stream, calls.sets(), replays, Edges::full, run);
  const GraphTime chain = time_graph(stream, calls.sets(), replays, Edges::dependent, run);
  // kernels.md's rule: what a call may take.
  const double rate = size_of(s.kv) == 2 ? 4.55e6 : 4.42e6;  // bytes a microsecond
  const double rule = 3.8 + std::max(1.03 * calls.work().bytes / rate, calls.work().flops / 600e6);
  const std::string shard = std::to_string(s.hq) + "/" + std::to_string(s.hkv);
  std::printf(
      "%-5s %-5s %-6s m %-2d B %-4d %8.2f us (%.2f to %.2f)  chain %8.2f  rule %7.2f  %5.2f "
      "TB/s%s\n",
      name(s.kv), shard.c_str(), name(s.layout), static_cast<int>(s.m), static_cast<int>(s.batch),
      alone.median, alone.fastest, alone.slowest, chain.median, rule,
      calls.work().bytes / alone.median * 1e-6, s.lse ? "  with LSE" : "");
  std::fflush(stdout);
  return {{"kv", name(s.kv)},
          {"shard", shard},
          {"layout", name(s.layout)},
          {"m", s.m},
          {"batch", s.batch},
          {"lse", s.lse},
          {"us", alone.median},
          {"fastest_us", alone.fastest},
          {"slowest_us", alone.slowest},
          {"chain_us", chain.median},
          {"rule_us", rule},
          {"bytes", calls.work().bytes},
          {"backend", last_backend()}};
}

std::vector<Shape> grid(DType kv) {
  std::vector<Shape> shapes;
  for (std::int64_t batch : {1, 8, 16, 32, 64, 128, 256}) shapes.push_back({64, 4, 1, batch, kv});
  if (kv == DType::f16 || kv == DType::e5m2) {
    std::erase_if(shapes, [](const Shape& s) { return s.batch != 8 && s.batch != 64; });
    return shapes;
  }
  for (std::int64_t batch : {1, 8, 32, 64, 256}) shapes.push_back({64, 4, 4, batch, kv});
  for (std::int64_t batch : {1, 8, 32, 64}) shapes.push_back({64, 4, 8, batch, kv});
  for (std::int64_t batch : {1, 8, 32, 64, 256}) shapes.push_back({8, 1, 4, batch, kv});
  for (std::int64_t batch : {8, 64}) {
    shapes.push_back({8, 1, 1, batch, kv});
    shapes.push_back({4, 1, 1, batch, kv});
    shapes.push_back({64, 4, 1, batch, kv, KVLayout::LBNHC});
    shapes.push_back({64, 4, 1, batch, kv, KVLayout::LBHNC, true});
  }
  return shapes;
}

int run(int argc, char** argv) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "bench", "cudaStreamCreate");
  const Memory pool(pool_bytes);
  fill_pool(pool, DType::bf16);
  Json report;
  report["rates"] = measure_rates(pool, stream);
  std::printf("%s\n", report["rates"].dump().c_str());
  for (const DType kv : {DType::bf16, DType::e4m3, DType::f16, DType::e5m2}) {
    fill_pool(pool, kv);
    for (const Shape& shape : grid(kv)) report["cases"].push_back(measure(shape, pool, stream));
  }
  if (argc < 2) return 0;
  std::ofstream file(argv[1]);
  file << report.dump(1) << "\n";
  return file.flush() ? 0 : 2;
}

}  // namespace
}  // namespace msa::bench

int main(int argc, char** argv) {
  try {
    return msa::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "decode_bench: %s\n", error.what());
    return 2;
  }
}
