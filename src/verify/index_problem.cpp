// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "verify/index_problem.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "common/numeric.h"
#include "msa/device.h"

namespace msa::verify {
namespace {

std::int64_t blocks_of(std::int64_t keys) { return (keys + page_size - 1) / page_size; }

template <class T>
std::vector<T> dense_of(const Tensor& view) {
  const std::vector<std::byte> bytes = dense_bytes(view);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Array make_workspace(const Target& target, std::size_t bytes) {
  Array workspace(target, DType::u8, {static_cast<std::int64_t>(bytes)}, Poison::nan);
  workspace.buffer().upload();
  return workspace;
}

/// Whether scores `[Hi, blocks, rows]` changed in the columns of the first `tokens` rows alone.
bool only_columns_changed(const Array& scores, const std::vector<std::byte>& before,
                          std::int64_t tokens) {
  std::vector<std::byte> expected = before;
  const std::byte* now = scores.buffer().data();
  const Tensor view = scores.view();
  for (std::int64_t h = 0; h < view.shape[0]; ++h) {
    for (std::int64_t b = 0; b < view.shape[1]; ++b) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::int64_t at = scores.at(h, b, t) * static_cast<std::int64_t>(sizeof(float));
        std::memcpy(expected.data() + at, now + at, sizeof(float));
      }
    }
  }
  return std::equal(expected.begin(), expected.end(), now) && scores.buffer().guards_intact();
}

}  // namespace

IndexProblem::IndexProblem(const Target& target, const IndexSpec& spec, Poison poison)
    : target_(target), spec_(spec), rows_(token_rows(spec.batch)) {
  const std::int64_t rows = tokens() + spec.spare_rows, lists = this->lists();
  const std::int64_t head = head_dim + spec.head_pad, topk = spec.topk;
  const std::int64_t blocks =
      std::max<std::int64_t>(0, blocks_of(spec.batch.max_keys()) + spec.spare_blocks);
  q_ = Array(target, spec.q, {rows, spec.heads, head_dim}, poison,
             {spec.heads * head + spec.head_pad, head, 1}, spec.misalign);
  const std::vector<std::int64_t> head_major = {topk, rows * topk, 1};
  selection_ = Array(target, DType::i32, {rows, lists, topk}, poison,
                     spec.head_major ? head_major : std::vector<std::int64_t>{}, spec.misalign);
  again_ = Array(target, DType::i32, {rows, lists, topk}, poison);
  const std::vector<std::int64_t> tokens_outside = {1, spec.heads, blocks * spec.heads};
  scores_ =
      Array(target, DType::f32, {spec.heads, blocks, rows}, poison,
            spec.tokens_outside ? tokens_outside : std::vector<std::int64_t>{}, spec.misalign);
  valid_ = Array(target, DType::i32, {rows}, poison, {}, spec.misalign);
  for (std::int64_t t = 0; t < tokens(); ++t) {
    i32(valid_, t) = static_cast<std::int32_t>(blocks_of(visible(t)));
  }
  for (std::int64_t r = 0; r < spec.batch.num_requests(); ++r) {
    const Request& request = spec.batch.request(r);
    std::int64_t& keys = keys_of_[request.content];
    keys = std::max(keys, request.keys);
  }
  place_pages();
  fill_table(poison);
  make_cache(poison);
  fill_queries();
  workspace_ = make_workspace(target, workspace_size(args(Side::target)));
}

std::int64_t IndexProblem::visible(std::int64_t row) const {
  return std::max<std::int64_t>(rows_[row].position + 1, 0);
}

void IndexProblem::place_pages() {
  for (const auto& [content, keys] : keys_of_) {
    for (std::int64_t b = 0; b < blocks_of(keys); ++b) pages_[{content, b}] = 0;
  }
  const std::int64_t n = static_cast<std::int64_t>(pages_.size()) + 1 + spec_.spare_pages;
  std::vector<std::int64_t> slots;
  for (std::int64_t i = 0; i < n; ++i) slots.push_back(spec_.first_page + i);
  Rng rng(seed_of({spec_.page_seed, 12}));
  rng.shuffle(slots);
  for (auto& [block, page] : pages_) {
    page = slots.back();
    slots.pop_back();
  }
  poison_page_ = slots.back();
  pool_ = spec_.first_page + n;
}

