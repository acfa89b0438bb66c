// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "index_inputs.h"

#include <algorithm>
#include <cstddef>

#include "cli/io/generate.h"

namespace msa::bench {
namespace {

constexpr std::int64_t near = 32768, far = 131072, longest = 1048576;  // keys of a request
constexpr std::int64_t short_keys = 4096;     // of the others of a skewed batch
constexpr std::int64_t wide_columns = 65536;  // as many blocks as the indexer takes
constexpr std::int64_t keys_of_a_graph = std::int64_t{256} << 20;  // bytes
constexpr std::int64_t all_heads = 4;

std::int64_t page_bytes(const IndexShape& s) {
  return page_size * head_dim * static_cast<std::int64_t>(size_of(s.products.keys));
}

std::int64_t pages_of(std::int64_t keys) { return (keys + page_size - 1) / page_size; }

IndexShape decode(const Products& products, std::int64_t m, std::int64_t batch,
                  std::int64_t context, std::int64_t heads = all_heads) {
  return {products, heads, batch, m, 0, context};
}

IndexShape prefill(const Products& products, std::int64_t tokens, std::int64_t context,
                   std::int64_t batch = 1) {
  return {products, all_heads, batch, 0, tokens, context};
}

void add_decode(std::vector<IndexShape>& shapes, const Products& products) {
  for (std::int64_t batch : {1, 16, 64}) {
    for (std::int64_t context : {near, far}) {
      for (std::int64_t m : {1, 4, 16}) shapes.push_back(decode(products, m, batch, context));
    }
    shapes.push_back(decode(products, 1, batch, far, 1));
  }
  shapes.push_back(decode(products, 1, 1, longest));
}

void add_prefill(std::vector<IndexShape>& shapes, const Products& products) {
  shapes.push_back(prefill(products, 8192, near - 8192));
  shapes.push_back(prefill(products, 8192, far - 8192));
  shapes.push_back(prefill(products, 2048, far - 8192));
  shapes.push_back(prefill(products, 2048, longest - 2048));
  shapes.push_back(prefill(products, 128, near - 128, 64));
}

/// What must not cost time, and a batch of which one request is nearly all of the work.
void add_special(std::vector<IndexShape>& shapes, const Products& products) {
  shapes.push_back(decode(products, 1, 32, longest));
  shapes.back().lengths = Lengths::skewed;
  for (const IndexShape& usual : {decode(products, 1, 1, near), decode(products, 1, 16, near),
                                  prefill(products, 8192, near - 8192)}) {
    for (Variant variant : {Variant::wide_table, Variant::long_bound, Variant::large_pool}) {
      shapes.push_back(usual);
      shapes.back().variant = variant;
    }
  }
}

}  // namespace

std::string name(const Products& products) {
  std::string text = name(products.keys);
  if (products.q != products.keys) text += std::string(" q ") + name(products.q);
  if (products.exact) text += " exact";
  return text;
}

const char* name(Lengths lengths) { return lengths == Lengths::alike ? "alike" : "skewed"; }

std::string text_of(const IndexShape& s) {
  const auto number = [](std::int64_t x) { return std::to_string(x); };
  std::string text = name(s.products);
  text.append(" ").append(number(s.heads)).append(s.heads == 1 ? " head " : " heads ");
  if (s.prefill()) {
    if (s.batch > 1) text += number(s.batch) + " x ";
    text += number(s.tokens);
  } else {
    text.append("m ").append(number(s.m)).append(" B ").append(number(s.batch));
  }
  text.append(" @ ").append(number(s.context));
  if (s.lengths != Lengths::alike) text += std::string(" ") + name(s.lengths);
  if (s.variant != Variant::usual) text += std::string(" ") + name(s.variant);
  return text;
}

std::vector<IndexShape> index_grid(DType keys) {
  std::vector<Products> all{{keys, keys}};
  if (keys == DType::e4m3) {
    all.push_back({keys, keys, true});
    all.push_back({keys, DType::bf16});
  }
  std::vector<IndexShape> shapes;
  for (const Products& products : all) {
    add_decode(shapes, products);
    add_prefill(shapes, products);
  }
  add_special(shapes, all.front());
  return shapes;
}

std::vector<std::int32_t> index_lengths(const IndexShape& s) {
  const std::int64_t keys = s.context + (s.prefill() ? s.tokens : 0);
  std::vector<std::int32_t> lengths(
      static_cast<std::size_t>(s.batch),
      static_cast<std::int32_t>(s.lengths == Lengths::skewed ? short_keys : keys));
  if (s.lengths == Lengths::skewed) lengths[lengths.size() / 2] = static_cast<std::int32_t>(keys);
  return lengths;
}

std::int64_t index_pages(const IndexShape& s) {
  std::int64_t pages = 0;
  for (std::int64_t keys : index_lengths(s)) pages += pages_of(keys);
  return pages;
}

std::int64_t index_pool_pages(const IndexShape& s) {
  return static_cast<std::int64_t>(pool_bytes(s.variant)) / page_bytes(s);
}

int index_calls(const IndexShape& s) {
  // Short calls are many, or the start of a graph would show in their time.
  const std::int64_t least = s.prefill() ? 4 : 16, pages = index_pages(s);
  const std::int64_t bytes = pages * page_bytes(s);
  const std::int64_t wanted = std::max(least, (keys_of_a_graph + bytes - 1) / bytes);
  return static_cast<int>(std::min(wanted, index_pool_pages(s) / pages));
}

std::int64_t index_table_width(const IndexShape& s) {
  if (s.variant == Variant::wide_table) return wide_columns;
  const std::vector<std::int32_t> lengths = index_lengths(s);
  return pages_of(*std::max_element(lengths.begin(), lengths.end()));
}

std::vector<std::vector<std::int32_t>> index_tables(const IndexShape& s) {
  const std::vector<std::int32_t> lengths = index_lengths(s);
  const std::int64_t width = index_table_width(s);
  const int calls = index_calls(s);
  const std::vector<std::int32_t> shuffled =
      cli::table_rows(calls, index_pages(s), index_pool_pages(s), 1);
  auto next = shuffled.begin();
  std::vector<std::vector<std::int32_t>> tables;
  for (int call = 0; call < calls; ++call) {
    std::vector<std::int32_t>& table =
        tables.emplace_back(static_cast<std::size_t>(s.batch * width), -1);
    for (std::int64_t r = 0; r < s.batch; ++r) {
      const std::int64_t pages = pages_of(lengths[static_cast<std::size_t>(r)]);
      std::copy_n(next, pages, table.begin() + r * width);
      next += pages;
    }
  }
  return tables;
}

Work index_work(const IndexShape& s) {
  std::int64_t keys = 0, pairs = 0;
  for (std::int64_t length : index_lengths(s)) {
    keys += length;
    for (std::int64_t i = 0; i < s.queries(); ++i) pairs += length - i;
  }
  const auto size = static_cast<double>(size_of(s.products.keys));
  return {static_cast<double>(keys) * head_dim * size,
          2.0 * head_dim * static_cast<double>(s.heads * pairs)};
}

double index_rule_us(const IndexShape& s, const Work& work, double tbps) {
  const double gathered = work.bytes / (1e6 * tbps);
  return s.lengths == Lengths::skewed ? 5 + 1.15 * gathered : 4.5 + 1.02 * gathered;
}

}  // namespace msa::bench
