// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/copy_pages.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "api/dispatch.h"

namespace msa {
namespace {

const std::vector<DType> cache_types = {DType::bf16, DType::f16, DType::e4m3, DType::e5m2,
                                        DType::u8};

TensorRule cache_rule(const ConstTensor& t, bool output) {
  // A main cache has four dimensions, an index cache three; the rest of a page's shape is checked
  // against the other side's.
  std::vector<Extent> extents = {Extent::any("pages")};
  if (t.rank == 4) extents.push_back(Extent::any("Hkv"));
  extents.push_back(Extent::exactly("128", page_size));
  extents.push_back(Extent::any(t.rank == 4 ? "256" : "128"));
  return {.dtypes = cache_types, .extents = extents, .dense_last = true, .output = output};
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
  check.tensor("pairs", a.pairs,
               {.dtypes = {DType::i64}, .extents = {Extent::any("N"), Extent::exactly("2", 2)}});
  const bool src_ok = check.tensor("src", a.src, cache_rule(a.src, false));
  const bool dst_ok = check.tensor("dst", a.dst, cache_rule(a.dst, true));
  if (src_ok) check_content(check, "src", a.src);
  if (dst_ok) check_content(check, "dst", a.dst);
  if (src_ok && dst_ok) {
    bool same_pages = a.src.rank == a.dst.rank && a.src.dtype == a.dst.dtype;
    for (int i = 1; same_pages && i < a.src.rank; ++i)
      same_pages = a.src.shape[i] == a.dst.shape[i];
    check.require(same_pages, "dst", "is ", name(a.dst.dtype), " of ", describe(a.dst),
                  "; expected src's type and page shape, ", name(a.src.dtype), " of ",
                  describe(a.src));
  }
  check_devices(check, a);
  check.disjoint({"dst", a.dst}, {{"pairs", a.pairs}});
}

/// Whether both are one and the same view, in which pages share memory with themselves alone: no
/// two elements of a destination do.
bool same_view(const ConstTensor& a, const ConstTensor& b) {
  return a.data == b.data && a.rank == b.rank && a.shape == b.shape && a.stride == b.stride;
}

/// A source and a destination page of a call that share memory; the tables may be views of one
/// cache that start at different pages of it. Both lists are sorted.
std::optional<std::pair<std::int64_t, std::int64_t>> page_both_ways(
    const CopyPagesArgs& a, const std::vector<std::int64_t>& sources,
    const std::vector<std::int64_t>& destinations) {
  if (!overlap(a.src, a.dst)) return std::nullopt;
  if (same_view(a.src, a.dst)) {  // the common case, whose lists may be long
    std::vector<std::int64_t> both;
    std::set_intersection(sources.begin(), sources.end(), destinations.begin(), destinations.end(),
                          std::back_inserter(both));
    if (both.empty()) return std::nullopt;
    return std::pair(both.front(), both.front());
  }
  // Pages of one shape: whether two meet is a matter of their distance alone.
  std::map<std::ptrdiff_t, bool> meets;
  for (const std::int64_t source : sources) {
    const ConstTensor from = a.src.narrow(0, source, 1);
    for (const std::int64_t destination : destinations) {
      const ConstTensor to = a.dst.narrow(0, destination, 1);
      const std::ptrdiff_t distance = to.ptr<char>() - from.ptr<char>();
      const auto [known, is_new] = meets.try_emplace(distance, false);
      if (is_new) known->second = overlap(from, to);
      if (known->second) return std::pair(source, destination);
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
  std::sort(destinations.begin(), destinations.end());
  const auto twice = std::adjacent_find(destinations.begin(), destinations.end());
  if (twice != destinations.end()) {
    check.fail("pairs", cat("names destination page ", *twice, " twice"));
  }
  if (const auto pages = page_both_ways(a, sources, destinations)) {
    check.fail("pairs", cat("names source page ", pages->first, " and destination page ",
                            pages->second, ", which share memory"));
  }
}

}  // namespace

void copy_pages(const CopyPagesArgs& args) { call("copy_pages", args, validate, check_memory); }

}  // namespace msa