void IndexProblem::fill_table(Poison poison) {
  const std::int64_t columns = spec_.batch.table_columns(blocks_of(spec_.batch.max_keys()));
  batch_ = BatchArrays(target_, spec_.batch, columns, poison);
  for (std::int64_t r = 0; r < spec_.batch.num_requests(); ++r) {
    const Request& request = spec_.batch.request(r);
    // All cells of the row, and beyond it those of the request's own pages.
    const std::int64_t filled =
        std::max(columns, std::min(blocks_of(request.keys), spec_.batch.table_room(r, columns)));
    for (std::int64_t b = 0; b < filled; ++b) {
      std::int32_t& cell = i32(batch_.table(), r, b);
      if (b >= blocks_of(request.keys)) {
        if (b % 2 == 0) cell = static_cast<std::int32_t>(poison_page_);  // a stale entry
        continue;
      }
      cell = static_cast<std::int32_t>(pages_.at({request.content, b}));
      Rng rng(seed_of({spec_.seed, 13, request.content, static_cast<std::uint64_t>(b)}));
      if (!spec_.garbage_cells || !rng.chance(30)) continue;
      const std::int32_t bad[] = {-1, static_cast<std::int32_t>(pool_),
                                  std::numeric_limits<std::int32_t>::max(),
                                  std::numeric_limits<std::int32_t>::min()};
      cell = bad[rng.below(4)];
    }
  }
}

std::byte* IndexProblem::token_row(std::int64_t page, std::int64_t token) const {
  return cache_.ptr<std::byte>() + (page * cache_.stride[0] + token * cache_.stride[1]) *
                                       static_cast<std::int64_t>(size_of(spec_.k));
}

void IndexProblem::make_cache(Poison poison) {
  const auto size = static_cast<std::int64_t>(size_of(spec_.k));
  const std::int64_t token = head_dim + spec_.token_pad;
  const std::int64_t page = page_size * token + spec_.page_pad;
  memory_ = std::make_unique<Buffer>(target_, static_cast<std::size_t>(pool_ * page * size),
                                     static_cast<std::size_t>(spec_.misalign * size),
                                     spec_.first_page > 0);
  cache_ = Tensor(memory_->data(), spec_.k, {pool_, page_size, head_dim}, {page, token, 1});
  fill_poison(spec_.k, token_row(spec_.first_page, 0), (pool_ - spec_.first_page) * page, poison);
  for (const auto& [block, at] : pages_) fill_page(block, at);
}

void IndexProblem::fill(DType type, void* to, std::int64_t n, std::uint64_t seed) const {
  switch (spec_.values) {
    case IndexValues::normal:
      fill_normal(type, to, n, seed, spec_.gain);
      break;
    case IndexValues::integers:
      fill_integers(type, to, n, seed);
      break;
    case IndexValues::equal:
      for (std::int64_t i = 0; i < n; ++i) store(type, to, i, 1.0);
      break;
  }
}

void IndexProblem::fill_page(const Block& block, std::int64_t page) {
  const std::size_t row = head_dim * size_of(spec_.k);
  std::vector<std::byte> keys(page_size * row);
  fill(spec_.k, keys.data(), std::int64_t{page_size} * head_dim,
       seed_of({spec_.seed, 14, block.first, static_cast<std::uint64_t>(block.second)}));
  if (spec_.edit_keys) spec_.edit_keys(block.first, block.second, keys.data());
  const std::int64_t n =
      std::min<std::int64_t>(keys_of_.at(block.first) - block.second * page_size, page_size);
  for (std::int64_t j = 0; j < n; ++j) {
    std::memcpy(token_row(page, j), keys.data() + static_cast<std::size_t>(j) * row, row);
  }
}

void IndexProblem::fill_queries() {
  const auto size = static_cast<std::int64_t>(size_of(spec_.q));
  for (std::int64_t t = 0; t < tokens(); ++t) {
    const TokenRow& row = rows_[t];
    if (row.request < 0) continue;  // poison: padding rows are not read
    for (std::int64_t h = 0; h < spec_.heads; ++h) {
      std::byte* to = q_.data<std::byte>() + q_.at(t, h) * size;
      fill(spec_.q, to, head_dim,
           seed_of({spec_.seed, 15, row.content, static_cast<std::uint64_t>(row.position),
                    static_cast<std::uint64_t>(h)}));
      if (spec_.edit_q) spec_.edit_q(row.content, row.position, h, to);
    }
  }
}

