// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "arguments.h"
#include "cli/io/generate.h"
#include "cuda/common/launch.h"
#include "device.h"
#include "graph_timer.h"
#include "inputs.h"
#include "msa/msa.h"
#include "prefill_inputs.h"

/// \file
/// Prefill attend on a CUDA device, in a graph, beside the card's own rates.
///
///     prefill_bench [--selection NPY] [--only TEXT] [FILE]
///                        prints the table, and writes FILE (JSON) where one is named; cells of
///                        real selections need data/real_selection.npy; TEXT: cells whose name
///                        holds it
///     prefill_bench --inputs [--selection NPY]
///                        prints checksums of the inputs; needs no device
///
/// A graph has four calls, each with a page table of its own over the pool. Rates are useful ones:
/// 4 · Hq · 128 operations a visible selected key, whatever is computed besides.

namespace msa::bench {
namespace {

using cuda::check;

constexpr int calls_of_a_graph = 4;
constexpr int replays = 7;

/// Calls of one shape.
class PrefillCalls {
 public:
  PrefillCalls(const PrefillShape& s, const PrefillRows& rows, const Memory& pool,
               cudaStream_t stream)
      : shape_(s),
        width_(prefill_table_width(s, rows)),
        q_(random_values(DType::bf16, count(), 3)),
        out_(count() * 2),
        lengths_(rows.lengths),
        contexts_(rows.contexts),
        begins_(rows.begins),
        selection_(rows.ids) {
    const std::int64_t pages =
        static_cast<std::int64_t>(pool_bytes(Variant::usual)) /
        (s.hkv * page_size * 2 * head_dim * static_cast<std::int64_t>(size_of(s.kv)));
    for (int set = 0; set < calls_of_a_graph; ++set) {
      tables_.emplace_back(prefill_table(s, rows, pages, set));
    }
    const std::int64_t tokens = s.tokens();
    args_.q = ConstTensor::dense(q_.data(), DType::bf16, {tokens, s.hq, head_dim}, device);
    args_.out = Tensor::dense(out_.data(), DType::bf16, {tokens, s.hq, head_dim}, device);
    args_.selection = ConstTensor::dense(selection_.data(), DType::i32,
                                         {tokens, s.hkv, cli::generated_topk}, device);
    args_.kv_cache =
        KVCache(kv_layer_view(pool.data(), s.kv, s.layout, {1, pages, s.hkv}, 0, device));
    args_.batch.seq_lens = ConstTensor::dense(lengths_.data(), DType::i32, {s.requests}, device);
    args_.batch.context_lens =
        ConstTensor::dense(contexts_.data(), DType::i32, {s.requests}, device);
    args_.batch.cu_seqlens_q =
        ConstTensor::dense(begins_.data(), DType::i32, {s.requests + 1}, device);
    args_.batch.num_prefills = s.requests;
    args_.batch.num_actual_tokens = tokens;
    args_.batch.max_query_len = s.queries;
    args_.batch.max_seq_len = *std::max_element(rows.lengths.begin(), rows.lengths.end());
    args_.stream = {stream};
  }

  void operator()(int set) {
    args_.batch.block_table = ConstTensor::dense(tables_[static_cast<std::size_t>(set)].data(),
                                                 DType::i32, {shape_.requests, width_}, device);
    attend(args_);
  }

 private:
  std::size_t count() const {
    return static_cast<std::size_t>(shape_.tokens() * shape_.hq * head_dim);
  }

  PrefillShape shape_;
  std::int64_t width_;
  Memory q_, out_, lengths_, contexts_, begins_, selection_;
  std::vector<Memory> tables_;
  AttendArgs args_;
};

Json cell_of(const PrefillShape& s, const PrefillRows& rows) {
  return {{"kv", name(s.kv)},
          {"shard", shard_of(s)},
          {"layout", name(s.layout)},
          {"requests", s.requests},
          {"queries", s.queries},
          {"context", s.context},
          {"selection", name(s.locality)},
          {"variant", name(s.variant)},
          {"useful_flops", useful_flops(s, rows)}};
}

Json measure(const PrefillShape& s, const RealSelection* real, const Memory& pool,
             cudaStream_t stream) {
  const PrefillRows rows = prefill_inputs(s, real);
  PrefillCalls calls(s, rows, pool, stream);
  calls(0);
  check(cudaStreamSynchronize(stream), "bench", "cudaStreamSynchronize");
  const GraphTime time =
      time_graph(stream, calls_of_a_graph, replays, Edges::full, [&](int i) { calls(i); });
  Json cell = cell_of(s, rows);
  const double tflops = 1e-6 * cell.at("useful_flops").get<double>() / time.median;
  set_time(cell, time);
  cell["tflops"] = tflops;
  cell["host_us"] = host_time(stream, [&](int i) { calls(i % calls_of_a_graph); });
  cell["backend"] = last_backend();
  std::printf("%-48s %9.1f us (%.1f to %.1f)  %6.1f TFLOP/s  host %5.2f  %s\n", text_of(s).c_str(),
              time.median, time.fastest, time.slowest, tflops, cell["host_us"].get<double>(),
              last_backend());
  std::fflush(stdout);
  return cell;
}

bool wanted(const PrefillShape& s, const RealSelection* real, const std::string& only) {
  if (s.locality == Locality::real && real == nullptr) return false;
  return text_of(s).find(only) != std::string::npos;
}

void run(const RealSelection* real, const std::string& only, const std::string& file) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "bench", "cudaStreamCreate");
  const Memory pool(pool_bytes(Variant::usual));
  fill_pool(pool, DType::bf16);
  Json report;
  report["rates"] = measure_rates(pool, stream);
  std::printf("%s\n", report["rates"].dump().c_str());
  for (const DType kv : {DType::bf16, DType::e4m3, DType::f16, DType::e5m2}) {
    fill_pool(pool, kv);
    for (const PrefillShape& shape : prefill_grid(kv)) {
      if (!wanted(shape, real, only)) continue;
      report["cases"].push_back(measure(shape, real, pool, stream));
    }
  }
  if (!file.empty()) write(report, file);
}

/// What every cell computes on, for a comparison with another program's inputs.
void print_inputs(const RealSelection* real, const std::string& only) {
  Json report;
  for (const DType kv : {DType::bf16, DType::e4m3, DType::f16, DType::e5m2}) {
    for (const PrefillShape& s : prefill_grid(kv)) {
      if (!wanted(s, real, only)) continue;
      const PrefillRows rows = prefill_inputs(s, real);
      Json cell = cell_of(s, rows);
      cell["ids"] = hex(cli::ids_checksum(rows.ids));
      cell["lengths"] = hex(cli::ids_checksum(rows.lengths));
      cell["distinct_of_4"] = mean_distinct(s, rows, 4);
      cell["distinct_of_8"] = mean_distinct(s, rows, 8);
      report["cases"].push_back(cell);
    }
  }
  std::printf("%s\n", report.dump(1).c_str());
}

void run(const Arguments& a) {
  a.inputs ? print_inputs(a.selection(), a.only) : run(a.selection(), a.only, a.file);
}

}  // namespace
}  // namespace msa::bench

int main(int argc, char** argv) {
  return msa::bench::run_main("prefill_bench", {.selection = true, .only = true}, argc, argv,
                              [](const msa::bench::Arguments& a) { msa::bench::run(a); });
}
