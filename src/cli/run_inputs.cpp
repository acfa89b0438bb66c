// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/run_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "msa/error.h"

namespace msa::cli {
namespace {

constexpr std::array<RunSetting, 16> settings = {
    {{"layout", "NAME", "Order of kv_cache's dimensions: LBHNC (default), LBNHC, LHBNC, …"},
     {"layer", "N", "Layer of a kv_cache of five dimensions (default 0)"},
     {"kv_dtype", "TYPE", "Type of a cache stored as U8: e4m3 or e5m2"},
     {"num_actual_tokens", "T", "Rows to compute (default: all rows of q)"},
     {"decode_query_len", "M", "Query tokens of each decode request (default: an even share)"},
     {"softmax_scale", "X", "Factor of the logits (default 128^-0.5)"},
     {"k_scale", "X", "Factor of K (default 1)"},
     {"v_scale", "X", "Factor of V (default 1)"},
     {"causal", "0|1", "0: every row sees all keys of its request (default 1)"},
     {"invariant", "0|1", "1: prefill bits do not depend on the batch (default 0)"},
     {"kv_shard", "R/W", "The file's cache holds the blocks b with b mod W = R (default 0/1)"},
     {"topk", "N", "Blocks that index_blocks chooses (default 16)"},
     {"init_blocks", "N", "First blocks that are always chosen (default 0)"},
     {"local_blocks", "N", "Last visible blocks that are always chosen (default 1)"},
     {"reduce_heads", "0|1", "1: one list for all KV heads (default 0)"},
     {"exact", "0|1", "1: exact fp8 scores (default 0)"}}};

constexpr std::array<RunTensor, 12> tensors = {
    {{"q", "[T, Hq, 128]", "BF16|F16", "query rows, decode requests first"},
     {"kv_cache", "[pages, Hkv, 128, 256]", "BF16|F16|F8_E4M3|F8_E5M2|U8",
      "K in elements 0..127 of a row, V behind; other orders: --layout"},
     {"k", "[pages, Hkv, 128, 128]", "as kv_cache", "with v, in place of kv_cache"},
     {"v", "[pages, Hkv, 128, 128]", "as k", ""},
     {"seq_lens", "[R]", "I32|I64", "keys of each request, this step's included"},
     {"block_table", "[R, W]", "I32|I64", "pages of each request; R = 1: may be left out"},
     {"cu_seqlens_q", "[R_p + 1]", "I32|I64", "where prefill requests start; none: see below"},
     {"context_lens", "[R_p]", "I32|I64", "default: seq_len − query_len"},
     {"selection", "[T, Hs, topk]", "I32|I64", "block ids, −1 = none; Hs = Hkv or 1"},
     {"index_q", "[T, Hi, 128]", "BF16|F16|F8_E4M3", "with index_k, in place of selection"},
     {"index_k", "[pages, 128, 128]", "BF16|F8_E4M3|U8", "the index cache"},
     {"index_block_table", "[R, W]", "I32|I64", "of the index cache; default: block_table"}}};

constexpr std::int64_t int32_max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t int32_min = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t most_shards = 1 << 30;  // as attend takes them

std::optional<std::int64_t> parse_integer(const std::string& text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::span<const RunSetting> run_settings() { return settings; }
std::span<const RunTensor> run_tensors() { return tensors; }

/// Tensors and settings of one file. What is wrong with them is collected, in messages that name
/// them; reading goes on, so that raise() lists all of it.
class RunProblem::Reader {
 public:
  Reader(const SafetensorsFile& file, const std::map<std::string, std::string>& options)
      : file_(file), values_(options) {
    for (const RunSetting& setting : settings) {
      const auto found = file.metadata().find(setting.key);
      if (found != file.metadata().end()) values_.try_emplace(setting.key, found->second);
    }
  }

  void fail(const std::string& what) {
    failures_.push_back(fmt::format("{}: {}", file_.label(), what));
  }
  bool ok() const { return failures_.empty(); }
  void raise() const {
    if (!ok()) throw Error(ErrorCode::invalid_argument, failures_);
  }

  bool has(const char* tensor) const { return file_.find(tensor) != nullptr; }
  /// Rank of a tensor that is there.
  std::size_t rank(const char* name) const { return file_.find(name)->shape.size(); }

  /// The tensor as a view; an absent one where its shape does not fit. `shape` is what its
  /// dimensions must be, in words; numbers are checked.
  ConstTensor view(const char* name, std::initializer_list<const char*> shape) {
    const StoredTensor* stored = file_.find(name);
    const std::string expected = fmt::format("[{}]", fmt::join(shape, ", "));
    if (stored == nullptr) {
      fail(fmt::format("there is no tensor '{}'; expected one of shape {}", name, expected));
      return {};
    }
    used_.insert(name);
    check_type(*stored);
    if (!fits(*stored, shape)) {
      fail(fmt::format("tensor '{}' has shape {}; expected {}{}", name, shape_text(stored->shape),
                       expected, page_hint(*stored, shape)));
      return {};
    }
    ConstTensor tensor;
    tensor.data = stored->bytes.data();
    tensor.dtype = stored->dtype.value_or(DType::u8);
    tensor.rank = static_cast<int>(stored->shape.size());
    std::int64_t step = 1;
    for (int i = tensor.rank - 1; i >= 0; --i) {
      tensor.shape[i] = stored->shape[static_cast<std::size_t>(i)];
      tensor.stride[i] = step;
      step *= std::max<std::int64_t>(tensor.shape[i], 1);
    }
    return tensor;
  }

  struct Integers {
    std::vector<std::int32_t> values;
    std::vector<std::int64_t> dims;
  };
  /// The numbers of an I32 or I64 tensor, which must all fit 32 bits; nothing where it is faulty.
  std::optional<Integers> integers(const char* name, std::initializer_list<const char*> shape) {
    const ConstTensor tensor = view(name, shape);
    if (!tensor.given() || (tensor.dtype != DType::i32 && tensor.dtype != DType::i64)) {
      return std::nullopt;
    }
    Integers result;
    result.dims.assign(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
    result.values.resize(static_cast<std::size_t>(tensor.numel()));
    for (std::size_t i = 0; i < result.values.size(); ++i) {
      const std::int64_t value = tensor.dtype == DType::i32 ? tensor.ptr<std::int32_t>()[i]
                                                            : tensor.ptr<std::int64_t>()[i];
      if (value < int32_min || value > int32_max) {
        fail(fmt::format("tensor '{}' (shape {}) holds {} at position {}; expected 32-bit numbers",
                         name, shape_text(result.dims), value, i));
        return std::nullopt;
      }
      result.values[i] = static_cast<std::int32_t>(value);
    }
    return result;
  }

  std::optional<std::string> text(const char* key) {
    used_settings_.insert(key);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<std::int64_t> integer(const char* key) {
    const auto value = text(key);
    if (!value) return std::nullopt;
    const auto number = parse_integer(*value);
    if (!number) fail(fmt::format("setting '{}' is '{}'; expected a whole number", key, *value));
    return number;
  }
  std::int64_t integer_or(const char* key, std::int64_t otherwise) {
    return integer(key).value_or(otherwise);
  }
  /// A whole number from `low` to `high`; nothing where there is none, or a wrong one.
  std::optional<std::int64_t> count(const char* key, std::int64_t low, std::int64_t high,
                                    const char* hint = "") {
    const auto number = integer(key);
    if (!number || (*number >= low && *number <= high)) return number;
    fail(fmt::format("setting '{}' is {}; allowed: {} to {}{}", key, *number, low, high, hint));
    return std::nullopt;
  }
  float number_or(const char* key, float otherwise, bool positive) {
    const auto value = text(key);
    if (!value) return otherwise;
    char* end = nullptr;
    const float number = std::strtof(value->c_str(), &end);
    const bool is_number = !value->empty() && *end == '\0';
    if (is_number && std::isfinite(number) && (number > 0 || !positive)) return number;
    fail(fmt::format("setting '{}' is '{}'; {}", key, *value,
                     !is_number ? "expected a number"
                     : positive ? "allowed: a finite positive number"
                                : "allowed: a finite number"));
    return otherwise;
  }
  bool flag_or(const char* key, bool otherwise) {
    const auto value = text(key);
    if (!value) return otherwise;
    if (*value == "1" || *value == "true") return true;
    if (*value == "0" || *value == "false") return false;
    fail(fmt::format("setting '{}' is '{}'; expected 0 or 1", key, *value));
    return otherwise;
  }
  KVShard shard() {
    const auto value = text("kv_shard");
    if (!value) return {};
    const std::size_t slash = value->find('/');
    // Where a number is missing, one that is out of range.
    const std::int64_t rank = parse_integer(value->substr(0, slash)).value_or(-1);
    const std::int64_t world =
        slash == std::string::npos ? 0 : parse_integer(value->substr(slash + 1)).value_or(0);
    if (rank < 0 || world > most_shards || rank >= world) {
      fail(fmt::format("setting 'kv_shard' is '{}'; expected RANK/WORLD with 0 ≤ RANK < WORLD ≤ {}",
                       *value, most_shards));
      return {};
    }
    return {static_cast<int>(rank), static_cast<int>(world)};
  }

  std::vector<std::string> unused() const {
    std::vector<std::string> names;
    for (const StoredTensor& tensor : file_.tensors()) {
      if (!used_.contains(tensor.name)) names.push_back(tensor.name);
    }
    return names;
  }
  std::vector<std::string> unused_settings() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : values_) {
      if (!used_settings_.contains(key)) keys.push_back(key);
    }
    return keys;
  }

 private:
  /// The types that `msa run --help` lists for a tensor, "BF16|F16".
  static std::string_view types_of(std::string_view name) {
    const auto* const tensor = std::find_if(tensors.begin(), tensors.end(),
                                            [&](const RunTensor& t) { return t.name == name; });
    const std::string_view types = tensor->dtypes;
    return types.starts_with("as ") ? types_of(types.substr(3)) : types;
  }

  void check_type(const StoredTensor& stored) {
    std::string_view left = types_of(stored.name);
    std::vector<std::string_view> allowed;
    while (!left.empty()) {
      const std::size_t end = std::min(left.find('|'), left.size());
      allowed.push_back(left.substr(0, end));
      left.remove_prefix(std::min(end + 1, left.size()));
    }
    if (std::find(allowed.begin(), allowed.end(), stored.dtype_name) != allowed.end()) return;
    fail(fmt::format("tensor '{}' has dtype {} (shape {}); expected {}", stored.name,
                     stored.dtype_name, shape_text(stored.shape), fmt::join(allowed, " or ")));
  }

  static bool fits(const StoredTensor& stored, std::span<const char* const> shape) {
    bool fits = stored.shape.size() == shape.size();
    for (std::size_t i = 0; fits && i < shape.size(); ++i) {
      const auto number = parse_integer(shape[i]);
      fits = !number || *number == stored.shape[i];
    }
    return fits;
  }

  /// Says which of a cache's numbers is the size of its pages, where that is what does not fit: it
  /// is the first 128 of each of their shapes.
  static std::string page_hint(const StoredTensor& stored, std::span<const char* const> shape) {
    const auto is = [](std::string_view word) {
      return [word](std::string_view extent) { return extent == word; };
    };
    if (stored.shape.size() != shape.size() ||
        std::none_of(shape.begin(), shape.end(), is("pages")))
      return "";
    const auto page = std::find_if(shape.begin(), shape.end(), is("128")) - shape.begin();
    const std::int64_t tokens = stored.shape[static_cast<std::size_t>(page)];
    if (tokens == page_size) return "";
    return fmt::format(" (pages of {} tokens; allowed: {})", tokens, page_size);
  }

  const SafetensorsFile& file_;
  std::map<std::string, std::string> values_;
  std::set<std::string, std::less<>> used_;
  std::set<std::string, std::less<>> used_settings_;
  std::vector<std::string> failures_;
};

namespace {

/// What a layout's letter stands for in messages, and where the letter's dimension belongs in
/// `[pages, Hkv, 128, 256]` (−1: the layer).
struct LayoutLetter {
  const char* extent;
  int logical;
};
LayoutLetter letter_of(char letter) {
  switch (letter) {
    case 'B':
      return {"pages", 0};
    case 'H':
      return {"Hkv", 1};
    case 'N':
      return {"128", 2};
    case 'C':
      return {"256", 3};
    default:
      return {"layers", -1};
  }
}

}  // namespace

RunProblem::RunProblem(const SafetensorsFile& file,
                       const std::map<std::string, std::string>& options) {
  Reader reader(file, options);
  attend_.q = reader.view("q", {"T", "Hq", "128"});
  attend_.softmax_scale = reader.number_or("softmax_scale", attend_.softmax_scale, false);
  attend_.k_scale = reader.number_or("k_scale", 1, true);
  attend_.v_scale = reader.number_or("v_scale", 1, true);
  attend_.causal = reader.flag_or("causal", true);
  attend_.invariant = reader.flag_or("invariant", false);
  attend_.kv_shard = reader.shard();
  read_cache(reader);
  read_batch(reader);
  read_selection(reader);
  reader.raise();
  allocate_outputs();
  ignored_ = reader.unused();
  ignored_settings_ = reader.unused_settings();
}

void RunProblem::read_cache(Reader& reader) {
  const auto as_cache_type = [&](ConstTensor tensor, const char* name) {
    if (!tensor.given() || tensor.dtype != DType::u8) return tensor;
    const auto text = reader.text("kv_dtype");
    const auto type = text ? parse_dtype(*text) : std::nullopt;
    if (type != DType::e4m3 && type != DType::e5m2) {
      reader.fail(
          fmt::format("tensor '{}' has dtype U8; setting 'kv_dtype' must say e4m3 or e5m2", name));
      return tensor;
    }
    return tensor.as(*type);
  };
  if (!reader.has("kv_cache")) {
    if (!reader.has("k") && !reader.has("v")) {
      reader.fail(
          "there is no tensor 'kv_cache' of shape [pages, Hkv, 128, 256], and no 'k' and "
          "'v' of shape [pages, Hkv, 128, 128]");
      return;
    }
    attend_.kv_cache.k = as_cache_type(reader.view("k", {"pages", "Hkv", "128", "128"}), "k");
    attend_.kv_cache.v = as_cache_type(reader.view("v", {"pages", "Hkv", "128", "128"}), "v");
    return;
  }
  const std::int64_t layer = reader.integer_or("layer", 0);
  const std::string text = reader.text("layout").value_or("LBHNC");
  const auto layout = parse_kv_layout(text);
  if (!layout) {
    reader.fail(
        fmt::format("setting 'layout' is '{}'; expected LBHNC, LBNHC, LHBNC, BLHNC, "
                    "BLNHC or BHLNC",
                    text));
    return;
  }
  std::string letters = name(*layout);
  // A file of one layer may leave the layer's dimension out.
  if (reader.rank("kv_cache") != 5) letters.erase(letters.find('L'), 1);
  std::array<const char*, 5> expected{"", "", "", "", ""};
  for (std::size_t i = 0; i < letters.size(); ++i) expected[i] = letter_of(letters[i]).extent;
  const ConstTensor stored = as_cache_type(
      letters.size() == 5
          ? reader.view("kv_cache",
                        {expected[0], expected[1], expected[2], expected[3], expected[4]})
          : reader.view("kv_cache", {expected[0], expected[1], expected[2], expected[3]}),
      "kv_cache");
  if (!stored.given()) return;

  const std::size_t layer_dim = letters.find('L');
  const std::int64_t layers = layer_dim == std::string::npos ? 1 : stored.shape[layer_dim];
  if (layer < 0 || layer >= layers) {
    reader.fail(fmt::format("setting 'layer' is {}; tensor 'kv_cache' has {}", layer, layers));
    return;
  }
  ConstTensor view = stored;
  view.rank = 4;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const int to = letter_of(letters[i]).logical;
    if (to < 0) {
      view.data = stored.narrow(static_cast<int>(i), layer, 1).data;
      continue;
    }
    view.shape[static_cast<std::size_t>(to)] = stored.shape[i];
    view.stride[static_cast<std::size_t>(to)] = stored.stride[i];
  }
  attend_.kv_cache.packed = view;
}

void RunProblem::read_batch(Reader& reader) {
  using Integers = Reader::Integers;
  BatchMetadata& batch = attend_.batch;
  const std::optional<Integers> lens = reader.integers("seq_lens", {"R"});
  const bool with_starts = reader.has("cu_seqlens_q"), with_contexts = reader.has("context_lens"),
             with_table = reader.has("block_table");
  std::optional<Integers> starts, contexts, table;
  if (with_starts) starts = reader.integers("cu_seqlens_q", {"R_p + 1"});
  if (with_contexts) contexts = reader.integers("context_lens", {"R_p"});
  if (with_table) table = reader.integers("block_table", {"R", "W"});
  const std::optional<std::int64_t> query_len =
      reader.count("decode_query_len", 1, max_decode_query_len,
                   " (pass the rows of longer requests as prefill, by 'cu_seqlens_q')");
  const std::int64_t pages =
      attend_.kv_cache.shape_view().given() ? attend_.kv_cache.shape_view().shape[0] : 0;
  if (!with_table && lens && (lens->dims[0] != 1 || pages > int32_max)) {
    reader.fail(fmt::format("there is no tensor 'block_table'; expected one of shape [R = {}, W]",
                            lens->dims[0]));
  }
  if (lens) check_lengths(reader, lens->values, with_table, pages);
  // Everything else is a matter of the numbers of rows and requests.
  const std::int64_t rows = attend_.q.given() ? attend_.q.shape[0] : -1;
  const std::int64_t tokens = reader.integer_or("num_actual_tokens", rows);
  if (rows >= 0 && (tokens < 0 || tokens > rows)) {
    reader.fail(
        fmt::format("setting 'num_actual_tokens' is {}; tensor 'q' has {} rows", tokens, rows));
    return;
  }
  if (rows < 0 || !lens || (with_starts && !starts)) return;

  const std::int64_t requests = lens->dims[0];
  std::vector<std::int32_t> begins = {0};  // of the prefill requests
  if (starts) {
    begins = starts->values;
    if (begins.empty() || static_cast<std::int64_t>(begins.size()) > requests + 1) {
      reader.fail(
          fmt::format("tensor 'cu_seqlens_q' has shape {}; expected [R_p + 1] with R_p "
                      "from 0 to R = {} (tensor 'seq_lens')",
                      shape_text(starts->dims), requests));
      return;
    }
    if (begins.front() != 0 || !std::is_sorted(begins.begin(), begins.end()) ||
        begins.back() > tokens) {
      reader.fail(fmt::format("tensor 'cu_seqlens_q' (shape {}) must ascend from 0 to at most {}",
                              shape_text(starts->dims), tokens));
      return;
    }
  } else if (requests == 1 && tokens > max_decode_query_len && tokens <= int32_max && !query_len) {
    begins = {0, static_cast<std::int32_t>(tokens)};
  }
  batch.num_prefills = static_cast<std::int64_t>(begins.size()) - 1;
  batch.num_decodes = requests - batch.num_prefills;
  batch.num_actual_tokens = tokens;

  const std::int64_t left = tokens - begins.back();
  const std::int64_t share =
      batch.num_decodes > 0 && left % batch.num_decodes == 0 ? left / batch.num_decodes : 0;
  batch.decode_query_len = query_len.value_or(batch.num_decodes > 0 ? share : 1);
  if (batch.num_decodes > 0 &&
      (batch.decode_query_len < 1 || batch.decode_query_len > left / batch.num_decodes)) {
    reader.fail(fmt::format(
        "{} decode requests cannot share {} rows of tensor 'q' (shape {}) evenly; expected "
        "R_d · decode_query_len rows before those that 'cu_seqlens_q' counts",
        batch.num_decodes, left,
        shape_text(std::span(attend_.q.shape.data(), static_cast<std::size_t>(attend_.q.rank)))));
  } else if (batch.num_decodes > 0 && batch.decode_query_len > max_decode_query_len) {
    reader.fail(fmt::format(
        "{} decode requests share {} rows of tensor 'q', {} each; allowed: 1 to {} (pass the rows "
        "of longer requests as prefill, by 'cu_seqlens_q')",
        batch.num_decodes, left, batch.decode_query_len, max_decode_query_len));
  }
  if (contexts && contexts->dims[0] != batch.num_prefills) {
    reader.fail(fmt::format("tensor 'context_lens' has shape {}; expected [R_p = {}]",
                            shape_text(contexts->dims), batch.num_prefills));
  }
  if (!reader.ok()) return;

  std::vector<std::int32_t> context_lens;
  batch.max_query_len = batch.num_decodes > 0 ? batch.decode_query_len : 0;
  for (std::int64_t i = 0; i < batch.num_prefills; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int32_t query = begins[at + 1] - begins[at];
    context_lens.push_back(lens->values[static_cast<std::size_t>(batch.num_decodes + i)] - query);
    batch.max_query_len = std::max<std::int64_t>(batch.max_query_len, query);
  }
  if (contexts) context_lens = contexts->values;
  std::int32_t longest = 0;
  for (const std::int32_t keys : lens->values) longest = std::max(longest, keys);
  batch.max_seq_len = longest;
  batch.seq_lens = own(lens->values, {requests});
  batch.cu_seqlens_q = own(std::move(begins), {batch.num_prefills + 1});
  batch.context_lens = own(std::move(context_lens), {batch.num_prefills});
  if (table) {
    batch.block_table = own(std::move(table->values), {table->dims[0], table->dims[1]});
    return;
  }
  std::vector<std::int32_t> in_order(static_cast<std::size_t>(pages));
  std::iota(in_order.begin(), in_order.end(), 0);
  batch.block_table = own(std::move(in_order), {1, pages});
}

void RunProblem::check_lengths(Reader& reader, const std::vector<std::int32_t>& lens,
                               bool with_table, std::int64_t pages) const {
  const auto negative = std::find_if(lens.begin(), lens.end(), [](auto keys) { return keys < 0; });
  if (negative != lens.end()) {
    reader.fail(
        fmt::format("tensor 'seq_lens' (shape [{}]) holds {} at position {}; allowed: 0 or "
                    "more",
                    lens.size(), *negative, negative - lens.begin()));
  }
  if (with_table || lens.size() != 1 || !attend_.kv_cache.shape_view().given()) return;
  const KVShard& shard = attend_.kv_shard;
  const std::int64_t blocks = (std::int64_t{lens[0]} + page_size - 1) / page_size;
  const std::int64_t columns = (blocks - shard.rank + shard.world - 1) / shard.world;
  if (columns > pages) {
    reader.fail(
        fmt::format("there is no tensor 'block_table', and the {} pages of the cache hold "
                    "fewer keys than the {} of tensor 'seq_lens'",
                    pages, lens[0]));
  }
}

void RunProblem::check_rows(Reader& reader, const char* name, const ConstTensor& tensor) const {
  if (!tensor.given() || !attend_.q.given()) return;
  const std::int64_t rows = tensor.shape[0], most = attend_.q.shape[0];
  const std::int64_t least = attend_.batch.num_actual_tokens;
  if (rows >= least && rows <= most) return;
  const auto dims = std::span(tensor.shape.data(), static_cast<std::size_t>(tensor.rank));
  reader.fail(fmt::format("tensor '{}' has shape {}; expected T = {} rows, as tensor 'q' has", name,
                          shape_text(dims), most));
}

void RunProblem::read_selection(Reader& reader) {
  using Integers = Reader::Integers;
  if (reader.has("selection")) {
    std::optional<Integers> ids = reader.integers("selection", {"T", "Hs", "topk"});
    if (!ids) return;
    attend_.selection = own(std::move(ids->values), {ids->dims[0], ids->dims[1], ids->dims[2]});
    check_rows(reader, "selection", attend_.selection);
    return;
  }
  if (!reader.has("index_q") && !reader.has("index_k")) {
    reader.fail(
        "there is no tensor 'selection' of shape [T, Hs, topk], and no 'index_q' of shape "
        "[T, Hi, 128] with 'index_k' of shape [pages, 128, 128]");
    return;
  }
  IndexArgs index;
  index.index_q = reader.view("index_q", {"T", "Hi", "128"});
  check_rows(reader, "index_q", index.index_q);
  index.index_cache = reader.view("index_k", {"pages", "128", "128"});
  if (index.index_cache.dtype == DType::u8) index.index_cache = index.index_cache.as(DType::e4m3);
  index.batch = attend_.batch;
  if (reader.has("index_block_table")) {
    std::optional<Integers> table = reader.integers("index_block_table", {"R", "W"});
    if (table) {
      index.batch.block_table = own(std::move(table->values), {table->dims[0], table->dims[1]});
    }
  }
  index.rule.init_blocks =
      reader.count("init_blocks", 0, int32_max).value_or(index.rule.init_blocks);
  index.rule.local_blocks =
      reader.count("local_blocks", 0, int32_max).value_or(index.rule.local_blocks);
  index.rule.reduce_heads = reader.flag_or("reduce_heads", false);
  index.exact = reader.flag_or("exact", false);
  const std::int64_t topk = reader.count("topk", 1, max_topk).value_or(16);
  if (!reader.ok()) return;
  const std::int64_t lists = index.rule.reduce_heads ? 1 : index.index_q.shape[1];
  index.selection = allocate(DType::i32, {attend_.q.shape[0], lists, topk});
  std::fill_n(index.selection.ptr<std::int32_t>(), index.selection.numel(), -1);
  attend_.selection = index.selection;
  index_ = index;
}

void RunProblem::allocate_outputs() {
  const std::int64_t rows = attend_.q.shape[0], heads = attend_.q.shape[1];
  attend_.out = allocate(attend_.q.dtype, {rows, heads, head_dim});
  attend_.lse = allocate(DType::f32, {rows, heads});
}

namespace {

/// Bytes from a view's first element to its last.
std::size_t span_bytes(const ConstTensor& tensor) {
  if (tensor.numel() <= 0) return 0;
  std::int64_t last = 0;
  for (int i = 0; i < tensor.rank; ++i) last += (tensor.shape[i] - 1) * tensor.stride[i];
  return static_cast<std::size_t>(last + 1) * size_of(tensor.dtype);
}

/// A call's tensors in a place; on the host they stay where they are.
class Copies {
 public:
  explicit Copies(Place& place) : place_(place) {}

