// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "msa/device.h"
#include "msa/error.h"
#include "reference/reference.h"
#include "verify/index_problem.h"

/// \file
/// select_blocks: given scores with ties, near ties and non-numbers; ids must be exactly the
/// reference's.

namespace msa::verify {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

struct SelectSpec {
  std::int64_t heads = 4;
  std::int64_t blocks = 100;
  std::int64_t tokens = 5;
  std::int64_t topk = 16;
  SelectRule rule;
  bool tokens_outside = false;  // scores as [T, blocks, Hi], seen as [Hi, blocks, T]
  bool head_major = false;      // the selection as [Hs, T, topk]
  std::size_t workspace_cap = default_workspace_cap;
  /// Score of (head, block, token).
  std::function<float(std::int64_t, std::int64_t, std::int64_t)> score;
  /// Visible blocks of a token; unset: all, and fewer for some.
  std::function<std::int32_t(std::int64_t)> valid;
};

std::vector<std::int32_t> run_select(const Target& target, const SelectSpec& s, Poison poison,
                                     Judge& judge, std::vector<double>& scores,
                                     std::vector<std::int32_t>& valid) {
  const std::int64_t rows = s.tokens + 2, lists = s.rule.reduce_heads ? 1 : s.heads;
  const Array in(target, DType::f32, {s.heads, s.blocks, rows}, poison,
                 s.tokens_outside ? std::vector<std::int64_t>{1, s.heads, s.blocks * s.heads}
                                  : std::vector<std::int64_t>{});
  const Array counts(target, DType::i32, {rows}, poison, {}, 1);
  const Array out(target, DType::i32, {rows, lists, s.topk}, poison,
                  s.head_major ? std::vector<std::int64_t>{s.topk, rows * s.topk, 1}
                               : std::vector<std::int64_t>{});
  scores.assign(static_cast<std::size_t>(s.heads * s.blocks * s.tokens), 0);
  valid.clear();
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    valid.push_back(s.valid ? s.valid(t)
                            : static_cast<std::int32_t>(t % 3 == 1 ? s.blocks / 2 : s.blocks));
    i32(counts, t) = valid.back();
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t b = 0; b < s.blocks; ++b) {
        if (b >= valid.back()) continue;  // poison: not a candidate
        const float score = s.score(h, b, t);
        f32(in, h, b, t) = score;
        scores[(h * s.blocks + b) * s.tokens + t] = score;
      }
    }
  }
  SelectArgs args;
  args.scores = in.view(Side::target);
  args.valid_blocks = counts.view(Side::target);
  args.selection = out.view(Side::target);
  args.num_tokens = s.tokens;
  args.rule = s.rule;
  args.workspace_cap = s.workspace_cap;
  args.stream = target.stream;
  const std::size_t bytes = workspace_size(args);
  judge.require(bytes <= s.workspace_cap, "workspace_size is above the cap");
  const Array workspace(target, DType::u8, {static_cast<std::int64_t>(bytes)}, poison);
  args.workspace = {workspace.buffer().data(Side::target), bytes};
  const std::vector<std::byte> before = snapshot(out);
  for (const Array* a : {&in, &counts, &out, &workspace}) a->buffer().upload();
  target.submit([&] { select_blocks(args); });
  target.synchronize();
  out.buffer().download();
  judge.require(last_backend() == target.backend,
                std::string("served by backend '") + last_backend() + "'");
  judge.require(untouched_outside(out, before, s.tokens), "wrote outside of the selection's rows");
  const std::vector<std::byte> dense = dense_bytes(out.view().narrow(0, 0, s.tokens));
  std::vector<std::int32_t> ids(dense.size() / sizeof(std::int32_t));
  if (!dense.empty()) std::memcpy(ids.data(), dense.data(), dense.size());
  return ids;
}

Outcome check_select(const Target& target, const SelectSpec& s) {
  Judge judge;
  for (Poison poison : {Poison::nan, Poison::huge}) {
    std::vector<double> scores;
    std::vector<std::int32_t> valid;
    const std::vector<std::int32_t> ids = run_select(target, s, poison, judge, scores, valid);
    const std::vector<std::int32_t> want =
        reference::select_blocks(scores, s.heads, s.blocks, s.tokens, valid, s.topk, s.rule);
    judge.same_bits(ids.data(), want.data(), sizeof(std::int32_t),
                    {s.tokens, s.rule.reduce_heads ? 1 : s.heads, s.topk}, "ids");
  }
  return judge.outcome();
}

void add(std::vector<Case>& cases, const std::string& name, const SelectSpec& spec) {
  cases.push_back(
      {"select_blocks", "grid", name, [spec](const Target& t) { return check_select(t, spec); }});
}

float random_score(std::int64_t h, std::int64_t b, std::int64_t t) {
  Rng rng(seed_of({90, static_cast<std::uint64_t>(h), static_cast<std::uint64_t>(b),
                   static_cast<std::uint64_t>(t)}));
  return static_cast<float>(rng.below(2000001) - 1000000) * 1e-4f;
}

/// Few values, so that ties abound.
float tied_score(std::int64_t h, std::int64_t b, std::int64_t t) {
  return std::floor(random_score(h, b, t) / 40);
}

/// All kinds of numbers and non-numbers.
float wild_score(std::int64_t h, std::int64_t b, std::int64_t t) {
  Rng rng(seed_of({91, static_cast<std::uint64_t>(h), static_cast<std::uint64_t>(b),
                   static_cast<std::uint64_t>(t)}));
  const float values[] = {infinity, -infinity, not_a_number, -not_a_number,
                          0.0f,     -0.0f,     1e-45f,       -1e-45f,
                          3e38f,    -3e38f,    1.0f,         std::nextafter(1.0f, 2.0f)};
  return values[rng.below(12)];
}

