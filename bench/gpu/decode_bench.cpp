// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "cli/io/generate.h"
#include "cuda/common/launch.h"
#include "device.h"
#include "graph_timer.h"
#include "inputs.h"
#include "msa/msa.h"
#include "rates.h"

/// \file
/// Decode attend on a CUDA device: cold pages, in a graph, beside the card's own rates.
///
///     decode_bench [--selection NPY] [FILE]    prints the table, and writes FILE (JSON) where one
///                                              is named; cells of real selections need
///                                              data/real_selection.npy
///     decode_bench --inputs                    prints checksums of the inputs; needs no device
///
/// Every call of a graph has a page table of its own over the pool, and before every replay 512 MB
/// of other pages pass through L2, so that no page is met there. Queries, lengths and selections
/// are those of the call before, as in a model the indexer has just written them.

namespace msa::bench {
namespace {

using cuda::check;

constexpr int calls_of_a_graph = 20;
constexpr int replays = 11;

/// Calls of one shape, each on pages of its own.
class Calls {
 public:
  Calls(const Shape& s, const Rows& rows, const Memory& pool, cudaStream_t stream)
      : shape_(s),
        width_(table_width(s, rows)),
        q_(random_values(DType::bf16, count(), 3)),
        out_(count() * 2),
        lse_(count() / head_dim * 4),
        lengths_(rows.lengths),
        selection_(rows.ids) {
    const std::int64_t pages = pool_pages(s);
    for (int set = 0; set < calls_of_a_graph; ++set) {
      tables_.emplace_back(decode_table(s, rows, pages, set));
    }
    const std::int64_t tokens = s.batch * s.m;
    args_.q = ConstTensor::dense(q_.data(), DType::bf16, {tokens, s.hq, head_dim}, device);
    args_.out = Tensor::dense(out_.data(), DType::bf16, {tokens, s.hq, head_dim}, device);
    if (s.lse) args_.lse = Tensor::dense(lse_.data(), DType::f32, {tokens, s.hq}, device);
    args_.selection = ConstTensor::dense(selection_.data(), DType::i32,
                                         {tokens, s.hkv, cli::generated_topk}, device);
    args_.kv_cache =
        KVCache(kv_layer_view(pool.data(), s.kv, s.layout, {1, pages, s.hkv}, 0, device));
    args_.batch.seq_lens = ConstTensor::dense(lengths_.data(), DType::i32, {s.batch}, device);
    args_.batch.num_decodes = s.batch;
    args_.batch.decode_query_len = s.m;
    args_.batch.num_actual_tokens = tokens;
    args_.batch.max_query_len = s.m;
    args_.batch.max_seq_len = s.variant == Variant::long_bound
                                  ? std::int64_t{1} << 20
                                  : *std::max_element(rows.lengths.begin(), rows.lengths.end());
    args_.stream = {stream};
    args_.batch.block_table =
        ConstTensor::dense(tables_[0].data(), DType::i32, {s.batch, width_}, device);
    const std::size_t bytes = workspace_size(args_);
    if (bytes > 0) workspace_.emplace(bytes);
    if (bytes > 0) args_.workspace = {workspace_->data(), bytes};
  }

  void operator()(int set) {
    args_.batch.block_table = ConstTensor::dense(tables_[static_cast<std::size_t>(set)].data(),
                                                 DType::i32, {shape_.batch, width_}, device);
    attend(args_);
  }

 private:
  std::size_t count() const {
    return static_cast<std::size_t>(shape_.batch * shape_.m * shape_.hq * head_dim);
  }

