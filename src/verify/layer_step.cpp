// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "common/numeric.h"
#include "msa/layer.h"
#include "reference/reference.h"
#include "verify/compare.h"
#include "verify/inputs.h"
#include "verify/memory.h"
#include "verify/verify.h"

/// \file
/// layer_step: the bits of the three operators called one by one, and each stage against the
/// reference on what the stage before it wrote.

namespace msa::verify {
namespace {

struct StepSpec {
  std::int64_t hq = 16;
  std::int64_t hkv = 1;  // index heads too
  std::int64_t topk = 16;
  BatchSpec batch;
  DType type = DType::bf16;  // of the activations
  DType kv = DType::bf16;
  DType index = DType::bf16;
  KVLayout layout = KVLayout::LBHNC;
  std::int64_t layers = 1;  // of the cache; the step's is the last
  float k_scale = 1;
  float v_scale = 1;
  SelectRule rule;
  std::uint64_t seed = 1;
};

std::int64_t blocks_of(std::int64_t keys) { return (keys + page_size - 1) / page_size; }

/// All buffers of a step. Keys before the step's own tokens are in the caches; whatever else no row
/// owns is poison.
class StepProblem {
 public:
  StepProblem(const Target& target, const StepSpec& spec, Poison poison);

  LayerStepArgs args(Side side) const;
  /// One call, or the three operators with every argument spelled out.
  void run(bool fused);
  /// Every byte that a step may write.
  std::vector<std::vector<std::byte>> state() const;
  const std::vector<TokenRow>& rows() const { return rows_; }
  std::int64_t slot(const BatchArrays& batch, const TokenRow& row) const;
  const BatchArrays& main_batch() const { return main_; }
  const BatchArrays& index_batch() const { return index_; }

 private:
  std::vector<const Array*> outputs() const {
    return {&q_, &index_q_, &selection_, &out_, &lse_, &cache_, &index_cache_};
  }
  void place_pages(const BatchArrays& batch, std::uint64_t seed) const;
  void fill_context(std::int64_t request, std::int64_t keys);
  void fill_inputs();
  KVCache cache_view(Side side) const;

