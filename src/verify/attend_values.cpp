// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "common/numeric.h"
#include "reference/reference.h"
#include "verify/attend_problem.h"

/// \file
/// Scales, extreme magnitudes, NaN and infinity.

namespace msa::verify {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr DType kv_types[] = {DType::bf16, DType::f16, DType::e4m3, DType::e5m2};
constexpr DType q_types[] = {DType::bf16, DType::f16};

void add(std::vector<Case>& cases, const std::string& name,
         std::function<Outcome(const Target&)> run) {
  cases.push_back({"attend", "values", name, std::move(run), false, false});
}

AttendSpec small_batch(std::uint64_t seed) {
  AttendSpec s;
  s.hq = 8;
  s.hkv = 2;
  s.batch.m = 2;
  s.batch.decodes = requests({130, 900});
  s.batch.prefills = prefills({12}, {300});
  s.seed = seed;
  return s;
}

std::vector<double> values_of(const AttendSpec& spec, const AttendOutput& output) {
  std::vector<double> values(output.out.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load(spec.out, output.out.data(), static_cast<std::int64_t>(i));
  }
  return values;
}

/// k_scale 0.25 and v_scale 0.5 are applied, and matter.
Outcome check_scales(const Target& target, AttendSpec spec) {
  Judge judge;
  spec.k_scale = 0.25f;
  spec.v_scale = 0.5f;
  const AttendOutput output = poisoned_run(target, spec, judge);
  const AttendProblem problem(target, spec, Poison::nan);
  const std::vector<double> got = values_of(spec, output);
  const std::vector<double> want = reference::attend(problem.args(Side::host)).out;
  for (std::size_t i = 0; i < got.size(); ++i) {
    judge.near(got[i], want[i], 2e-2 + 2e-2 * std::fabs(want[i]), "scaled out");
  }
  judge_against_reference(judge, problem, output, {.unit_variance = false});
  spec.k_scale = spec.v_scale = 1;
  const AttendOutput unscaled = AttendProblem(target, spec, Poison::nan).run(judge);
  judge.require(distance(values_of(spec, unscaled), got).relative_l2 > 0.2,
                "scales change the result by less than 20 % of its norm");
  return judge.outcome();
}

void add_scales(std::vector<Case>& cases) {
  for (DType kv : kv_types) {
    for (DType q : q_types) {
      for (bool device : {false, true}) {
        AttendSpec s = small_batch(7);
        s.kv = kv;
        s.q = s.out = q;
        s.device_scales = device;
        s.with_lse = !device || q == DType::bf16;
        add(cases,
            std::string("report 60, 61: k_scale 0.25, v_scale 0.5 ") +
                (device ? "on the device" : "on the host") + ", q " + name(q) + ", kv " + name(kv),
            [s](const Target& t) { return check_scales(t, s); });
      }
    }
  }
}

Outcome check_extreme(const Target& target, const AttendSpec& spec) {
  return check_attend(target, spec, {.unit_variance = false});
}

/// The contract's section 2: intermediate formats neither overflow nor flush.
void add_extremes(std::vector<Case>& cases) {
  const auto each_type = [&](const std::string& name_of, bool f16_q,
                             const std::function<void(AttendSpec&)>& change) {
    for (DType kv : kv_types) {
      for (DType q : q_types) {
        if (q == DType::f16 && !f16_q) continue;
        AttendSpec s = small_batch(8);
        s.kv = kv;
        s.q = s.out = q;
        change(s);
        add(cases, name_of + ", q " + name(q) + ", kv " + name(kv),
            [s](const Target& t) { return check_extreme(t, s); });
      }
    }
  };
  const auto q_power = [](int power) {
    return [power](AttendSpec& s) {
      s.q_gain = std::ldexp(1.0, -power);
      s.softmax_scale *= static_cast<float>(std::ldexp(1.0, power));
    };
  };
  each_type("q * 2^-22, scale * 2^22", true, q_power(22));
  each_type("q * 2^-100, scale * 2^100", false, q_power(100));
  each_type("q * 2^100, scale * 2^-100", false, q_power(-100));
  each_type("one element of q is large", true, [](AttendSpec& s) {
    const double large = s.q == DType::f16 ? 60000 : 1e5;
    s.edit_q = [large](std::uint64_t, std::int64_t position, std::int64_t head, const Elements& q) {
      if (head % 2 == 0) q.set((position + head) % head_dim, large);
    };
  });
  each_type("rows of zeros", true, [](AttendSpec& s) {
    s.edit_q = [](std::uint64_t, std::int64_t position, std::int64_t head, const Elements& q) {
      if ((position + head) % 2 == 0) q.fill(0, head_dim, 0);
    };
  });
  each_type("softmax_scale 2^80, k_scale 2^-80", true, [](AttendSpec& s) {
    s.softmax_scale *= 0x1p80f;
    s.k_scale = 0x1p-80f;
  });
  each_type("queries of zeros, softmax_scale and k_scale 2^80", true, [](AttendSpec& s) {
    s.edit_q = [](std::uint64_t, std::int64_t, std::int64_t, const Elements& q) {
      q.fill(0, head_dim, 0);
    };
    s.softmax_scale *= 0x1p80f;
    s.k_scale = 0x1p80f;
  });
  each_type("keys of zeros, q * 2^100, softmax_scale 2^42", false, [](AttendSpec& s) {
    s.q_gain = 0x1p100;
    s.softmax_scale *= 0x1p42f;
    s.edit_tile = [](std::uint64_t, std::int64_t, std::int64_t, const Elements& tile) {
      for (std::int64_t j = 0; j < page_size; ++j) tile.fill(j * 2 * head_dim, head_dim, 0);
    };
  });
  each_type("softmax_scale 0", true, [](AttendSpec& s) { s.softmax_scale = 0; });
  each_type("negative softmax_scale", true, [](AttendSpec& s) { s.softmax_scale *= -1; });
  each_type("values near the type's largest", false, [](AttendSpec& s) {
    s.v_gain = is_fp8(s.kv) ? 64 : s.kv == DType::f16 ? 12000 : 1e30;
  });
  each_type("tiny values, v_scale 2^40", false, [](AttendSpec& s) {
    s.v_gain = s.kv == DType::bf16 ? 0x1p-60 : 0x1p-4;
    s.v_scale = s.kv == DType::bf16 ? 0x1p60f : 0x1p40f;
  });
  each_type("keys near the type's largest", true, [](AttendSpec& s) {
    s.k_gain = is_fp8(s.kv) ? 64 : 8192;
    s.softmax_scale /= static_cast<float>(s.k_gain);
  });
}

/// Logits whose roundings exceed 1: the largest must still weigh 1, its equals as much, and all
/// others nothing. Elements are positive, so that no sum cancels what LSE is measured by.
void add_large_logits(std::vector<Case>& cases) {
  const auto each_type = [&](const std::string& name_of, double gain,
                             const std::function<void(AttendSpec&)>& change) {
    for (DType kv : {DType::bf16, DType::f16}) {
      for (DType q : q_types) {
        if (gain > 1e4 && (kv == DType::f16 || q == DType::f16)) continue;
        AttendSpec s = small_batch(12);
        s.kv = kv;
        s.q = s.out = q;
        s.q_gain = s.k_gain = gain;
        s.edit_q = [](std::uint64_t, std::int64_t, std::int64_t, const Elements& q_row) {
          for (std::int64_t d = 0; d < head_dim; ++d) q_row.set(d, std::fabs(q_row.get(d)));
        };
        // Keys of odd blocks are alike.
        s.edit_tile = [](std::uint64_t, std::int64_t block, std::int64_t, const Elements& tile) {
          for (std::int64_t j = 0; j < page_size; ++j) {
            const std::int64_t row = j * 2 * head_dim;
            for (std::int64_t d = 0; d < head_dim; ++d) {
              tile.set(row + d, std::fabs(tile.get(block % 2 == 1 ? d : row + d)));
            }
          }
        };
        change(s);
        add(cases, name_of + ", q " + name(q) + ", kv " + name(kv),
            [s](const Target& t) { return check_extreme(t, s); });
      }
    }
  };
  for (double gain : {1e3, 1e4, 1e8, 1e15}) {
    std::ostringstream square;
    square << gain * gain;
    each_type("logits of " + square.str() + " by q and keys", gain, [](AttendSpec&) {});
  }
  each_type("logits of 1e20 by softmax_scale", 1, [](AttendSpec& s) { s.softmax_scale *= 1e20f; });
  each_type("logits of 1e30 by k_scale", 1, [](AttendSpec& s) { s.k_scale = 1e30f; });
  for (double x : {10000.0, 60000.0}) {
    // Few elements, as many equal products round the same way in f32 sums.
    constexpr std::int64_t elements = 8;
    std::ostringstream value;
    value << x;
    each_type("all keys alike, elements of q and keys " + value.str(), 1, [&](AttendSpec& s) {
      s.edit_q = [x](std::uint64_t, std::int64_t, std::int64_t, const Elements& q) {
        q.fill(0, head_dim, 0);
        q.fill(0, elements, x);
      };
      s.edit_tile = [x](std::uint64_t, std::int64_t, std::int64_t, const Elements& tile) {
        for (std::int64_t j = 0; j < page_size; ++j) {
          tile.fill(j * 2 * head_dim, head_dim, 0);
          tile.fill(j * 2 * head_dim, elements, x);
        }
      };
    });
  }
}

/// Weights that round up, times values at the end of out's type: their quotient may pass it, the
/// result may not.
void add_largest_outputs(std::vector<Case>& cases) {
  struct Largest {
    DType kv, out;
    double v, v_scale;
  };
  const Largest all[] = {{DType::f16, DType::f16, 65504, 1},
                         {DType::f16, DType::f16, -65504, 1},
                         {DType::bf16, DType::f16, 1, 65504},
                         {DType::e4m3, DType::f16, 1, 65504},
                         {DType::bf16, DType::bf16, -0x1p40, 0x1.FEp87}};
  for (const Largest& x : all) {
    AttendSpec s = small_batch(13);
    s.kv = x.kv;
    s.q = s.out = x.out;
    s.v_gain = std::fabs(x.v);
    s.v_scale = static_cast<float>(x.v_scale);
    s.edit_q = [](std::uint64_t, std::int64_t position, std::int64_t head, const Elements& q) {
      q.fill(0, head_dim, 0);
      q.set(0, 6 + 0x1p-3 * static_cast<double>(head) + 0x1p-5 * static_cast<double>(position % 4));
    };
    // The first key of a block has logit 0, the others weigh alike, a little more than half of it.
    s.edit_tile = [v = x.v](std::uint64_t, std::int64_t, std::int64_t, const Elements& tile) {
      for (std::int64_t j = 0; j < page_size; ++j) {
        tile.fill(j * 2 * head_dim, head_dim, 0);
        if (j > 0) tile.set(j * 2 * head_dim, -1);
        tile.fill(j * 2 * head_dim + head_dim, head_dim, v);
      }
    };
    add(cases,
        std::string("values at the end of out's type, ") + (x.v < 0 ? "negative" : "positive") +
            ", out " + name(x.out) + ", kv " + name(x.kv),
        [s](const Target& t) { return check_extreme(t, s); });
  }
}

/// Far beyond out's type a result is infinite: only what a rounding of the weights can have pushed
/// past the end is taken for the end.
Outcome check_beyond(const Target& target, const AttendSpec& s, double want) {
  Judge judge;
  AttendProblem problem(target, s, Poison::nan);
  const AttendOutput output = problem.run(judge);
  for (std::int64_t t = 0; t < problem.tokens(); ++t) {
    if (problem.selected_keys(t) == 0) continue;
    for (std::int64_t i = t * s.hq * head_dim; i < (t + 1) * s.hq * head_dim; ++i) {
      judge.near(load(s.out, output.out.data(), i), want, 0, "out of row " + std::to_string(t));
    }
  }
  return judge.outcome();
}

void add_outputs_beyond(std::vector<Case>& cases) {
  for (DType kv : kv_types) {
    for (double v : {1.0, -1.0}) {
      AttendSpec s = small_batch(13);
      s.kv = kv;
      s.out = DType::f16;
      s.v_scale = 70000;
      s.edit_tile = [v](std::uint64_t, std::int64_t, std::int64_t, const Elements& tile) {
        for (std::int64_t j = 0; j < page_size; ++j) {
          tile.fill(j * 2 * head_dim + head_dim, head_dim, v);
        }
      };
      add(cases,
          std::string("values beyond out's type, ") + (v < 0 ? "negative" : "positive") + ", kv " +
              name(kv),
          [s, v](const Target& t) { return check_beyond(t, s, std::copysign(infinity, v)); });
    }
  }
}

/// Which values an edit touches: one token of one tile of request `content`.
struct Spot {
  std::uint64_t content;
  std::int64_t block;
  std::int64_t token;
};

AttendSpec one_token_decode(DType kv, std::uint64_t seed) {
  AttendSpec s = small_batch(seed);
  s.kv = kv;
  s.batch.m = 1;
  s.batch.decodes = requests({1, 130, 300, 700});
  s.batch.prefills.clear();
  return s;
}

/// Sets elements [begin, begin + n) of K (0..127) and V (128..255) of one token to x.
AttendSpec with_value(AttendSpec s, const Spot& spot, std::int64_t begin, std::int64_t n,
                      double x) {
  s.edit_tile = [=](std::uint64_t content, std::int64_t block, std::int64_t, const Elements& tile) {
    if (content == spot.content && block == spot.block) {
      tile.fill(spot.token * 2 * head_dim + begin, n, x);
    }
  };
  return s;
}

/// In decode with m = 1 every row has exactly the NaN and infinities of IEEE arithmetic.
Outcome check_non_finite(const Target& target, const AttendSpec& spec) {
  return check_attend(target, spec, {.against_rounded = false});
}

void add_non_finite(std::vector<Case>& cases) {
  for (DType kv : kv_types) {
    const std::string type = std::string(", kv ") + name(kv);
    const AttendSpec base = one_token_decode(kv, 9);
    const auto check = [&](const std::string& what, const AttendSpec& s) {
      add(cases, what + type, [s](const Target& t) { return check_non_finite(t, s); });
    };
    check("NaN in one visible key: its row alone is NaN",
          with_value(base, {3, 1, 5}, 17, 1, not_a_number));
    check("NaN in one visible value: that column alone is NaN",
          with_value(base, {3, 1, 5}, head_dim + 17, 1, not_a_number));
    if (kv == DType::e4m3) continue;  // no infinities
    check("Inf in one key: a +inf logit makes NaN, a -inf logit has weight 0",
          with_value(base, {3, 1, 5}, 17, 1, infinity));
    check("Inf in one value: that column is Inf",
          with_value(base, {2, 0, 5}, head_dim + 17, 1, -infinity));

    AttendSpec first = with_value(base, {4, 0, 0}, 0, 1, infinity);
    first.edit_tile = [](std::uint64_t content, std::int64_t block, std::int64_t,
                         const Elements& tile) {
      if (content != 4 || block > 1) return;
      for (std::int64_t j = 0; j < page_size; ++j) tile.set(j * 2 * head_dim, infinity);
    };
    first.edit_q = [](std::uint64_t, std::int64_t, std::int64_t, const Elements& q) {
      q.set(0, -1);
    };
    check("report 6: -inf logits through the first blocks, then finite ones", first);

    AttendSpec all = first;
    all.edit_tile = [](std::uint64_t content, std::int64_t, std::int64_t, const Elements& tile) {
      for (std::int64_t j = 0; content == 4 && j < page_size; ++j) {
        tile.set(j * 2 * head_dim, infinity);
      }
    };
    check("a row all of whose logits are -inf is an empty row", all);
  }
  for (double x : {not_a_number, infinity}) {
    AttendSpec s = one_token_decode(DType::bf16, 10);
    s.edit_q = [x](std::uint64_t content, std::int64_t, std::int64_t head, const Elements& q) {
      if (content == 2 && head == 3) q.set(5, x);
    };
    add(cases, std::isnan(x) ? "NaN in one query head" : "Inf in one query head",
        [s](const Target& t) { return check_non_finite(t, s); });
  }
}

/// A request full of NaN next to healthy ones: theirs are the bits they have next to a healthy one.
Outcome check_neighbours(const Target& target, const AttendSpec& healthy, double x) {
  Judge judge;
  AttendSpec sick = healthy;
  const auto is_sick = [](std::uint64_t content) { return content == 2 || content == 1002; };
  sick.edit_tile = [=](std::uint64_t content, std::int64_t, std::int64_t, const Elements& tile) {
    if (is_sick(content)) tile.fill(0, page_size * 2 * head_dim, x);
  };
  sick.edit_q = [=](std::uint64_t content, std::int64_t, std::int64_t, const Elements& q) {
    if (is_sick(content)) q.set(0, x);
  };
  AttendProblem a(target, healthy, Poison::nan), b(target, sick, Poison::nan);
  const AttendOutput out_a = a.run(judge), out_b = b.run(judge);
  const auto row_bytes = static_cast<std::size_t>(healthy.hq) * head_dim * 2;
  for (std::int64_t t = 0; t < a.tokens(); ++t) {
    const auto at = static_cast<std::size_t>(t) * row_bytes;
    if (!is_sick(a.rows()[t].content)) {
      judge.same_bits(out_a.out.data() + at, out_b.out.data() + at, 2, {healthy.hq, head_dim},
                      "healthy row " + std::to_string(t));
    } else if (b.selected_keys(t) > 0) {
      judge.require(std::isnan(load(healthy.out, out_b.out.data(), t * healthy.hq * head_dim)),
                    "sick row " + std::to_string(t) + " is not NaN");
    }
  }
  return judge.outcome();
}

void add_neighbours(std::vector<Case>& cases) {
  for (std::int64_t m : {1, 3, 8}) {
    for (bool invariant : {false, true}) {
      AttendSpec s = small_batch(11);
      s.kv = m == 3 ? DType::f16 : DType::bf16;
      s.batch.m = m;
      s.batch.decodes = requests({130, 200, 700});
      s.batch.prefills = prefills({5, 40, 9}, {140, 300, 9});
      s.invariant = invariant;
      add(cases,
          "a NaN request leaves its neighbours alone, m " + std::to_string(m) +
              (invariant ? ", invariant" : ""),
          [s](const Target& t) { return check_neighbours(t, s, not_a_number); });
    }
  }
}

}  // namespace

void add_attend_values(std::vector<Case>& cases) {
  add_scales(cases);
  add_extremes(cases);
  add_large_logits(cases);
  add_largest_outputs(cases);
  add_outputs_beyond(cases);
  add_non_finite(cases);
  add_neighbours(cases);
}

}  // namespace msa::verify
