// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "layer_inputs.h"

#include <algorithm>

#include "cli/io/generate.h"

namespace msa::bench {
namespace {

constexpr std::int64_t topk = cli::generated_topk;
constexpr std::int64_t main_bytes = std::int64_t{12} << 30, index_bytes = std::int64_t{12} << 30;
constexpr std::int64_t cold_bytes = std::int64_t{160} << 20;  // three times an H200's L2

std::int64_t size(DType type) { return static_cast<std::int64_t>(size_of(type)); }

std::int64_t main_page_bytes(const LayerShape& s) {
  return s.hkv * page_size * 2 * head_dim * size(s.kv);
}
std::int64_t index_page_bytes(const LayerShape& s) { return page_size * head_dim * size(s.index); }

/// Input bytes of a call that no other call of the graph should find in L2.
std::int64_t input_bytes(const LayerShape& s) {
  switch (s.op) {
    case LayerOp::write:
      return s.tokens * s.row() * 2;
    case LayerOp::copy_main:
      return s.tokens * main_page_bytes(s);
    case LayerOp::copy_index:
      return s.tokens * index_page_bytes(s);
    case LayerOp::step:
      return s.tokens * s.blocks() * index_page_bytes(s);
  }
  return 1;
}

/// The `call`-th run of `count` pages of a shuffled pool, which starts anew at its end.
std::vector<std::int32_t> pages_of_call(std::int64_t count, std::int64_t pool, int call,
                                        std::uint64_t seed) {
  const std::int64_t runs = std::max<std::int64_t>(pool / count, 1), run = call % runs;
  const std::vector<std::int32_t> all = cli::table_rows(1, (run + 1) * count, pool, seed);
  return {all.end() - count, all.end()};
}

}  // namespace

const char* name(LayerOp op) {
  switch (op) {
    case LayerOp::write:
      return "write";
    case LayerOp::copy_main:
      return "copy_pages";
    case LayerOp::copy_index:
      return "copy_pages index";
    case LayerOp::step:
      return "layer_step";
  }
  return "";
}

std::string shard_of(const LayerShape& s) {
  return std::to_string(s.hq) + "/" + std::to_string(s.hkv);
}

std::string text_of(const LayerShape& s) {
  std::string text = std::string(name(s.op)) + " " + shard_of(s) + " " + name(s.kv);
  const std::string count = std::to_string(s.tokens);
  if (s.whole()) return text + " B " + count + " @ " + std::to_string(s.context);
  return text + " " + count + (s.op == LayerOp::write ? " tokens" : " pages");
}

std::vector<LayerShape> layer_grid(DType kv) {
  std::vector<LayerShape> shapes;
  const auto add = [&](LayerOp op, std::int64_t hq, std::int64_t hkv, std::int64_t tokens,
                       std::int64_t context = 0) {
    shapes.push_back({op, hq, hkv, kv, kv, tokens, context});
  };
  for (std::int64_t tokens : {1, 64, 512, 2048, 8192, 32768}) add(LayerOp::write, 64, 4, tokens);
  for (std::int64_t tokens : {64, 16384, 65536}) add(LayerOp::write, 8, 1, tokens);
  for (std::int64_t pages : {1, 64, 2048}) add(LayerOp::copy_main, 64, 4, pages);
  add(LayerOp::copy_main, 8, 1, 8192);
  add(LayerOp::copy_index, 64, 4, 16384);
  for (std::int64_t context : {32768, 131072}) {
    for (std::int64_t batch : {1, 16, 64}) add(LayerOp::step, 64, 4, batch, context);
    add(LayerOp::step, 8, 1, 64, context);
  }
  return shapes;
}

std::int64_t main_pool_pages(const LayerShape& s) { return main_bytes / main_page_bytes(s); }
std::int64_t index_pool_pages(const LayerShape& s) { return index_bytes / index_page_bytes(s); }

int layer_calls(const LayerShape& s) {
  std::int64_t most = std::int64_t{1} << 10;
  if (s.whole()) most = index_pool_pages(s) / (s.tokens * s.blocks());
  if (s.op == LayerOp::copy_main) most = main_pool_pages(s) / (2 * s.tokens);
  if (s.op == LayerOp::copy_index) most = index_pool_pages(s) / (2 * s.tokens);
  // Calls of a few rows are not made cold by their number: L2 is emptied before each replay.
  constexpr std::int64_t least = 2, enough = 20;
  const std::int64_t bytes = input_bytes(s);
  const std::int64_t cold = s.whole() ? enough : (cold_bytes + bytes - 1) / bytes;
  const std::int64_t wanted = std::max(least, cold);
  return static_cast<int>(std::min({wanted, most, enough}));
}

LayerTables layer_tables(const LayerShape& s, int call) {
  LayerTables tables;
  if (s.whole()) {
    const std::int64_t count = s.tokens * s.blocks();
    tables.index = pages_of_call(count, index_pool_pages(s), call, 1);
    const std::int64_t pool = main_pool_pages(s);
    tables.main = count <= pool
                      ? pages_of_call(count, pool, call, 2)
                      : pages_of_call(pool, pool, 0, static_cast<std::uint64_t>(call) + 2);
    for (std::int64_t i = pool; i < count; ++i) tables.main.push_back(tables.main[i - pool]);
  }
  const auto slots = [&](const std::vector<std::int32_t>& table, std::int64_t pool) {
    std::vector<std::int64_t> all;
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      if (s.whole()) {
        const std::int64_t page = table[(t + 1) * s.blocks() - 1];
        all.push_back(page * page_size + (s.context - 1) % page_size);
      } else {  // a prompt's: whole pages, spread over the pool
        const std::int64_t used = (s.tokens + page_size - 1) / page_size, spread = pool / used;
        const std::int64_t page = t / page_size * spread + call % spread;
        all.push_back(page * page_size + t % page_size);
      }
    }
    return all;
  };
  tables.slots = slots(tables.main, main_pool_pages(s));
  tables.index_slots = slots(tables.index, index_pool_pages(s));
  return tables;
}

std::vector<std::int64_t> layer_positions(const LayerShape& s) {
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    positions.push_back(s.whole() ? s.context - 1 : t % s.rotated_positions());
  }
  return positions;
}

std::vector<std::int64_t> copied_pairs(const LayerShape& s, int call) {
  const bool main = s.op == LayerOp::copy_main;
  const std::vector<std::int32_t> pages =
      pages_of_call(2 * s.tokens, main ? main_pool_pages(s) : index_pool_pages(s), call, 3);
  return {pages.begin(), pages.end()};
}

double layer_bytes(const LayerShape& s) {
  const auto tokens = static_cast<double>(s.tokens);
  switch (s.op) {
    case LayerOp::write: {
      const std::int64_t out = s.hq * 2 + 2 * s.hkv * size(s.kv) + (s.heads() + 1) * size(s.index);
      return tokens * static_cast<double>(s.row() * 2 + out * head_dim);
    }
    case LayerOp::copy_main:
      return 2 * tokens * static_cast<double>(main_page_bytes(s));
    case LayerOp::copy_index:
      return 2 * tokens * static_cast<double>(index_page_bytes(s));
    case LayerOp::step:
      return tokens *
             static_cast<double>(s.context * head_dim * size(s.index) + topk * main_page_bytes(s));
  }
  return 0;
}

}  // namespace msa::bench