  const Target& target_;
  StepSpec spec_;
  std::vector<TokenRow> rows_;
  std::int64_t pages_ = 1;
  BatchArrays main_, index_;  // the same batch; a page table for each cache
  Array qkv_, positions_, cos_sin_, norms_, slots_, index_slots_, workspace_;
  Array q_, index_q_, selection_, out_, lse_, cache_, index_cache_;
};

StepProblem::StepProblem(const Target& target, const StepSpec& spec, Poison poison)
    : target_(target), spec_(spec), rows_(token_rows(spec.batch)) {
  for (std::int64_t r = 0; r < spec.batch.num_requests(); ++r) {
    pages_ += blocks_of(spec.batch.request(r).keys);
  }
  const std::int64_t columns = spec.batch.table_columns(blocks_of(spec.batch.max_keys()));
  const std::int64_t rows = spec.batch.tokens() + 2;  // two that no call owns
  const std::int64_t width = (spec.hq + 3 * spec.hkv + 1) * head_dim;
  main_ = BatchArrays(target, spec.batch, columns, poison);
  index_ = BatchArrays(target, spec.batch, columns, poison);
  qkv_ = Array(target, spec.type, {rows, width}, poison);
  positions_ = Array(target, DType::i64, {rows}, poison);
  cos_sin_ = Array(target, DType::f32, {spec.batch.max_keys() + 1, 64}, poison);
  norms_ = Array(target, spec.type, {4, head_dim}, poison);
  slots_ = Array(target, DType::i64, {rows}, poison);
  index_slots_ = Array(target, DType::i64, {rows}, poison);
  q_ = Array(target, spec.type, {rows, spec.hq, head_dim}, poison);
  index_q_ = Array(target, spec.index, {rows, spec.hkv, head_dim}, poison);
  selection_ = Array(target, DType::i32, {rows, spec.hkv, spec.topk}, poison);
  out_ = Array(target, spec.type, {rows, spec.hq, head_dim}, poison);
  lse_ = Array(target, DType::f32, {rows, spec.hq}, poison);
  cache_ =
      Array(target, spec.kv, {spec.layers * pages_ * spec.hkv * page_size * 2 * head_dim}, poison);
  index_cache_ = Array(target, spec.index, {pages_, page_size, head_dim}, poison);
  place_pages(main_, 1);
  place_pages(index_, 2);
  for (std::int64_t r = 0; r < spec.batch.num_requests(); ++r) {
    const bool decode = r < static_cast<std::int64_t>(spec.batch.decodes.size());
    const Request& request = spec.batch.request(r);
    fill_context(r, request.keys - (decode ? spec.batch.m : request.query));
  }
  fill_inputs();
  const std::size_t bytes = workspace_size(args(Side::target));
  workspace_ = Array(target, DType::u8, {static_cast<std::int64_t>(bytes)}, poison);
}

/// Page 0 stays a null page.
void StepProblem::place_pages(const BatchArrays& batch, std::uint64_t seed) const {
  std::vector<std::int32_t> order(static_cast<std::size_t>(pages_ - 1));
  std::iota(order.begin(), order.end(), 1);
  Rng(seed_of({spec_.seed, seed})).shuffle(order);
  for (std::int64_t r = 0; r < spec_.batch.num_requests(); ++r) {
    for (std::int64_t b = 0; b < blocks_of(spec_.batch.request(r).keys); ++b) {
      i32(batch.table(), r, b) = order.back();
      order.pop_back();
    }
  }
}

std::int64_t StepProblem::slot(const BatchArrays& batch, const TokenRow& row) const {
  if (row.request < 0 || row.position < 0) return -1;
  const std::int64_t page = i32(batch.table(), row.request, row.position / page_size);
  return page * page_size + row.position % page_size;
}

KVCache StepProblem::cache_view(Side side) const {
  const Tensor bytes = cache_.view(side);
  return kv_layer_view(bytes.data, spec_.kv, spec_.layout,
                       {.layers = spec_.layers, .pages = pages_, .heads = spec_.hkv},
                       spec_.layers - 1, bytes.device);
}

void StepProblem::fill_context(std::int64_t request, std::int64_t keys) {
  const Tensor cache = cache_view(Side::host).packed, index = index_cache_.view();
  const auto fill = [&](const Tensor& view, std::int64_t offset, std::int64_t n, std::uint64_t part,
                        std::int64_t position) {
    const auto size = static_cast<std::int64_t>(size_of(view.dtype));
    fill_normal(view.dtype, view.ptr<char>() + offset * size, n,
                seed_of({spec_.seed, static_cast<std::uint64_t>(request), part,
                         static_cast<std::uint64_t>(position)}));
  };
  for (std::int64_t p = 0; p < keys; ++p) {
    const std::int64_t at = slot(main_, {request, p});
    for (std::int64_t h = 0; h < spec_.hkv; ++h) {
      fill(
          cache,
          at / page_size * cache.stride[0] + h * cache.stride[1] + at % page_size * cache.stride[2],
          2 * head_dim, static_cast<std::uint64_t>(h), p);
    }
    const std::int64_t key = slot(index_, {request, p});
    fill(index, key * head_dim, head_dim, 100, p);
  }
}

void StepProblem::fill_inputs() {
  const std::int64_t tokens = spec_.batch.tokens(), width = qkv_.view().shape[1];
  const auto size = static_cast<std::int64_t>(size_of(spec_.type));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const TokenRow& row = rows_[static_cast<std::size_t>(t)];
    fill_normal(spec_.type, qkv_.data<char>() + qkv_.at(t) * size, width,
                seed_of({spec_.seed, 7, static_cast<std::uint64_t>(t)}));
    positions_.data<std::int64_t>()[t] = std::max<std::int64_t>(row.position, 0);
    slots_.data<std::int64_t>()[t] = slot(main_, row);
    index_slots_.data<std::int64_t>()[t] = slot(index_, row);
  }
  for (std::int64_t p = 0; p < cos_sin_.view().shape[0]; ++p) {
    for (std::int64_t i = 0; i < 32; ++i) {
      const double angle = static_cast<double>(p) * std::pow(5e6, -static_cast<double>(i) / 32);
      f32(cos_sin_, p, i) = static_cast<float>(std::cos(angle));
      f32(cos_sin_, p, i + 32) = static_cast<float>(std::sin(angle));
    }
  }
  fill_normal(spec_.type, norms_.buffer().data(), 4 * head_dim, seed_of({spec_.seed, 8}), 0.1);
}

LayerStepArgs StepProblem::args(Side side) const {
  LayerStepArgs a;
  a.write.qkv = qkv_.view(side);
  a.write.positions = positions_.view(side);
  a.write.cos_sin = cos_sin_.view(side);
  ConstTensor* const weights[] = {&a.write.q_norm, &a.write.k_norm, &a.write.index_q_norm,
                                  &a.write.index_k_norm};
  for (std::int64_t i = 0; i < 4; ++i) {
    const Tensor row = norms_.view(side).narrow(0, i, 1);
    *weights[i] = ConstTensor(row.data, row.dtype, {head_dim}, {1}, row.device);
  }
  a.write.slot_mapping = slots_.view(side);
  a.write.index_slot_mapping = index_slots_.view(side);
  a.write.q_out = q_.view(side);
  a.write.kv_cache = cache_view(side);
  a.write.index_q_out = index_q_.view(side);
  a.write.index_cache = index_cache_.view(side);
  a.write.k_scale = spec_.k_scale;
  a.write.v_scale = spec_.v_scale;
  a.write.num_tokens = spec_.batch.tokens();
  a.write.stream = target_.stream;
  a.index.batch = index_.metadata(side);
  a.index.selection = selection_.view(side);
  a.index.rule = spec_.rule;
  a.index.exact = true;
  if (workspace_.given()) {
    a.index.workspace = {workspace_.view(side).data, workspace_.buffer().bytes()};
  }
  a.attend.batch = main_.metadata(side);
  a.attend.out = out_.view(side);
  a.attend.lse = lse_.view(side);
  return a;
}

void StepProblem::run(bool fused) {
  main_.upload();
  index_.upload();
  for (const Array* a : {&qkv_, &positions_, &cos_sin_, &norms_, &slots_, &index_slots_}) {
    a->buffer().upload();
  }
  workspace_.buffer().upload();
  for (const Array* a : outputs()) a->buffer().upload();
  LayerStepArgs a = args(Side::target);
  target_.submit([&] {
    if (fused) return layer_step(a);
    write_cache(a.write);
    a.index.index_q = a.write.index_q_out;
    a.index.index_cache = a.write.index_cache;
    a.index.stream = a.write.stream;
    index_blocks(a.index);
    a.attend.q = a.write.q_out;
    a.attend.kv_cache = a.write.kv_cache;
    a.attend.k_scale = a.write.k_scale;
    a.attend.v_scale = a.write.v_scale;
    a.attend.selection = a.index.selection;
    a.attend.workspace = a.index.workspace;
    a.attend.stream = a.write.stream;
    attend(a.attend);
  });
  target_.synchronize();
  for (const Array* a : outputs()) a->buffer().download();
}

std::vector<std::vector<std::byte>> StepProblem::state() const {
  std::vector<std::vector<std::byte>> all;
  for (const Array* a : outputs()) all.push_back(snapshot(*a));
  return all;
}

/// Heads of a written row against the f64 result: an ulp of the type, or 2^-20 of the row's norm.
void judge_heads(Judge& judge, DType type, const std::byte* got, const double* want,
                 std::int64_t elements, double scale, const std::string& what) {
  const FloatFormat& format = format_of(type);
  for (std::int64_t head = 0; head < elements; head += head_dim) {
    double norm = 0;
    for (std::int64_t d = head; d < head + head_dim; ++d) norm = std::hypot(norm, want[d] / scale);
    for (std::int64_t d = head; d < head + head_dim; ++d) {
      const double exact = want[d] / scale;
      const double ulp =
          std::ldexp(std::max(std::fabs(exact), std::ldexp(1.0, format.min_exponent())),
                     -format.mantissa_bits);
      judge.near(load(type, got, d), exact, ulp + std::ldexp(norm, -20),
                 what + ", element " + std::to_string(d));
    }
  }
}

void judge_write(Judge& judge, const StepProblem& problem, const StepSpec& s) {
  const WriteCacheArgs args = problem.args(Side::host).write;
  const reference::WriteResult want = reference::write_cache(args);
  const auto element = [](const Tensor& view, std::int64_t offset) {
    return view.ptr<std::byte>() + offset * static_cast<std::int64_t>(size_of(view.dtype));
  };
  const Tensor cache = args.kv_cache.packed;
  for (std::size_t i = 0; i < problem.rows().size(); ++i) {
    const auto t = static_cast<std::int64_t>(i);
    const std::string token = " of token " + std::to_string(t);
    judge_heads(judge, s.type, element(args.q_out, t * args.q_out.stride[0]),
                &want.q[i * s.hq * head_dim], s.hq * head_dim, 1, "q" + token);
    judge_heads(judge, s.index, element(args.index_q_out, t * args.index_q_out.stride[0]),
                &want.index_q[i * s.hkv * head_dim], s.hkv * head_dim, 1, "index_q" + token);
    const std::int64_t slot = problem.slot(problem.main_batch(), problem.rows()[i]);
    if (slot < 0) continue;
    for (std::int64_t h = 0; h < s.hkv; ++h) {
      const std::byte* row =
          element(cache, slot / page_size * cache.stride[0] + h * cache.stride[1] +
                             slot % page_size * cache.stride[2]);
      const std::size_t at = (i * s.hkv + h) * head_dim;
      judge_heads(judge, s.kv, row, &want.k[at], head_dim, s.k_scale, "k" + token);
      judge_heads(judge, s.kv, row + head_dim * size_of(s.kv), &want.v[at], head_dim, s.v_scale,
                  "v" + token);
    }
    const std::int64_t key = problem.slot(problem.index_batch(), problem.rows()[i]);
    judge_heads(judge, s.index, element(args.index_cache, key * head_dim),
                &want.index_k[i * head_dim], head_dim, 1, "index_k" + token);
  }
}

/// The chosen blocks' scores are the best, within twice what scores may be off by.
void judge_selection(Judge& judge, const StepProblem& problem, const StepSpec& s) {
  const LayerStepArgs args = problem.args(Side::host);
  const std::int64_t tokens = args.write.num_tokens;
  const std::int64_t blocks = std::max<std::int64_t>(blocks_of(s.batch.max_keys()), 1);
  IndexScoresArgs scored;
  scored.index_q = args.write.index_q_out;
  scored.index_cache = args.write.index_cache;
  scored.batch = args.index.batch;
  scored.scores =
      Tensor(nullptr, DType::f32, {s.hkv, blocks, tokens}, {blocks * tokens, tokens, 1});
  const std::vector<double> scores = reference::index_scores(scored);
  const std::vector<std::int32_t> valid = reference::valid_blocks(args.index.batch);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < s.hkv; ++h) {
      const auto score = [&](std::int64_t b) { return scores[(h * blocks + b) * tokens + t]; };
      const auto forced = [&](std::int64_t b) {
        return b < s.rule.init_blocks || b >= valid[t] - s.rule.local_blocks;
      };
      std::vector<bool> chosen(static_cast<std::size_t>(blocks));
      const Tensor& ids = args.index.selection;
      const std::int32_t* list = ids.ptr<std::int32_t>() + t * ids.stride[0] + h * ids.stride[1];
      const std::int64_t count = std::min<std::int64_t>(s.topk, valid[t]);
      const std::string where = "ids of token " + std::to_string(t) + ", list " + std::to_string(h);
      bool well_formed = true;
      for (std::int64_t i = 0; i < s.topk; ++i) {
        const bool fits =
            i >= count ? list[i] == -1
                       : list[i] >= 0 && list[i] < valid[t] && (i == 0 || list[i] > list[i - 1]);
        well_formed = well_formed && fits;
        if (fits && i < count) chosen[static_cast<std::size_t>(list[i])] = true;
      }
      judge.require(well_formed, where + " are not ascending and distinct, then -1");
      double worst_in = INFINITY, best_out = -INFINITY;
      for (std::int64_t b = 0; b < valid[t]; ++b) {
        const bool in = chosen[static_cast<std::size_t>(b)];
        if (forced(b)) {
          judge.require(in, where + " lack the forced block " + std::to_string(b));
        } else if (in) {
          worst_in = std::min(worst_in, score(b));
        } else {
          best_out = std::max(best_out, score(b));
        }
      }
      judge.require(worst_in >= best_out - 2e-2, where + " leave out a better block");
    }
  }
}