  Shape shape_;
  std::int64_t width_;
  Memory q_, out_, lse_, lengths_, selection_;
  std::vector<Memory> tables_;
  std::optional<Memory> workspace_;
  AttendArgs args_;
};

/// The gather rate of tiles of the shape's size, TB/s.
double gather_rate(const Json& rates, const Shape& s) {
  return rates.at(size_of(s.kv) == 2 ? "gather_64k_tbps" : "gather_32k_tbps").get<double>();
}

Json cell_of(const Shape& s, const Work& work) {
  return {{"kv", name(s.kv)},
          {"shard", shard_of(s)},
          {"layout", name(s.layout)},
          {"m", s.m},
          {"batch", s.batch},
          {"lse", s.lse},
          {"selection", name(s.source)},
          {"variant", name(s.variant)},
          {"bytes", work.bytes},
          {"flops", work.flops},
          {"rule_us", rule_us(s, work)}};
}

void print(const Shape& s, const Json& cell, const GraphTime& alone) {
  const auto number = [&](const char* key) { return cell.at(key).get<double>(); };
  std::string extra = s.lse ? "  with LSE" : "";
  if (s.source != Source::grid) extra += std::string("  ") + name(s.source) + " selections";
  if (s.variant != Variant::usual) extra += std::string("  ") + name(s.variant);
  std::printf(
      "%-5s %-5s %-6s m %-2d B %-4d %8.2f us (%.2f to %.2f)  chain %8.2f  rule %7.2f  host %5.2f  "
      "%5.2f TB/s  %5.1f %% of gather%s\n",
      name(s.kv), shard_of(s).c_str(), name(s.layout), static_cast<int>(s.m),
      static_cast<int>(s.batch), alone.median, alone.fastest, alone.slowest, number("chain_us"),
      number("rule_us"), number("host_us"), number("bytes") / alone.median * 1e-6,
      number("percent_of_gather"), extra.c_str());
  std::fflush(stdout);
}

Json measure(const Shape& s, const RealSelection* real, const Memory& pool, const Json& rates,
             cudaStream_t stream) {
  const Rows rows = decode_inputs(s, real);
  const Work work = work_of(s, rows);
  Calls calls(s, rows, pool, stream);
  for (int i = 0; i < 2; ++i) calls(i);
  check(cudaStreamSynchronize(stream), "bench", "cudaStreamSynchronize");
  const Gather flush(pool.data(), pool_bytes(Variant::usual), 64 * 1024, 8192);
  const auto evict = [&](int replay) {
    flush.launch(static_cast<std::uint32_t>(replay + 1), stream);
  };
  const auto run = [&](int i) { calls(i); };
  const GraphTime alone = time_graph(stream, calls_of_a_graph, replays, Edges::full, run, evict);
  const GraphTime chain =
      time_graph(stream, calls_of_a_graph, replays, Edges::dependent, run, evict);
  Json cell = cell_of(s, work);
  set_time(cell, alone);
  cell["chain_us"] = chain.median;
  cell["host_us"] = host_time(stream, [&](int i) { calls(i % calls_of_a_graph); });
  cell["percent_of_gather"] = 1e-4 * work.bytes / alone.median / gather_rate(rates, s);
  cell["backend"] = last_backend();
  print(s, cell, alone);
  return cell;
}

void run(const RealSelection* real, const std::string& file) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "bench", "cudaStreamCreate");
  const Memory pool(largest_pool());
  fill_pool(pool, DType::bf16);
  Json report;
  const Json rates = measure_rates(pool, stream);
  report["rates"] = rates;
  std::printf("%s\n", rates.dump().c_str());
  for (const DType kv : {DType::bf16, DType::e4m3, DType::f16, DType::e5m2}) {
    fill_pool(pool, kv);
    for (const Shape& shape : decode_grid(kv)) {
      if (shape.source == Source::real && real == nullptr) continue;
      if (pool_bytes(shape.variant) > pool.bytes()) continue;
      report["cases"].push_back(measure(shape, real, pool, rates, stream));
    }
  }
  if (!file.empty()) write(report, file);
}

/// What every cell computes on, for a comparison with another program's inputs.
void print_inputs(const RealSelection* real) {
  Json report;
  for (const DType kv : {DType::bf16, DType::e4m3, DType::f16, DType::e5m2}) {
    const std::vector<std::uint16_t> values = random_values(kv, 1024, 1);
    const std::vector<std::int32_t> as_ids(values.begin(), values.end());
    report["values"][name(kv)] = hex(cli::ids_checksum(as_ids));
    for (const Shape& s : decode_grid(kv)) {
      if (s.source == Source::real && real == nullptr) continue;
      const Rows rows = decode_inputs(s, real);
      Json cell = cell_of(s, work_of(s, rows));
      cell["ids"] = hex(cli::ids_checksum(rows.ids));
      cell["lengths"] = hex(cli::ids_checksum(rows.lengths));
      cell["table_of_call_3"] = hex(cli::ids_checksum(decode_table(s, rows, pool_pages(s), 3)));
      report["cases"].push_back(cell);
    }
  }
  std::printf("%s\n", report.dump(1).c_str());
}

void run(const Arguments& a) {
  a.inputs ? print_inputs(a.selection()) : run(a.selection(), a.file);
}

}  // namespace
}  // namespace msa::bench

int main(int argc, char** argv) {
  return msa::bench::run_main("decode_bench", {.selection = true, .only = false}, argc, argv,
                              [](const msa::bench::Arguments& a) { msa::bench::run(a); });
}
