// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "cli/io/generate.h"
#include "cli/io/rotation.h"
#include "cuda/common/launch.h"
#include "device.h"
#include "fill.h"
#include "graph_timer.h"
#include "inputs.h"
#include "layer_inputs.h"
#include "msa/msa.h"
#include "rates.h"

/// \file
/// The cache write and the whole layer on a CUDA device, in graphs, beside the card's own rates.
///
///     layer_bench [--only TEXT] [FILE]    prints the table, and writes FILE (JSON) where one is
///                                         named; TEXT: cells whose name holds it
///     layer_bench --inputs                prints checksums of the inputs; needs no device
///
/// Every call of a graph has rows, slots and page tables of its own, and before every replay 512 MB
/// of other pages pass through L2. A layer is timed as one call and as its three operators, each in
/// a graph of its own.

namespace msa::bench {
namespace {

using cuda::check;

constexpr int replays = 9;
constexpr std::int64_t topk = cli::generated_topk;
/// Where the index cache's half of the pool starts.
constexpr std::size_t index_offset = std::size_t{12} << 30;

/// Both caches: one memory, whose second part holds index keys.
struct Caches {
  const Memory& pool;
  void* index() const { return static_cast<char*>(pool.data()) + index_offset; }
};

/// Calls of write_cache or of a whole layer, each on rows, slots and tables of its own.
class LayerCalls {
 public:
  LayerCalls(const LayerShape& s, const Caches& caches, cudaStream_t stream)
      : shape_(s),
        calls_(layer_calls(s)),
        qkv_(random_values(DType::bf16, static_cast<std::size_t>(calls_ * s.tokens * s.row()), 5)),
        norms_(random_values(DType::bf16, head_dim, 7)),
        cos_sin_(cli::rotation_table(s.rotated_positions())),
        positions_(layer_positions(s)),
        q_(values(s.hq) * 2),
        index_q_(values(s.heads()) * size_of(s.index)),
        selection_(static_cast<std::size_t>(s.tokens * s.heads() * topk) * 4),
        out_(values(s.hq) * 2),
        lengths_(
            std::vector(static_cast<std::size_t>(s.tokens), static_cast<std::int32_t>(s.context))) {
    for (int call = 0; call < calls_; ++call) {
      const LayerTables tables = layer_tables(s, call);
      slots_.emplace_back(tables.slots);
      index_slots_.emplace_back(tables.index_slots);
      tables_.emplace_back(tables.main);
      index_tables_.emplace_back(tables.index);
    }
    const auto norm = ConstTensor::dense(norms_.data(), DType::bf16, {head_dim}, device);
    WriteCacheArgs& w = args_.write;
    w.positions = ConstTensor::dense(positions_.data(), DType::i64, {s.tokens}, device);
    w.cos_sin = ConstTensor::dense(cos_sin_.data(), DType::f32,
                                   {s.rotated_positions(), cli::rotary_elements}, device);
    w.q_norm = w.k_norm = w.index_q_norm = w.index_k_norm = norm;
    w.q_out = Tensor::dense(q_.data(), DType::bf16, {s.tokens, s.hq, head_dim}, device);
    w.kv_cache = KVCache(kv_layer_view(caches.pool.data(), s.kv, KVLayout::LBHNC,
                                       {1, main_pool_pages(s), s.hkv}, 0, device));
    w.index_q_out =
        Tensor::dense(index_q_.data(), s.index, {s.tokens, s.heads(), head_dim}, device);
    w.index_cache =
        Tensor::dense(caches.index(), s.index, {index_pool_pages(s), page_size, head_dim}, device);
    w.num_tokens = s.tokens;
    w.stream = {stream};
    args_.index.selection =
        Tensor::dense(selection_.data(), DType::i32, {s.tokens, s.heads(), topk}, device);
    args_.attend.out = Tensor::dense(out_.data(), DType::bf16, {s.tokens, s.hq, head_dim}, device);
    for (BatchMetadata* batch : {&args_.index.batch, &args_.attend.batch}) {
      batch->seq_lens = ConstTensor::dense(lengths_.data(), DType::i32, {s.tokens}, device);
      batch->num_decodes = batch->num_actual_tokens = s.tokens;
      batch->max_query_len = 1;
      batch->max_seq_len = s.context;
    }
    use(0);
    if (s.whole()) workspace_.emplace(workspace_size(args_));
    if (workspace_) args_.index.workspace = {workspace_->data(), workspace_->bytes()};
  }