void judge_attend(Judge& judge, const StepProblem& problem, const StepSpec& s) {
  const LayerStepArgs step = problem.args(Side::host);
  AttendArgs args = step.attend;
  args.q = step.write.q_out;
  args.kv_cache = step.write.kv_cache;
  args.k_scale = step.write.k_scale;
  args.v_scale = step.write.v_scale;
  args.selection = step.index.selection;
  const reference::AttendResult want = reference::attend(args);
  std::vector<double> got;
  for (std::size_t i = 0; i < want.out.size(); ++i) {
    got.push_back(load(s.type, args.out.data, static_cast<std::int64_t>(i)));
  }
  const Distance d = distance(got, want.out);
  judge.require(d.same_non_finite, "NaN or infinity at another place than the reference's");
  judge.at_most(d.max_abs, 1.7e-2 * std::max(1.0f, s.v_scale), "max abs");
  judge.at_most(d.relative_l2, 4e-3, "relative L2");
  for (std::size_t i = 0; i < want.lse.size(); ++i) {
    const double lse = args.lse.ptr<float>()[i];
    const double allowed = 1e-4 + std::ldexp(std::fabs(want.lse[i]), -20);
    judge.near(lse, want.lse[i], std::isfinite(want.lse[i]) ? allowed : 0,
               "lse at " + std::to_string(i));
  }
}

