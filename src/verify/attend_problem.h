// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "msa/attend.h"
#include "verify/compare.h"
#include "verify/inputs.h"
#include "verify/memory.h"

/// \file
/// One attend call made from a description: inputs, poison around them, the call, and what it
/// wrote.

namespace msa::verify {

/// How selections are drawn. Every row's list is a function of the seed, its request's content, its
/// position and the list's number.
enum class Ids {
  sorted,    // ascending, own block among them, then −1
  messy,     // unsorted; −1 in the middle, repeats, ids past the edge, negative ids, garbage
  no_own,    // sorted, without the own block
  disjoint,  // neighbouring rows share no block
  block0,    // every row names block 0 alone
  late,      // invalid ids first, the valid ones in the last places
  beyond,    // only ids past the causal edge: empty rows
  none,      // −1 throughout: empty rows
};

/// How K and V reach the call.
enum class Form {
  packed,       // one view [pages, Hkv, 128, 256]
  halves,       // the packed view's halves as two views
  pools,        // two pools: K head-major, V token-major with an odd page stride
  interleaved,  // [pages, layers, 2, 128, Hkv, 128]: K and V alternate within a page
};

/// A run of elements to be changed by an edit.
struct Elements {
  DType type;
  std::byte* data;
  void set(std::int64_t i, double x) const;
  double get(std::int64_t i) const;
  void fill(std::int64_t begin, std::int64_t n, double x) const;
};

struct AttendSpec {
  std::int64_t hq = 16;
  std::int64_t hkv = 1;
  bool one_list = false;  // Hs = 1
  std::int64_t topk = 16;
  BatchSpec batch;
  DType q = DType::bf16;
  DType kv = DType::bf16;
  DType out = DType::bf16;
  Ids ids = Ids::sorted;

  KVLayout layout = KVLayout::LBHNC;
  std::int64_t layers = 1;
  std::int64_t layer = 0;
  Form form = Form::packed;
  std::int64_t misalign = 0;  // elements; every base pointer
  std::int64_t head_pad = 0;  // elements between heads of q and out
  bool head_major_selection = false;
  std::int64_t spare_rows = 2;  // rows ≥ T of q, out, lse and the selection
  std::int64_t spare_pages = 2;
  std::int64_t first_page = 0;  // > 0: page ids start here, in a sparse reservation
  bool garbage_cells = false;   // some needed table cells name no page

  bool with_lse = true;
  bool causal = true;
  bool invariant = false;
  KVShard shard;
  float softmax_scale = 0.08838834764831845f;
  float k_scale = 1;
  float v_scale = 1;
  bool device_scales = false;
  std::size_t workspace_cap = default_workspace_cap;

  std::uint64_t seed = 1;       // values and selections
  std::uint64_t page_seed = 1;  // where pages lie
  double q_gain = 1;
  double k_gain = 1;
  double v_gain = 1;
  /// Changes 128 elements of q of (content, position, head).
  std::function<void(std::uint64_t, std::int64_t, std::int64_t, const Elements&)> edit_q;
  /// Changes the 128 · 256 elements of the tile of (content, block, KV head): [token, K then V].
  std::function<void(std::uint64_t, std::int64_t, std::int64_t, const Elements&)> edit_tile;
  /// Changes the ids of (content, position, list).
  std::function<void(std::uint64_t, std::int64_t, std::int64_t, std::vector<std::int32_t>&)>
      edit_ids;
};

/// What a call wrote to rows t < T: dense bits.
struct AttendOutput {
  std::vector<std::byte> out;  // [T, Hq, 128]
  std::vector<std::byte> lse;  // [T, Hq] f32; empty where none was asked for
};

class AttendProblem {
 public:
  AttendProblem(const Target& target, const AttendSpec& spec, Poison poison);