  int calls() const { return calls_; }
  void write(int call) {
    use(call);
    write_cache(args_.write);
  }
  void step(int call) {
    use(call);
    layer_step(args_);
  }
  void index(int call) {
    use(call);
    IndexArgs a = args_.index;
    a.index_q = args_.write.index_q_out;
    a.index_cache = args_.write.index_cache;
    a.stream = args_.write.stream;
    index_blocks(a);
  }
  void attention(int call) {
    use(call);
    AttendArgs a = args_.attend;
    a.q = args_.write.q_out;
    a.kv_cache = args_.write.kv_cache;
    a.selection = args_.index.selection;
    a.workspace = args_.index.workspace;
    a.stream = args_.write.stream;
    attend(a);
  }

 private:
  std::size_t values(std::int64_t heads) const {
    return static_cast<std::size_t>(shape_.tokens * heads * head_dim);
  }

  void use(int call) {
    const LayerShape& s = shape_;
    const auto at = static_cast<std::size_t>(call % calls_);
    args_.write.qkv = ConstTensor::dense(
        static_cast<char*>(qkv_.data()) + static_cast<std::int64_t>(at) * s.tokens * s.row() * 2,
        DType::bf16, {s.tokens, s.row()}, device);
    const auto slots = [&](const std::vector<Memory>& all) {
      return ConstTensor::dense(all[at].data(), DType::i64, {s.tokens}, device);
    };
    args_.write.slot_mapping = slots(slots_);
    args_.write.index_slot_mapping = slots(index_slots_);
    const auto table = [&](const std::vector<Memory>& all) {
      return ConstTensor::dense(all[at].data(), DType::i32, {s.tokens, s.blocks()}, device);
    };
    args_.attend.batch.block_table = table(tables_);
    args_.index.batch.block_table = table(index_tables_);
  }

  LayerShape shape_;
  int calls_;
  Memory qkv_, norms_, cos_sin_, positions_, q_, index_q_, selection_, out_, lengths_;
  std::vector<Memory> slots_, index_slots_, tables_, index_tables_;
  std::optional<Memory> workspace_;
  LayerStepArgs args_;
};

/// Calls of copy_pages, each with pairs of its own.
class CopyCalls {
 public:
  CopyCalls(const LayerShape& s, const Caches& caches, cudaStream_t stream) : shape_(s) {
    for (int call = 0; call < calls(); ++call) pairs_.emplace_back(copied_pairs(s, call));
    if (s.op == LayerOp::copy_main) {
      args_.dst = kv_layer_view(caches.pool.data(), s.kv, KVLayout::LBHNC,
                                {1, main_pool_pages(s), s.hkv}, 0, device);
    } else {
      args_.dst = Tensor::dense(caches.index(), s.index, {index_pool_pages(s), page_size, head_dim},
                                device);
    }
    args_.src = args_.dst;
    args_.stream = {stream};
  }
  int calls() const { return layer_calls(shape_); }
  void operator()(int call) {
    args_.pairs = ConstTensor::dense(pairs_[static_cast<std::size_t>(call % calls())].data(),
                                     DType::i64, {shape_.tokens, 2}, device);
    copy_pages(args_);
  }

 private:
  LayerShape shape_;
  std::vector<Memory> pairs_;
  CopyPagesArgs args_;
};

struct Bench {
  const Caches& caches;
  const Json& rates;
  cudaStream_t stream;

