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
#include "fill.h"
#include "graph_timer.h"
#include "index_inputs.h"
#include "inputs.h"
#include "msa/msa.h"
#include "rates.h"

/// \file
/// index_blocks on a CUDA device, scores and choice together: cold keys, in a graph, beside the
/// card's own rates.
///
///     index_bench [--only TEXT] [FILE]    prints the table, and writes FILE (JSON) where one is
///                                         named; TEXT: cells whose name holds it
///     index_bench --inputs                prints checksums of the inputs; needs no device
///
/// Every call of a graph has a page table of its own, no page is in two of them, and before every
/// replay 512 MB of other pages pass through L2. Queries and lengths are those of the call before.

namespace msa::bench {
namespace {

using cuda::check;

constexpr int replays = 7;
constexpr std::int64_t topk = cli::generated_topk;

/// Calls of one shape, each on pages of its own.
class IndexCalls {
 public:
  IndexCalls(const IndexShape& s, const Memory& pool, cudaStream_t stream)
      : shape_(s),
        width_(index_table_width(s)),
        q_(random_values(s.products.q, q_bytes(s) / 2, 3)),
        selection_(static_cast<std::size_t>(s.batch * s.queries() * s.heads * topk) * 4),
        lengths_(index_lengths(s)),
        contexts_(
            std::vector(static_cast<std::size_t>(s.batch), static_cast<std::int32_t>(s.context))),
        begins_(begins(s)) {
    for (const std::vector<std::int32_t>& table : index_tables(s)) tables_.emplace_back(table);
    const std::int64_t tokens = s.batch * s.queries();
    args_.index_q =
        ConstTensor::dense(q_.data(), s.products.q, {tokens, s.heads, head_dim}, device);
    args_.index_cache = ConstTensor::dense(pool.data(), s.products.keys,
                                           {index_pool_pages(s), page_size, head_dim}, device);
    args_.selection = Tensor::dense(selection_.data(), DType::i32, {tokens, s.heads, topk}, device);
    args_.exact = s.products.exact;
    args_.batch.seq_lens = ConstTensor::dense(lengths_.data(), DType::i32, {s.batch}, device);
    if (s.prefill()) {
      args_.batch.context_lens =
          ConstTensor::dense(contexts_.data(), DType::i32, {s.batch}, device);
      args_.batch.cu_seqlens_q =
          ConstTensor::dense(begins_.data(), DType::i32, {s.batch + 1}, device);
      args_.batch.num_prefills = s.batch;
    } else {
      args_.batch.num_decodes = s.batch;
      args_.batch.decode_query_len = s.m;
    }
    args_.batch.num_actual_tokens = tokens;
    args_.batch.max_query_len = s.queries();
    const std::vector<std::int32_t> lengths = index_lengths(s);
    args_.batch.max_seq_len = s.variant == Variant::long_bound
                                  ? std::int64_t{1} << 20
                                  : *std::max_element(lengths.begin(), lengths.end());
    args_.stream = {stream};
    use_table(0);
    workspace_.emplace(workspace_size(args_));
    args_.workspace = {workspace_->data(), workspace_->bytes()};
  }

  void operator()(int call) {
    use_table(call);
    index_blocks(args_);
  }

 private:
  static std::size_t q_bytes(const IndexShape& s) {
    return static_cast<std::size_t>(s.batch * s.queries() * s.heads * head_dim) *
           size_of(s.products.q);
  }

  static std::vector<std::int32_t> begins(const IndexShape& s) {
    std::vector<std::int32_t> all;
    for (std::int64_t r = 0; r <= s.batch; ++r) {
      all.push_back(static_cast<std::int32_t>(r * s.queries()));
    }
    return all;
  }

  void use_table(int call) {
    args_.batch.block_table = ConstTensor::dense(tables_[static_cast<std::size_t>(call)].data(),
                                                 DType::i32, {shape_.batch, width_}, device);
  }