  const AttendSpec& spec() const { return spec_; }
  const std::vector<TokenRow>& rows() const { return rows_; }
  std::int64_t tokens() const { return static_cast<std::int64_t>(rows_.size()); }
  /// Visible keys of a row.
  std::int64_t visible(std::int64_t row) const;
  /// Visible keys of the row's distinct valid blocks in `list`.
  std::int64_t selected_keys(std::int64_t row, std::int64_t list = 0) const;

  AttendArgs args(Side side) const;
  /// Calls msa::attend, with arguments that `change` may still alter; what is not a row's own must
  /// stay untouched.
  AttendOutput run(Judge& judge, const std::function<void(AttendArgs&)>& change = {});
  /// Overwrites all inputs in place with those of a problem of the same shapes.
  void take_contents(const AttendProblem& other);

  /// K (part 0) or V (part 1) of one token of a selected tile, past the length too.
  Elements cache_row(std::uint64_t content, std::int64_t block, std::int64_t head,
                     std::int64_t token, int part) const;
  const Array& q() const { return q_; }
  const Array& selection() const { return selection_; }
  const Array& table() const { return batch_.table(); }
  const Array& seq_lens() const { return batch_.seq_lens(); }

 private:
  using Block = std::pair<std::uint64_t, std::int64_t>;  // content, block

  void draw_ids();
  void place_pages();
  void fill_table(Poison poison);
  void make_views();
  void make_cache(Poison poison);
  std::byte* make_pool(std::int64_t elements);
  void fill_tile(const Block& block, std::int64_t head);
  void fill_queries();
  void upload();

  const Target& target_;
  AttendSpec spec_;
  std::vector<TokenRow> rows_;
  BatchArrays batch_;
  Array q_, selection_, out_, lse_, k_scale_, v_scale_, workspace_;
  std::map<Block, std::vector<bool>> used_;        // per KV head
  std::map<Block, std::int64_t> pages_;            // of used blocks
  std::map<std::uint64_t, std::int64_t> keys_of_;  // largest seq_len of a content
  std::int64_t poison_page_ = 0;                   // every block that no row selected
  std::int64_t pool_ = 0;                          // pages of the cache
  std::vector<std::unique_ptr<Buffer>> caches_;    // one, or K's and V's
  Tensor packed_, k_, v_;                          // host views; packed_ where it is the form
};

/// Runs with NaN, then with huge poison; both must give the same bits.
AttendOutput poisoned_run(const Target& target, const AttendSpec& spec, Judge& judge);

/// How far a judge may go.
struct AttendTolerance {
  bool unit_variance = true;  // section 9's first row holds; else only the rounded-math row, its
                              // 1e-5 multiplied by the largest |V · v_scale|
  bool against_rounded = true;
};
/// Compares sampled rows with the reference by section 9.
void judge_against_reference(Judge& judge, const AttendProblem& problem, const AttendOutput& output,
                             const AttendTolerance& tolerance = {});
/// The usual case: poisoned_run and judge_against_reference.
Outcome check_attend(const Target& target, const AttendSpec& spec,
                     const AttendTolerance& tolerance = {});

/// Rows of `a` and `b` with the same content and position must have the same bits. Returns how many
/// rows were compared.
std::int64_t same_rows(Judge& judge, const AttendProblem& a, const AttendOutput& out_a,
                       const AttendProblem& b, const AttendOutput& out_b, const std::string& what);
/// Runs both specs and compares all rows that they share (at least one must be).
Outcome check_same_bits(const Target& target, const AttendSpec& a, const AttendSpec& b,
                        const std::string& what);

/// Parts of the table, one source each.
void add_attend_grid(std::vector<Case>& cases);
void add_attend_selection(std::vector<Case>& cases);
void add_attend_values(std::vector<Case>& cases);
void add_attend_bits(std::vector<Case>& cases);
void add_attend_memory(std::vector<Case>& cases);
void add_attend_reports(std::vector<Case>& cases);
void add_attend_shards(std::vector<Case>& cases);

}  // namespace msa::verify
