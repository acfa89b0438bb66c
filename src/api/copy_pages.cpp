// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/copy_pages.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "api/dispatch.h"
#include "common/step.h"

namespace msa {
namespace {

constexpr DTypes cache_types = {DType::bf16, DType::f16, DType::e4m3, DType::e5m2, DType::u8};

TensorRule cache_rule(const ConstTensor& t, bool output) {
  // A main cache has four dimensions, an index cache three; the rest of a page's shape is checked
  // against the other side's.
  Extents extents = {Extent::any("pages")};
  if (t.rank == 4) extents.push_back(Extent::any("Hkv"));
  extents.push_back(Extent::exactly("128", page_size));
  extents.push_back(Extent::any(t.rank == 4 ? "256" : "128"));
  const bool neither = t.rank != 3 && t.rank != 4;
  return {.dtypes = cache_types,
          .extents = extents,
          .dense_last = true,
          .output = output,
          .other_form = neither ? "[pages, Hkv, 128, 256]" : nullptr};
}

void check_content(Checker& check, const char* argument, const ConstTensor& t) {
  const std::int64_t content = t.shape[t.rank - 1];
  const bool ok = content == head_dim || (t.rank == 4 && content == 2 * head_dim);
  check.require(ok, argument, "has ", content,
                " elements a row; allowed: 128, or 256 for a packed main "
                "cache (",
                describe(t), ")");
}

/// Between a CUDA device and the host, the host side is pinned and the pairs are on the device.
void check_devices(Checker& check, const CopyPagesArgs& a) {
  const bool src_on_gpu = a.src.device.type == DeviceType::cuda;
  const bool dst_on_gpu = a.dst.device.type == DeviceType::cuda;
  if (!src_on_gpu && !dst_on_gpu) {
    check.same_device({{"src", a.src}, {"dst", a.dst}, {"pairs", a.pairs}});
    return;
  }
  const Region gpu = src_on_gpu ? Region{"src", a.src} : Region{"dst", a.dst};
  check.same_device({gpu, {"pairs", a.pairs}});
  const Region other = src_on_gpu ? Region{"dst", a.dst} : Region{"src", a.src};
  if (other.tensor.device.type == DeviceType::cuda) {
    check.same_device({gpu, other});
  } else if (check.known_device(other)) {
    check.require(other.tensor.device.type == DeviceType::cuda_host, other.name,
                  "is in pageable host memory; allowed with '", gpu.name,
                  "' on a CUDA device: pinned host memory (cuda_host) or that device");
  }
}

void validate(Checker& check, const CopyPagesArgs& a) {
  const bool pairs_ok = check.tensor(
      "pairs", a.pairs,
      {.dtypes = {DType::i64}, .extents = {Extent::any("N"), Extent::exactly("2", 2)}});
  if (pairs_ok) {
    // One pair for all N, which may then be any number.
    check.require(a.pairs.shape[0] <= 1 || a.pairs.stride[0] != 0, "pairs",
                  "has row stride 0 and so names each destination ", a.pairs.shape[0],
                  " times; allowed: once (", describe(a.pairs), ")");
  }
  const bool src_ok = check.tensor("src", a.src, cache_rule(a.src, false));
  const bool dst_ok = check.tensor("dst", a.dst, cache_rule(a.dst, true));
  if (src_ok) check_content(check, "src", a.src);
  if (dst_ok) check_content(check, "dst", a.dst);
  if (src_ok && dst_ok) {
    bool same_pages = a.src.rank == a.dst.rank && a.src.dtype == a.dst.dtype;
    for (int i = 1; same_pages && i < a.src.rank; ++i)
      same_pages = a.src.shape[i] == a.dst.shape[i];
    check.require(same_pages, "dst", "is ", type_name(a.dst.dtype), " of ", describe(a.dst),
                  "; expected src's type and page shape, ", type_name(a.src.dtype), " of ",
                  describe(a.src));
  }
  check_devices(check, a);
  check.disjoint({"dst", a.dst}, {{"pairs", a.pairs}});
}

using PagePair = std::pair<std::int64_t, std::int64_t>;

/// A source and a destination page of a call that share memory; the tables may be views of one
/// cache that start at different pages of it. The pages ascend, each named once. Pages have one
/// shape: whether two meet is a matter of their distance alone.
std::optional<PagePair> page_both_ways(const CopyPagesArgs& a,
                                       const std::vector<std::int64_t>& sources,
                                       const std::vector<std::int64_t>& destinations) {
  if (sources.empty() || !overlap(a.src, a.dst)) return std::nullopt;
  const auto meet = [&](std::int64_t source, std::int64_t destination) {
    return overlap(a.src.narrow(0, source, 1), a.dst.narrow(0, destination, 1));
  };
  const std::int64_t from_step = step_bytes(a.src, 0), to_step = step_bytes(a.dst, 0);
  const std::int64_t lowest = destinations.front() - sources.back();
  const std::int64_t highest = destinations.back() - sources.front();
  const auto num_sources = static_cast<std::int64_t>(sources.size());
  const auto num_destinations = static_cast<std::int64_t>(destinations.size());
  if (from_step == to_step && (highest - lowest) / num_sources < num_destinations) {
    // Fewer distances than pairs.
    for (std::int64_t pages = lowest; pages <= highest; ++pages) {
      const std::int64_t first = std::max<std::int64_t>(0, -pages);
      if (!meet(first, first + pages)) continue;
      for (const std::int64_t source : sources) {
        if (std::binary_search(destinations.begin(), destinations.end(), source + pages)) {
          return PagePair(source, source + pages);
        }
      }
    }
    return std::nullopt;
  }
  std::map<std::ptrdiff_t, bool> known;
  const std::ptrdiff_t start = ConstTensor(a.dst).ptr<char>() - a.src.ptr<char>();
  const std::int64_t from_bytes = *span_bytes(a.src, 1), to_bytes = *span_bytes(a.dst, 1);
  for (const std::int64_t source : sources) {
    const auto distance = [&](std::int64_t destination) {
      return start + destination * to_step - source * from_step;
    };
    // It rises with the destination: only those near the source are looked at.
    auto near = std::partition_point(
        destinations.begin(), destinations.end(),
        [&](std::int64_t destination) { return distance(destination) <= -to_bytes; });
    for (; near != destinations.end() && distance(*near) < from_bytes; ++near) {
      const auto [found, is_new] = known.try_emplace(distance(*near), false);
      if (is_new) found->second = meet(source, *near);
      if (found->second) return PagePair(source, *near);
    }
  }
  return std::nullopt;
}

/// MSA_CHECK=1: pages in range, no destination twice, no page both ways.
void check_memory(Checker& check, const CopyPagesArgs& a, HostReader& host) {
  if (!host.reads(a.pairs.device)) return;
  const ConstTensor pairs = host.read(a.pairs, a.pairs.shape[0]);
  std::vector<std::int64_t> sources, destinations;
  int reported = 0;
  for (std::int64_t i = 0; i < a.pairs.shape[0]; ++i) {
    const std::int64_t* pair = pairs.ptr<std::int64_t>() + i * pairs.stride[0];
    const std::int64_t src = pair[0], dst = pair[pairs.stride[1]];
    const bool ok = src >= 0 && src < a.src.shape[0] && dst >= 0 && dst < a.dst.shape[0];
    if (!ok && ++reported <= 4) {
      check.fail("pairs", cat("holds (", src, ", ", dst, ") at ", i, "; allowed: source 0 to ",
                              a.src.shape[0] - 1, ", destination 0 to ", a.dst.shape[0] - 1));
    }
    if (!ok) continue;
    sources.push_back(src);
    destinations.push_back(dst);
  }
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  std::sort(destinations.begin(), destinations.end());
  const auto twice = std::adjacent_find(destinations.begin(), destinations.end());
  if (twice != destinations.end()) {
    check.fail("pairs", cat("names destination page ", *twice, " twice"));
    destinations.erase(std::unique(destinations.begin(), destinations.end()), destinations.end());
  }
  if (const auto pages = page_both_ways(a, sources, destinations)) {
    check.fail("pairs", cat("names source page ", pages->first, " and destination page ",
                            pages->second, ", which share memory"));
  }
}

}  // namespace

void copy_pages(const CopyPagesArgs& args) { call("copy_pages", args, validate, check_memory); }

}  // namespace msa