  IndexShape shape_;
  std::int64_t width_;
  Memory q_, selection_, lengths_, contexts_, begins_;
  std::vector<Memory> tables_;
  std::optional<Memory> workspace_;
  IndexArgs args_;
};

/// The gather rate of tiles of a page's size, TB/s.
double gather_rate(const Json& rates, const IndexShape& s) {
  return rates.at(size_of(s.products.keys) == 2 ? "gather_32k_tbps" : "gather_16k_tbps")
      .get<double>();
}

Json cell_of(const IndexShape& s, const Work& work) {
  return {{"products", name(s.products)},
          {"keys", name(s.products.keys)},
          {"heads", s.heads},
          {"batch", s.batch},
          {"m", s.m},
          {"tokens", s.tokens},
          {"context", s.context},
          {"lengths", name(s.lengths)},
          {"variant", name(s.variant)},
          {"calls", index_calls(s)},
          {"bytes", work.bytes},
          {"flops", work.flops}};
}

void print(const IndexShape& s, const Json& cell, const GraphTime& time) {
  const auto number = [&](const char* key) { return cell.at(key).get<double>(); };
  std::printf("%-52s %9.2f us (%.2f to %.2f)  ", text_of(s).c_str(), time.median, time.fastest,
              time.slowest);
  if (s.prefill()) {
    std::printf("%6.1f TFLOP/s", number("tflops"));
  } else {
    std::printf("rule %8.2f  %5.1f %% of gather", number("rule_us"), number("percent_of_gather"));
  }
  std::printf("  host %5.2f  %s\n", number("host_us"),
              cell.at("backend").get<std::string>().c_str());
  std::fflush(stdout);
}

Json measure(const IndexShape& s, const Memory& pool, const Json& rates, cudaStream_t stream) {
  const Work work = index_work(s);
  const int count = index_calls(s);
  IndexCalls calls(s, pool, stream);
  calls(0);
  check(cudaStreamSynchronize(stream), "bench", "cudaStreamSynchronize");
  const Gather flush(pool.data(), pool_bytes(Variant::usual), 64 * 1024, 8192);
  const GraphTime time = time_graph(
      stream, count, replays, Edges::full, [&](int i) { calls(i); },
      [&](int replay) { flush.launch(static_cast<std::uint32_t>(replay + 1), stream); });
  Json cell = cell_of(s, work);
  set_time(cell, time);
  if (s.prefill()) {
    cell["tflops"] = 1e-6 * work.flops / time.median;
  } else {
    const double rate = gather_rate(rates, s);
    cell["gather_tbps"] = rate;
    cell["rule_us"] = index_rule_us(s, work, rate);
    cell["percent_of_gather"] = 1e-4 * work.bytes / time.median / rate;
  }
  cell["host_us"] = host_time(stream, [&](int i) { calls(i % count); });
  cell["backend"] = last_backend();
  print(s, cell, time);
  return cell;
}

bool wanted(const IndexShape& s, const std::string& only) {
  return text_of(s).find(only) != std::string::npos;
}

void run(const std::string& only, const std::string& file) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "bench", "cudaStreamCreate");
  const Memory pool(largest_pool());
  fill_keys(pool, DType::bf16, stream);
  Json report;
  const Json rates = measure_rates(pool, stream);
  report["rates"] = rates;
  std::printf("%s\n", rates.dump().c_str());
  for (const DType keys : {DType::bf16, DType::e4m3}) {
    fill_keys(pool, keys, stream);
    for (const IndexShape& shape : index_grid(keys)) {
      if (!wanted(shape, only) || pool_bytes(shape.variant) > pool.bytes()) continue;
      report["cases"].push_back(measure(shape, pool, rates, stream));
    }
  }
  if (!file.empty()) write(report, file);
}

/// What every cell computes on, for a comparison with another program's inputs.
void print_inputs(const std::string& only) {
  Json report;
  for (const DType keys : {DType::bf16, DType::e4m3}) {
    for (const IndexShape& s : index_grid(keys)) {
      if (!wanted(s, only)) continue;
      Json cell = cell_of(s, index_work(s));
      cell["lengths_checksum"] = hex(cli::ids_checksum(index_lengths(s)));
      cell["table_of_call_3"] = hex(cli::ids_checksum(index_tables(s)[3]));
      report["cases"].push_back(cell);
    }
  }
  std::printf("%s\n", report.dump(1).c_str());
}

void run(const Arguments& a) { a.inputs ? print_inputs(a.only) : run(a.only, a.file); }

}  // namespace
}  // namespace msa::bench

int main(int argc, char** argv) {
  return msa::bench::run_main("index_bench", {.selection = false, .only = true}, argc, argv,
                              [](const msa::bench::Arguments& a) { msa::bench::run(a); });
}