  /// `tensor` becomes a copy of it, whose contents are brought along.
  template <class Pointer>
  void move(BasicTensor<Pointer>& tensor) {
    if (place_.is_host() || !tensor.given()) return;
    const std::size_t bytes = span_bytes(tensor);
    // Of an empty tensor an address all the same: null would not be a tensor that is there.
    const PlacedBuffer& memory = memory_.emplace_back(place_, std::max<std::size_t>(bytes, 1));
    if (bytes > 0) place_.upload(memory.data(), tensor.data, bytes);
    tensor.data = memory.data();
    tensor.device = place_.device();
  }
  void move(BatchMetadata& batch) {
    move(batch.seq_lens);
    move(batch.block_table);
    move(batch.cu_seqlens_q);
    move(batch.context_lens);
  }
  Workspace workspace(std::size_t bytes) {
    if (bytes == 0) return {};
    return {memory_.emplace_back(place_, bytes).data(), bytes};
  }
  /// Brings an output's contents back.
  void fetch(const Tensor& to, const Tensor& from) {
    const std::size_t bytes = span_bytes(to);
    if (!place_.is_host() && bytes > 0) place_.download(to.data, from.data, bytes);
  }

 private:
  Place& place_;
  std::deque<PlacedBuffer> memory_;
};

}  // namespace

double RunProblem::run(Place& place) {
  Copies copies(place);
  AttendArgs attend_call = attend_;
  std::optional<IndexArgs> index_call = index_;
  copies.move(attend_call.q);
  copies.move(attend_call.kv_cache.packed);
  copies.move(attend_call.kv_cache.k);
  copies.move(attend_call.kv_cache.v);
  copies.move(attend_call.batch);
  copies.move(attend_call.out);
  copies.move(attend_call.lse);
  attend_call.stream = place.stream();
  if (index_call) {
    copies.move(index_call->index_q);
    copies.move(index_call->index_cache);
    copies.move(index_call->batch);
    copies.move(index_call->selection);
    index_call->stream = place.stream();
    attend_call.selection = index_call->selection;
  } else {
    copies.move(attend_call.selection);
  }
  std::size_t bytes = workspace_size(attend_call);
  if (index_call) bytes = std::max(bytes, workspace_size(*index_call));
  attend_call.workspace = copies.workspace(bytes);
  if (index_call) index_call->workspace = attend_call.workspace;

  const auto calls = [&] {
    if (index_call) index_blocks(*index_call);
    attend(attend_call);
  };
  if (!place.is_host()) calls();
  place.mark(0);
  calls();
  place.mark(1);
  const double seconds = place.seconds_between(0, 1);
  copies.fetch(attend_.out, attend_call.out);
  copies.fetch(attend_.lse, attend_call.lse);
  if (index_) copies.fetch(index_->selection, index_call->selection);
  return seconds;
}

std::vector<TensorToStore> RunProblem::outputs() const {
  std::vector<TensorToStore> list = {{"out", attend_.out}, {"lse", attend_.lse}};
  if (index_) list.push_back({"selection", index_->selection});
  return list;
}

Tensor RunProblem::allocate(DType dtype, std::initializer_list<std::int64_t> shape) {
  Tensor tensor = Tensor::dense(nullptr, dtype, shape);
  const std::size_t bytes = static_cast<std::size_t>(tensor.numel()) * size_of(dtype);
  tensor.data = buffers_.emplace_back(bytes / 8 + 1).data();
  return tensor;
}

ConstTensor RunProblem::own(std::vector<std::int32_t> values,
                            std::initializer_list<std::int64_t> shape) {
  values.reserve(1);  // an empty array still has an address
  return ConstTensor::dense(integers_.emplace_back(std::move(values)).data(), DType::i32, shape);
}

}  // namespace msa::cli