  GraphTime time(int calls, Edges edges, const std::function<void(int)>& run) const {
    run(0);
    check(cudaStreamSynchronize(stream), "bench", "cudaStreamSynchronize");
    const Gather flush(caches.pool.data(), pool_bytes(Variant::usual), 64 * 1024, 8192);
    return time_graph(stream, std::max(calls, 12), replays, edges, run, [&](int replay) {
      flush.launch(static_cast<std::uint32_t>(replay + 1), stream);
    });
  }
};

Json cell_of(const LayerShape& s) {
  Json cell{{"op", name(s.op)},       {"shard", shard_of(s)}, {"kv", name(s.kv)},
            {"index", name(s.index)}, {"tokens", s.tokens},   {"context", s.context},
            {"bytes", layer_bytes(s)}};
  return cell;
}

/// write_cache or copy_pages.
Json measure_bytes(const LayerShape& s, const Bench& bench) {
  Json cell = cell_of(s);
  GraphTime time{};
  if (s.op == LayerOp::write) {
    LayerCalls calls(s, bench.caches, bench.stream);
    time = bench.time(calls.calls(), Edges::full, [&](int i) { calls.write(i); });
    cell["host_us"] = host_time(bench.stream, [&](int i) { calls.write(i); });
  } else {
    CopyCalls calls(s, bench.caches, bench.stream);
    time = bench.time(calls.calls(), Edges::full, std::ref(calls));
    cell["host_us"] = host_time(bench.stream, std::ref(calls));
  }
  set_time(cell, time);
  cell["percent_of_copy"] =
      1e-4 * layer_bytes(s) / time.median / bench.rates.at("copy_tbps").get<double>();
  cell["backend"] = last_backend();
  std::printf("%-46s %9.2f us (%.2f to %.2f)  %5.2f TB/s  %5.1f %% of copy  host %5.2f  %s\n",
              text_of(s).c_str(), time.median, time.fastest, time.slowest,
              1e-6 * layer_bytes(s) / time.median, cell["percent_of_copy"].get<double>(),
              cell["host_us"].get<double>(), last_backend());
  return cell;
}

/// One layer, and its three operators alone.
Json measure_layer(const LayerShape& s, const Bench& bench) {
  Json cell = cell_of(s);
  LayerCalls calls(s, bench.caches, bench.stream);
  const auto time = [&](auto run, Edges edges) {
    return bench.time(calls.calls(), edges, [&, run](int i) { (calls.*run)(i); });
  };
  const GraphTime step = time(&LayerCalls::step, Edges::full);
  const GraphTime chain = time(&LayerCalls::step, Edges::dependent);
  const double write = time(&LayerCalls::write, Edges::full).median;
  const double index = time(&LayerCalls::index, Edges::full).median;
  const double attend = time(&LayerCalls::attention, Edges::full).median;
  set_time(cell, step);
  cell["chain_us"] = chain.median;
  cell["write_us"] = write;
  cell["index_us"] = index;
  cell["attend_us"] = attend;
  cell["sum_us"] = write + index + attend;
  cell["host_us"] = host_time(bench.stream, [&](int i) { calls.step(i); });
  cell["backend"] = last_backend();
  std::printf(
      "%-46s %9.2f us (%.2f to %.2f)  chain %8.2f  write %6.2f + index %7.2f + attend %7.2f = "
      "%8.2f  host %5.2f  %s\n",
      text_of(s).c_str(), step.median, step.fastest, step.slowest, chain.median, write, index,
      attend, write + index + attend, cell["host_us"].get<double>(), last_backend());
  return cell;
}

void run(const std::string& only, const std::string& file) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "bench", "cudaStreamCreate");
  const Memory pool(2 * index_offset);
  const Caches caches{pool};
  fill_keys(pool, DType::bf16, stream);
  Json report;
  const Json rates = measure_rates(pool, stream);
  report["rates"] = rates;
  std::printf("%s\n", rates.dump().c_str());
  const Bench bench{caches, rates, stream};
  for (const DType kv : {DType::bf16, DType::e4m3}) {
    fill_keys(pool, kv, stream);
    for (const LayerShape& s : layer_grid(kv)) {
      if (text_of(s).find(only) == std::string::npos) continue;
      report["cases"].push_back(s.whole() ? measure_layer(s, bench) : measure_bytes(s, bench));
      std::fflush(stdout);
    }
  }
  if (!file.empty()) write(report, file);
}

/// What every cell computes on, for a comparison with another program's inputs.
void print_inputs(const std::string& only) {
  Json report;
  for (const DType kv : {DType::bf16, DType::e4m3}) {
    for (const LayerShape& s : layer_grid(kv)) {
      if (text_of(s).find(only) == std::string::npos) continue;
      Json cell = cell_of(s);
      const LayerTables tables = layer_tables(s, 1);
      cell["table_of_call_1"] = hex(cli::ids_checksum(tables.main));
      cell["index_table_of_call_1"] = hex(cli::ids_checksum(tables.index));
      report["cases"].push_back(cell);
    }
  }
  std::printf("%s\n", report.dump(1).c_str());
}

void run(const Arguments& a) { a.inputs ? print_inputs(a.only) : run(a.only, a.file); }

}  // namespace
}  // namespace msa::bench

int main(int argc, char** argv) {
  return msa::bench::run_main("layer_bench", {.selection = false, .only = true}, argc, argv,
                              [](const msa::bench::Arguments& a) { msa::bench::run(a); });
}
