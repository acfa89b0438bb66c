// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include "reference/decode.h"
#include "reference/reference.h"

namespace msa::reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The visible keys of one selected block of one KV head.
struct Tile {
  std::int64_t keys = 0;
  std::vector<double> k;  // [128 elements, keys]
  std::vector<double> v;  // [keys, 128 elements]
};

/// The set of blocks that list `list` of row `t` names and the row may see, here and ascending.
std::set<std::int64_t> chosen_blocks(const AttendArgs& args, std::int64_t t, std::int64_t list,
                                     std::int64_t visible) {
  const ConstTensor& s = args.selection;
  std::set<std::int64_t> blocks;
  for (std::int64_t i = 0; i < s.shape[2]; ++i) {
    std::int32_t id;
    std::memcpy(&id, s.ptr<std::int32_t>() + t * s.stride[0] + list * s.stride[1] + i * s.stride[2],
                sizeof id);
    if (id < 0 || id >= (visible + page_size - 1) / page_size) continue;
    if (id % args.kv_shard.world == args.kv_shard.rank) blocks.insert(id);
  }
  return blocks;
}

/// The tiles of one row and KV head. A block whose table entry is no page counts as not selected.
std::vector<Tile> gather(const AttendArgs& args, std::int64_t t, const Row& row, std::int64_t head,
                         std::int64_t visible) {
  const ConstTensor k = args.kv_cache.k_view(), v = args.kv_cache.v_view();
  std::vector<Tile> tiles;
  const std::int64_t list = args.selection.shape[1] == 1 ? 0 : head;
  for (std::int64_t b : chosen_blocks(args, t, list, visible)) {
    const std::int64_t page =
        table_entry(args.batch, row.request, b / args.kv_shard.world, k.shape[0]);
    if (page < 0) continue;
    Tile tile{std::min<std::int64_t>(visible - b * page_size, page_size), {}, {}};
    tile.k.resize(head_dim * tile.keys);
    tile.v.resize(head_dim * tile.keys);
    for (std::int64_t j = 0; j < tile.keys; ++j) {
      load_row(k, page * k.stride[0] + head * k.stride[1] + j * k.stride[2], head_dim,
               tile.k.data() + j, tile.keys);
      load_row(v, page * v.stride[0] + head * v.stride[1] + j * v.stride[2], head_dim,
               tile.v.data() + j * head_dim);
    }
    tiles.push_back(std::move(tile));
  }
  return tiles;
}

/// The element type that products are formed in.
DType product_type(DType cache, DType q) { return is_fp8(cache) ? q : cache; }

/// q rounded to the product type; f16 products of another type are scaled by a power of two so that
/// the row's largest element lies in [2^14, 2^15).
void round_query(DType from, DType to, std::vector<double>& q) {
  double amax = 0;
  for (double x : q) amax = std::isfinite(x) ? std::max(amax, std::fabs(x)) : amax;
  const int shift = to == DType::f16 && from != to && amax > 0 ? 14 - std::ilogb(amax) : 0;
  for (double& x : q) x = std::ldexp(round_to(to, std::ldexp(x, shift)), -shift);
}

/// Softmax of one query head over the tiles: 128 outputs, and the LSE as result.
double softmax_row(const std::vector<double>& q, const std::vector<Tile>& tiles, double scale,
                   const DType* p_type, double* out) {
  const bool plain = p_type != nullptr;  // logits in f32, P rounded to p_type
  const auto in_f32 = [plain](double x) { return plain ? static_cast<float>(x) : x; };
  std::vector<double> logits(tiles.size() * page_size, 0.0);
  double largest = -infinity;
  bool nan = false;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    double* row = logits.data() + i * page_size;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      const double* k = tiles[i].k.data() + d * tiles[i].keys;
      for (std::int64_t j = 0; j < tiles[i].keys; ++j) row[j] = in_f32(row[j] + q[d] * k[j]);
    }
    for (std::int64_t j = 0; j < tiles[i].keys; ++j) {
      row[j] = in_f32(row[j] * scale);
      nan = nan || std::isnan(row[j]);
      largest = std::max(largest, row[j]);
    }
  }
  if (!nan && largest == -infinity) return -infinity;  // no key, or none with a weight
  double sum = 0;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    for (std::int64_t j = 0; j < tiles[i].keys; ++j) {
      double p = std::exp(logits[i * page_size + j] - largest);
      sum += p;
      if (plain) p = round_to(*p_type, p);
      const double* v = tiles[i].v.data() + j * head_dim;
      for (std::int64_t d = 0; d < head_dim; ++d) out[d] += p * v[d];
    }
  }
  for (std::int64_t d = 0; d < head_dim; ++d) out[d] /= sum;
  return largest + std::log(sum);
}

}  // namespace

AttendResult attend(const AttendArgs& args, AttendMath math,
                    const std::vector<std::int64_t>& rows) {
  const ConstTensor& q = args.q;
  const std::int64_t tokens = args.batch.num_actual_tokens, heads = q.shape[1];
  const std::int64_t kv_heads = args.kv_cache.shape_view().shape[1], group = heads / kv_heads;
  const double scale = args.softmax_scale * value_of(args.k_scale),
               v_scale = value_of(args.v_scale);
  const DType products = product_type(args.kv_cache.shape_view().dtype, q.dtype);
  AttendResult result{std::vector<double>(tokens * heads * head_dim),
                      std::vector<double>(tokens * heads, -infinity)};
  std::vector<std::int64_t> wanted = rows;
  if (rows.empty()) {
    wanted.resize(tokens);
    std::iota(wanted.begin(), wanted.end(), 0);
  }
  const std::vector<Row> all = token_rows(args.batch);
  std::vector<double> q_row(head_dim);
  std::vector<Tile> tiles;  // shared by the query heads of a KV head
  for (std::int64_t t : wanted) {
    if (all[t].request < 0) continue;
    const std::int64_t visible =
        args.causal ? std::max<std::int64_t>(all[t].position + 1, 0) : all[t].seq_len;
    for (std::int64_t h = 0; h < heads; ++h) {
      if (h % group == 0) tiles = gather(args, t, all[t], h / group, visible);
      load_row(q, t * q.stride[0] + h * q.stride[1], head_dim, q_row.data());
      if (math != AttendMath::exact) round_query(q.dtype, products, q_row);
      double* out = result.out.data() + (t * heads + h) * head_dim;
      result.lse[t * heads + h] =
          softmax_row(q_row, tiles, scale, math == AttendMath::rounded ? &products : nullptr, out);
      for (std::int64_t d = 0; d < head_dim; ++d) {
        out[d] *= v_scale;
        if (math == AttendMath::rounded) out[d] = round_to(args.out.dtype, out[d]);
      }
    }
  }
  return result;
}

}  // namespace msa::reference