Outcome check_step(const Target& target, const StepSpec& spec) {
  Judge judge;
  StepProblem step(target, spec, Poison::nan), calls(target, spec, Poison::nan);
  StepProblem huge(target, spec, Poison::huge);
  const auto before = step.state();
  step.run(true);
  calls.run(false);
  huge.run(true);
  const char* const names[] = {"q", "index_q", "selection", "out", "lse", "cache", "index cache"};
  const auto after = step.state(), separate = calls.state();
  for (std::size_t i = 0; i < after.size(); ++i) {
    judge.require(after[i] == separate[i],
                  std::string(names[i]) + " differs from the three calls'");
    const bool written = after[i] != before[i];
    judge.require(written == (spec.batch.tokens() > 0),
                  std::string(names[i]) + (written ? " was written" : " was not written"));
  }
  const std::int64_t tokens = spec.batch.tokens();
  const auto rows_of = [tokens](const StepProblem& problem) {
    const LayerStepArgs a = problem.args(Side::host);
    std::vector<std::byte> bytes = dense_bytes(a.attend.out.narrow(0, 0, tokens));
    for (const Tensor& more : {a.attend.lse, a.index.selection}) {
      const std::vector<std::byte> part = dense_bytes(more.narrow(0, 0, tokens));
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    return bytes;
  };
  judge.require(rows_of(step) == rows_of(huge), "NaN and huge poison give different bits");
  judge_write(judge, step, spec);
  judge_selection(judge, step, spec);
  judge_attend(judge, step, spec);
  return judge.outcome();
}

BatchSpec decode(std::initializer_list<std::int64_t> keys, std::int64_t m) {
  BatchSpec batch;
  batch.m = m;
  batch.decodes = requests(keys);
  return batch;
}

BatchSpec mixed() {
  BatchSpec batch = decode({129, 700, 0, 2500}, 2);
  batch.prefills = prefills({70, 7, 0, 1}, {70, 2603, 0, 300});
  batch.padding_tokens = 2;
  return batch;
}

}  // namespace