IndexArgs IndexProblem::args(Side side) const {
  IndexArgs a;
  a.index_q = q_.view(side);
  Tensor cache = cache_;
  cache.data = memory_->data(side);
  if (side == Side::target) cache.device = target_.device;
  a.index_cache = cache;
  a.batch = batch_.metadata(side);
  a.selection = selection_.view(side);
  a.rule = spec_.rule;
  a.exact = spec_.exact;
  a.workspace_cap = spec_.workspace_cap;
  if (workspace_.given()) {
    a.workspace = {workspace_.buffer().data(side), workspace_.buffer().bytes()};
  }
  a.stream = target_.stream;
  return a;
}

IndexScoresArgs IndexProblem::scores_args(Side side) const { return scores_args(args(side), side); }

IndexScoresArgs IndexProblem::scores_args(const IndexArgs& a, Side side) const {
  IndexScoresArgs s;
  s.index_q = a.index_q;
  s.index_cache = a.index_cache;
  s.batch = a.batch;
  s.scores = scores_.view(side);
  s.exact = a.exact;
  s.stream = a.stream;
  return s;
}

void IndexProblem::upload() {
  batch_.upload();
  for (const Array* a : {&q_, &selection_, &again_, &scores_, &valid_, &workspace_}) {
    if (a->given()) a->buffer().upload();
  }
  const std::size_t begin = memory_->bytes() / static_cast<std::size_t>(pool_) *
                            static_cast<std::size_t>(spec_.first_page);
  memory_->upload(begin, memory_->bytes() - begin);
}

IndexOutput IndexProblem::run(Judge& judge, const std::function<void(IndexArgs&)>& change) {
  const std::vector<std::byte> selection_before = snapshot(selection_),
                               scores_before = snapshot(scores_);
  upload();
  IndexArgs call = args(Side::target);
  if (change) change(call);
  judge.require(call.workspace.bytes <= spec_.workspace_cap, "workspace_size is above the cap");
  target_.submit([&] { index_blocks(call); });
  const std::string expected = expected_backend(target_, {call.index_cache});
  judge.require(last_backend() == expected, std::string("served by backend '") + last_backend() +
                                                "' instead of '" + expected + "'");
  IndexScoresArgs scores = scores_args(call, Side::target);
  const Array scores_workspace = make_workspace(target_, workspace_size(scores));
  scores.workspace = {scores_workspace.buffer().data(Side::target),
                      scores_workspace.buffer().bytes()};
  target_.submit([&] { index_scores(scores); });
  SelectArgs select;
  select.scores = scores.scores;
  select.valid_blocks = valid_.view(Side::target);
  select.selection = again_.view(Side::target);
  select.num_tokens = tokens();
  select.rule = spec_.rule;
  select.stream = target_.stream;
  const Array select_workspace = make_workspace(target_, workspace_size(select));
  select.workspace = {select_workspace.buffer().data(Side::target),
                      select_workspace.buffer().bytes()};
  target_.submit([&] { select_blocks(select); });
  target_.synchronize();
  for (const Array* a : {&selection_, &again_, &scores_, &workspace_}) a->buffer().download();

  judge.require(untouched_outside(selection_, selection_before, tokens()),
                "wrote outside of the selection's rows");
  judge.require(only_columns_changed(scores_, scores_before, tokens()),
                "wrote outside of the scores' columns");
  judge.require(workspace_.buffer().guards_intact(), "wrote outside of the workspace");
  IndexOutput output{dense_of<std::int32_t>(selection_.view().narrow(0, 0, tokens())),
                     dense_of<float>(scores_.view().narrow(2, 0, tokens()))};
  if (spec_.spare_blocks >= 0) {
    const auto again = dense_of<std::int32_t>(again_.view().narrow(0, 0, tokens()));
    judge.same_bits(output.ids.data(), again.data(), sizeof(std::int32_t),
                    {tokens(), lists(), spec_.topk}, "ids against select_blocks of the scores");
  }
  return output;
}

}  // namespace msa::verify
