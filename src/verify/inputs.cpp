// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "verify/inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "common/numeric.h"

namespace msa::verify {
namespace {

constexpr int draw_bits = 12;  // five draws from one 64-bit number
constexpr std::size_t draws = std::size_t{1} << draw_bits;

/// Encoded values to draw from: encoding each element anew would cost more than the operators do.
using DrawTable = std::vector<std::uint32_t>;

std::uint32_t encode_any(DType type, double x) {
  if (type == DType::f32) return std::bit_cast<std::uint32_t>(static_cast<float>(x));
  return encode(format_of(type), x);
}

const DrawTable& normal_table(DType type, double gain) {
  static std::map<std::pair<DType, double>, DrawTable> tables;
  DrawTable& table = tables[{type, gain}];
  if (!table.empty()) return table;
  Rng rng(7);
  for (std::size_t i = 0; i < draws; ++i) {
    const double u = (static_cast<double>(rng.next() >> 11) + 0.5) * 0x1p-53;
    const double v = (static_cast<double>(rng.next() >> 11) + 0.5) * 0x1p-53;
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * v);
    table.push_back(encode_any(type, gain * normal));
  }
  return table;
}

const DrawTable& integer_table(DType type, int range) {
  static std::map<std::pair<DType, int>, DrawTable> tables;
  DrawTable& table = tables[{type, range}];
  for (std::size_t i = table.size(); i < draws; ++i) {
    table.push_back(encode_any(type, static_cast<int>(i % (2 * range + 1)) - range));
  }
  return table;
}

template <class T>
void draw(const DrawTable& table, T* to, std::int64_t n, std::uint64_t seed) {
  Rng rng(seed);
  for (std::int64_t i = 0; i < n;) {
    std::uint64_t bits = rng.next();
    for (int k = 0; k < 5 && i < n; ++k, ++i, bits >>= draw_bits) {
      to[i] = static_cast<T>(table[bits & (draws - 1)]);
    }
  }
}

void draw(const DrawTable& table, DType type, void* to, std::int64_t n, std::uint64_t seed) {
  switch (size_of(type)) {
    case 1:
      draw(table, static_cast<std::uint8_t*>(to), n, seed);
      break;
    case 2:
      draw(table, static_cast<std::uint16_t*>(to), n, seed);
      break;
    default:
      draw(table, static_cast<std::uint32_t*>(to), n, seed);
  }
}

}  // namespace

std::uint64_t Rng::next() {
  std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

std::uint64_t seed_of(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t seed = 0x5851F42D4C957F2Dull;
  for (std::uint64_t p : parts) seed = Rng(seed ^ (p * 0xD1342543DE82EF95ull + 1)).next();
  return seed;
}

void fill_normal(DType type, void* to, std::int64_t n, std::uint64_t seed, double gain) {
  draw(normal_table(type, gain), type, to, n, seed);
}

void fill_integers(DType type, void* to, std::int64_t n, std::uint64_t seed, int range) {
  draw(integer_table(type, range), type, to, n, seed);
}

std::vector<Request> requests(std::initializer_list<std::int64_t> keys, std::uint64_t first) {
  std::vector<Request> all;
  for (std::int64_t k : keys) all.push_back({1, k, first++});
  return all;
}

std::vector<Request> prefills(std::initializer_list<std::int64_t> queries,
                              std::initializer_list<std::int64_t> keys, std::uint64_t first) {
  std::vector<Request> all;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    all.push_back({queries.begin()[i], keys.begin()[i], first++});
  }
  return all;
}

std::int64_t BatchSpec::tokens() const {
  std::int64_t n = static_cast<std::int64_t>(decodes.size()) * m + padding_tokens;
  for (const Request& r : prefills) n += r.query;
  return n;
}

std::int64_t BatchSpec::max_keys() const {
  std::int64_t n = 0;
  for (std::int64_t r = 0; r < num_requests(); ++r) n = std::max(n, request(r).keys);
  return n;
}

std::int64_t BatchSpec::table_columns(std::int64_t blocks) const {
  return std::max<std::int64_t>(blocks + spare_columns, 0);
}

std::int64_t BatchSpec::table_room(std::int64_t request, std::int64_t columns) const {
  const bool padded = columns > 0 && request + 1 < num_requests();
  return columns + (padded ? table_pad : 0);
}