void add_layer_cases(std::vector<Case>& cases) {
  std::uint64_t seed = 400;
  const auto add = [&](const std::string& name, StepSpec spec) {
    spec.seed = seed++;
    cases.push_back({"layer_step", "grid", name,
                     [spec](const Target& t) { return check_step(t, spec); }, false, false});
  };
  for (const auto& [hq, hkv] : {std::pair<std::int64_t, std::int64_t>{64, 4}, {16, 1}, {9, 3}}) {
    const std::string heads = std::to_string(hq) + "/" + std::to_string(hkv) + " heads, ";
    StepSpec s;
    s.hq = hq;
    s.hkv = hkv;
    s.batch = decode({1, 127, 128, 129, 2500}, 1);
    add(heads + "decode", s);
    s.batch = decode({3, 130, 2049}, 4);
    add(heads + "drafts of 4", s);
    s.batch = mixed();
    add(heads + "decode, prefill and padding", s);
  }
  add("no token, no request", {});
  StepSpec idle;
  idle.batch.prefills = prefills({0, 0}, {0, 300});
  add("requests without tokens", idle);
  for (const DType kv : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2}) {
    for (const KVLayout layout : all_kv_layouts) {
      StepSpec s;
      s.hq = 8;
      s.hkv = 2;
      s.topk = 6;
      s.kv = kv;
      s.type = kv == DType::f16 ? DType::f16 : DType::bf16;
      s.index = kv == DType::e4m3 ? DType::e4m3 : DType::bf16;
      s.layout = layout;
      s.layers = layout >= KVLayout::BLHNC ? 3 : 1;
      s.rule = {.init_blocks = 1, .local_blocks = 2};
      if (is_fp8(kv)) {
        s.k_scale = 0.25f;
        s.v_scale = 0.5f;
      }
      s.batch = mixed();
      add(std::string("kv ") + name(kv) + ", " + name(layout), s);
    }
  }
}

}  // namespace msa::verify
