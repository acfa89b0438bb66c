// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "msa/metadata.h"
#include "verify/memory.h"

/// \file
/// Seeded inputs. Every value is a function of a seed and of what it stands for (request, position,
/// head), never of where it lies: the same rows can be laid out, batched and paged in other ways
/// and must give the same bits.

namespace msa::verify {

/// SplitMix64.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n));
  }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  void shuffle(std::vector<T>& v) {
    for (std::size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[below(i)]);
  }

 private:
  std::uint64_t state_;
};

/// A seed made of what a value stands for.
std::uint64_t seed_of(std::initializer_list<std::uint64_t> parts);

/// `n` elements of about unit variance times `gain`, rounded to the type.
void fill_normal(DType type, void* to, std::int64_t n, std::uint64_t seed, double gain = 1);
/// `n` small integers in [−range, range]: every dot product of 128 is exact in f32 in any order.
void fill_integers(DType type, void* to, std::int64_t n, std::uint64_t seed, int range = 3);

/// One request. Two requests of equal `content` hold the same keys and share physical pages.
struct Request {
  std::int64_t query = 1;  // query tokens; decode requests have m whatever this says
  std::int64_t keys = 0;   // seq_len
  std::uint64_t content = 0;
};
/// Requests with contents 1, 2, …
std::vector<Request> requests(std::initializer_list<std::int64_t> keys, std::uint64_t first = 1);
std::vector<Request> prefills(std::initializer_list<std::int64_t> queries,
                              std::initializer_list<std::int64_t> keys, std::uint64_t first = 1001);

/// A batch: decode requests of m tokens each, then prefill requests, then tokens of no request.
struct BatchSpec {
  std::int64_t m = 1;
  std::vector<Request> decodes;
  std::vector<Request> prefills;
  std::int64_t padding_tokens = 0;
  std::int64_t spare_columns = 3;  // of the block table, beyond what is needed
  std::int64_t table_pad = 1;      // elements between the table's rows
  std::int64_t bound_slack = 0;    // added to max_query_len and max_seq_len

  const Request& request(std::size_t r) const {
    return r < decodes.size() ? decodes[r] : prefills[r - decodes.size()];
  }
  std::int64_t num_requests() const {
    return static_cast<std::int64_t>(decodes.size() + prefills.size());
  }
  std::int64_t tokens() const;
  std::int64_t max_keys() const;
  /// Columns of the block table for requests of at most `blocks` blocks; none below 0.
  std::int64_t table_columns(std::int64_t blocks) const;
  /// Cells from a request's first that may be filled. Between two rows of a table too narrow for
  /// the request lie the pages that it leaves out: a call that looked past the width would find
  /// them and use them. A table without columns has no room between its rows.
  std::int64_t table_room(std::int64_t request, std::int64_t columns) const;
};

/// What one token row stands for.
struct TokenRow {
  std::int64_t request = -1;   // −1: padding
  std::int64_t position = -1;  // visible keys − 1; may be below −1
  std::uint64_t content = 0;
};
std::vector<TokenRow> token_rows(const BatchSpec& spec);

/// Rows worth comparing with a slow reference, in ascending order: first and last rows of requests
/// before others, drawn by the seed, while the sum of their costs stays within the budget. One row
/// at least, whatever it costs.
std::vector<std::int64_t> sample_rows(const std::vector<TokenRow>& rows, std::uint64_t seed,
                                      std::int64_t budget,
                                      const std::function<std::int64_t(std::int64_t)>& cost);

/// The arrays of BatchMetadata. The table starts fully poisoned: fill the cells that name pages.
class BatchArrays {
 public:
  BatchArrays() = default;
  BatchArrays(const Target& target, const BatchSpec& spec, std::int64_t columns, Poison poison);

  BatchMetadata metadata(Side side) const;
  void upload() const;
  const Array& table() const { return table_; }
  const Array& seq_lens() const { return seq_lens_; }

 private:
  BatchMetadata counts_;
  Array seq_lens_;
  Array table_;
  Array cu_seqlens_q_;
  Array context_lens_;
};

/// The backend that serves a call with these caches: the target's, but for calls that the SM90
/// kernels leave to the portable ones, with a cache that the copy engine cannot address.
std::string expected_backend(const Target& target, const std::vector<ConstTensor>& caches);

}  // namespace msa::verify