void add_orders(std::vector<Case>& cases) {
  for (std::int64_t topk : {1, 6, 8, 16, 32, 64}) {
    for (bool reduce : {false, true}) {
      const std::string suffix =
          ", topk " + std::to_string(topk) + (reduce ? ", heads reduced" : "");
      SelectSpec s;
      s.topk = topk;
      s.rule = {1, 2, reduce};
      s.score = random_score;
      add(cases, "random scores" + suffix, s);
      s.score = tied_score;
      add(cases, "ties" + suffix, s);
      s.score = wild_score;
      add(cases, "non-numbers, both zeros and neighbours of 1" + suffix, s);
      s.score = [](std::int64_t, std::int64_t b, std::int64_t) { return static_cast<float>(b); };
      add(cases, "ascending scores" + suffix, s);
      s.score = [](std::int64_t, std::int64_t b, std::int64_t) { return static_cast<float>(-b); };
      add(cases, "descending scores" + suffix, s);
    }
  }
}

void add_counts(std::vector<Case>& cases) {
  for (std::int64_t blocks : {0, 1, 2, 15, 16, 17, 31, 32, 33, 1024}) {
    SelectSpec s;
    s.blocks = blocks;
    s.tokens = 20;
    s.score = tied_score;
    s.valid = [blocks](std::int64_t t) {
      // Clamped to [0, blocks]; the extremes of an i32 too.
      const std::int64_t counts[] = {blocks,     blocks + 7,     -1, 0, blocks / 2,
                                     2147483647, -2147483647 - 1};
      return static_cast<std::int32_t>(counts[t % 7]);
    };
    add(cases, std::to_string(blocks) + " blocks, counts past either end", s);
  }
  for (std::int64_t topk : {1, 6, 8, 16, 32, 64}) {
    for (bool reduce : {false, true}) {
      SelectSpec s;
      s.blocks = 1024;
      s.topk = topk;
      s.rule.reduce_heads = reduce;
      s.score = tied_score;
      add(cases, "1024 blocks, topk " + std::to_string(topk) + (reduce ? ", heads reduced" : ""),
          s);
    }
  }
  for (std::int64_t init : {0, 1, 2, 50}) {
    for (std::int64_t local : {0, 1, 2, 50}) {
      SelectSpec s;
      s.topk = 8;
      s.rule = {init, local, false};
      s.score = wild_score;
      s.valid = [](std::int64_t t) { return static_cast<std::int32_t>(t * 20); };
      add(cases,
          std::to_string(init) + " first and " + std::to_string(local) + " last blocks forced", s);
    }
  }
}

void add_views(std::vector<Case>& cases) {
  for (bool outside : {false, true}) {
    for (bool head_major : {false, true}) {
      SelectSpec s;
      s.tokens = 37;
      s.tokens_outside = outside;
      s.head_major = head_major;
      s.score = tied_score;
      add(cases,
          std::string(outside ? "tokens outside" : "tokens inside") +
              (head_major ? ", head-major selection" : ""),
          s);
    }
  }
  SelectSpec none;
  none.tokens = 0;
  none.score = random_score;
  add(cases, "zero size: no token", none);
}

void add_reports(std::vector<Case>& cases) {
  for (std::int64_t blocks : {8192, 65536}) {
    SelectSpec s;
    s.heads = 2;
    s.blocks = blocks;
    s.tokens = 2;
    s.workspace_cap = 99 * 1024;
    const std::string suffix = ", " + std::to_string(blocks) + " blocks";
    s.score = random_score;
    add(cases, "report 41: a workspace of 99 KB" + suffix, s);
    s.score = [](std::int64_t, std::int64_t, std::int64_t) { return 0.25f; };
    add(cases, "report 9: all scores equal" + suffix, s);
    s.score = [blocks](std::int64_t, std::int64_t b, std::int64_t) {
      return b == blocks - 7 ? 2.0f : 1.0f + static_cast<float>(b % 2) * 0x1p-23f;
    };
    add(cases, "report 9: all but one score within 1 ulp" + suffix, s);
    s.score = [blocks](std::int64_t h, std::int64_t b, std::int64_t t) {
      // The upper 17 bits of all but one key are the same.
      Rng rng(seed_of({93, static_cast<std::uint64_t>(h), static_cast<std::uint64_t>(b),
                       static_cast<std::uint64_t>(t)}));
      return b == blocks - 7 ? 2.0f : 1.0f + static_cast<float>(rng.below(1 << 15)) * 0x1p-23f;
    };
    add(cases, "report 9: all but one score in one coarse bin" + suffix, s);
    s.score = [](std::int64_t, std::int64_t b, std::int64_t) { return b % 2 == 0 ? -0.0f : 0.0f; };
    add(cases, "report 9: +0 and -0 mixed" + suffix, s);
  }
  for (int percent : {0, 83, 100}) {
    SelectSpec s;
    s.blocks = 300;
    s.score = [percent](std::int64_t h, std::int64_t b, std::int64_t t) {
      Rng rng(seed_of({92, static_cast<std::uint64_t>(h), static_cast<std::uint64_t>(b)}));
      if (rng.chance(percent)) return not_a_number;
      return rng.chance(10) ? (b % 2 == 0 ? infinity : -infinity) : random_score(h, b, t);
    };
    add(cases, "report 5: " + std::to_string(percent) + " % NaN", s);
    s.rule.reduce_heads = true;
    add(cases, "report 5: " + std::to_string(percent) + " % NaN, heads reduced", s);
  }
}

}  // namespace

void add_index_select(std::vector<Case>& cases) {
  add_orders(cases);
  add_counts(cases);
  add_views(cases);
  add_reports(cases);
}

}  // namespace msa::verify