std::vector<TokenRow> token_rows(const BatchSpec& spec) {
  std::vector<TokenRow> rows;
  for (std::int64_t r = 0; r < spec.num_requests(); ++r) {
    const Request& request = spec.request(r);
    const std::int64_t n =
        static_cast<std::size_t>(r) < spec.decodes.size() ? spec.m : request.query;
    for (std::int64_t i = 0; i < n; ++i) {
      rows.push_back({r, request.keys - n + i, request.content});
    }
  }
  rows.resize(static_cast<std::size_t>(spec.tokens()));
  return rows;
}

std::vector<std::int64_t> sample_rows(const std::vector<TokenRow>& rows, std::uint64_t seed,
                                      std::int64_t budget,
                                      const std::function<std::int64_t(std::int64_t)>& cost) {
  std::vector<std::int64_t> order, rest;
  const auto tokens = static_cast<std::int64_t>(rows.size());
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool edge = t == 0 || t + 1 == tokens || rows[t].request != rows[t - 1].request ||
                      rows[t].request != rows[t + 1].request;
    (edge ? order : rest).push_back(t);
  }
  Rng rng(seed);
  rng.shuffle(order);
  rng.shuffle(rest);
  order.insert(order.end(), rest.begin(), rest.end());
  std::vector<std::int64_t> sampled;
  for (const std::int64_t t : order) {
    const std::int64_t price = cost(t);
    if (!sampled.empty() && price > budget) continue;
    budget -= price;
    sampled.push_back(t);
  }
  std::sort(sampled.begin(), sampled.end());
  return sampled;
}

BatchArrays::BatchArrays(const Target& target, const BatchSpec& spec, std::int64_t columns,
                         Poison poison)
    : seq_lens_(target, DType::i32, {spec.num_requests()}, poison, {}, 1),
      table_(target, DType::i32, {spec.num_requests(), columns}, poison,
             {columns + spec.table_pad, 1}, 1),
      cu_seqlens_q_(target, DType::i32, {static_cast<std::int64_t>(spec.prefills.size()) + 1},
                    poison, {}, 1),
      context_lens_(target, DType::i32, {static_cast<std::int64_t>(spec.prefills.size())}, poison,
                    {}, 1) {
  counts_.num_decodes = static_cast<std::int64_t>(spec.decodes.size());
  counts_.num_prefills = static_cast<std::int64_t>(spec.prefills.size());
  counts_.decode_query_len = spec.m;
  counts_.num_actual_tokens = spec.tokens();
  counts_.max_query_len = spec.decodes.empty() ? 0 : spec.m;
  counts_.max_seq_len = spec.max_keys() + spec.bound_slack;
  std::int32_t token = 0;
  for (std::int64_t r = 0; r < spec.num_requests(); ++r) {
    i32(seq_lens_, r) = static_cast<std::int32_t>(spec.request(r).keys);
  }
  i32(cu_seqlens_q_, 0) = 0;
  for (std::size_t p = 0; p < spec.prefills.size(); ++p) {
    const Request& request = spec.prefills[p];
    token += static_cast<std::int32_t>(request.query);
    i32(cu_seqlens_q_, static_cast<std::int64_t>(p) + 1) = token;
    i32(context_lens_, static_cast<std::int64_t>(p)) =
        static_cast<std::int32_t>(request.keys - request.query);
    counts_.max_query_len = std::max(counts_.max_query_len, request.query);
  }
  counts_.max_query_len += spec.bound_slack;
}

BatchMetadata BatchArrays::metadata(Side side) const {
  BatchMetadata b = counts_;
  b.seq_lens = seq_lens_.view(side);
  b.block_table = table_.view(side);
  b.cu_seqlens_q = cu_seqlens_q_.view(side);
  b.context_lens = context_lens_.view(side);
  return b;
}

void BatchArrays::upload() const {
  for (const Array* a : {&seq_lens_, &table_, &cu_seqlens_q_, &context_lens_}) a->buffer().upload();
}

std::string expected_backend(const Target& target, const std::vector<ConstTensor>& caches) {
  if (target.backend != "sm90") return target.backend;
  bool served = true;
  for (const ConstTensor& cache : caches) {
    const auto size = static_cast<std::int64_t>(size_of(cache.dtype));
    served = served && cache.shape[0] > 0 && reinterpret_cast<std::uintptr_t>(cache.data) % 16 == 0;
    for (int i = 0; i + 1 < cache.rank; ++i) {
      served = served && (cache.shape[i] == 1 || cache.stride[i] * size % 16 == 0);
    }
  }
  return served ? "sm90" : "portable";
}

}  // namespace msa::verify
