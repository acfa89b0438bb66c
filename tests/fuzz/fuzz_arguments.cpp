// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "msa/error.h"
#include "msa/msa.h"

namespace {

using namespace msa;

/// The input as numbers; zeros after its end.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  std::int64_t below(std::int64_t n) { return byte() % n; }
  std::int32_t word() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | byte();
    return static_cast<std::int32_t>(value);
  }
  bool done() const { return at_ >= size_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

/// Numbers that validators trip over, besides small ones.
std::int64_t odd_number(Bytes& in) {
  constexpr std::array<std::int64_t, 16> odd = {0,
                                                1,
                                                2,
                                                3,
                                                -1,
                                                64,
                                                127,
                                                128,
                                                129,
                                                256,
                                                32768,
                                                65536,
                                                std::int64_t{1} << 31,
                                                std::int64_t{1} << 62,
                                                INT64_MAX,
                                                INT64_MIN};
  return odd[static_cast<std::size_t>(in.below(odd.size()))];
}

/// Memory of one call, zeros at first. Every view that the calls get lies inside, or is null. One
/// block serves all calls: to fetch new pages each time would take longer than the calls do.
class Arena {
 public:
  static constexpr std::int64_t bytes = std::int64_t{2} << 20;

  Arena() { std::memset(memory_, 0, bytes); }
  char* base() { return memory_; }

  /// The next free place; views are dense at first.
  template <class View = Tensor>
  View take(DType dtype, std::initializer_list<std::int64_t> shape) {
    View view = View::dense(base() + used_, dtype, shape);
    used_ += (view.numel() * static_cast<std::int64_t>(size_of(dtype)) + 63) / 64 * 64;
    if (used_ > bytes) std::abort();  // the shapes below are chosen to fit
    return view;
  }
  /// Whether all elements lie inside; views without elements always do.
  bool holds(const ConstTensor& view) {
    __int128 low = 0, high = 0;
    for (int i = 0; i < view.rank; ++i) {
      if (view.shape[i] <= 0) return true;
      const __int128 reach = static_cast<__int128>(view.shape[i] - 1) * view.stride[i];
      if (reach < -bytes || reach > bytes) return false;
      (reach < 0 ? low : high) += reach;
    }
    const __int128 size = static_cast<__int128>(size_of(view.dtype));
    const __int128 start = static_cast<const char*>(view.data) - base();
    return start + low * size >= 0 && start + (high + 1) * size <= bytes;
  }

 private:
  alignas(64) static char memory_[bytes];
  std::int64_t used_ = 0;
};
alignas(64) char Arena::memory_[bytes];

/// A call before and after it was broken: its views and numbers, by reference.
struct Handles {
  std::vector<std::function<void(Bytes&, Arena&)>> mutations;

  template <class View>
  void view(View& view) {
    mutations.emplace_back([&view](Bytes& in, Arena& arena) {
      const auto dim = static_cast<std::size_t>(in.below(View::max_rank));
      switch (in.below(8)) {
        case 0:
          view.shape[dim] = odd_number(in);
          break;
        case 1:
          view.stride[dim] = odd_number(in);
          break;
        case 2:
          view.dtype = static_cast<DType>(in.below(10));
          break;
        case 3:
          view.rank = static_cast<int>(in.below(View::max_rank + 1));
          break;
        case 4:
          view.data = arena.base() + static_cast<std::uint32_t>(in.word()) % Arena::bytes;
          break;
        case 5:
          view = {};
          break;
        case 6:
          view.device.type = static_cast<DeviceType>(in.below(5));
          break;
        default:  // a neighbour of what it is, which may be any number by now
          view.shape[dim] = static_cast<std::int64_t>(static_cast<std::uint64_t>(view.shape[dim]) +
                                                      static_cast<std::uint64_t>(in.below(5) - 2));
      }
    });
    // Whatever the mutations made of it: no call may get memory that is not there.
    guards.emplace_back([&view](Arena& arena) {
      if (view.data != nullptr && !arena.holds(view)) view.data = nullptr;
    });
  }
  template <class Number>
  void number(Number& number) {
    mutations.emplace_back(
        [&number](Bytes& in, Arena&) { number = static_cast<Number>(odd_number(in)); });
  }
  void flag(bool& flag) {
    mutations.emplace_back([&flag](Bytes&, Arena&) { flag = !flag; });
  }
  void cache(ConstKVCache& c) { view(c.packed), view(c.k), view(c.v); }
  void cache(KVCache& c) { view(c.packed), view(c.k), view(c.v); }

  std::vector<std::function<void(Arena&)>> guards;

  void mutate(Bytes& in, Arena& arena) {
    for (std::int64_t n = in.below(6); n > 0; --n) {
      mutations[static_cast<std::size_t>(in.byte()) % mutations.size()](in, arena);
    }
    for (const auto& guard : guards) guard(arena);
  }
};

DType element_type(Bytes& in) {
  constexpr std::array<DType, 4> types = {DType::bf16, DType::f16, DType::e4m3, DType::e5m2};
  return types[static_cast<std::size_t>(in.below(4))];
}

/// Values of the arrays that hold ids, pages, lengths or slots.
template <class Integer>
void garbage(Bytes& in, Tensor view, std::int64_t low, std::int64_t high) {
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    const std::int64_t span = high - low + 1;
    const bool wild = in.byte() == 255;
    view.ptr<Integer>()[i] =
        static_cast<Integer>(wild ? in.word() : low + (in.byte() * 7 + i) % span);
  }
}

constexpr std::int64_t pages = 4, width = 4;

struct Batch {
  BatchMetadata meta;
  std::int64_t rows;

  Batch(Bytes& in, Arena& arena) {
    const std::int64_t decodes = in.below(3), m = 1 + in.below(3), prefills = in.below(3);
    const std::int64_t length = in.below(5);
    rows = decodes * m + prefills * length;
    Tensor lens = arena.take(DType::i32, {decodes + prefills});
    Tensor table = arena.take(DType::i32, {decodes + prefills, width});
    Tensor starts = arena.take(DType::i32, {prefills + 1});
    Tensor contexts = arena.take(DType::i32, {prefills});
    for (std::int64_t i = 0; i < lens.numel(); ++i) {
      // Lengths past the table's width and below the tokens of the call, too.
      lens.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(in.byte() * 5 - 20);
    }
    garbage<std::int32_t>(in, table, -1, pages);
    for (std::int64_t p = 0; p <= prefills; ++p) {
      starts.ptr<std::int32_t>()[p] = static_cast<std::int32_t>(p * length);
    }
    for (std::int64_t p = 0; p < prefills; ++p) {
      contexts.ptr<std::int32_t>()[p] =
          lens.ptr<std::int32_t>()[decodes + p] - static_cast<std::int32_t>(length);
    }
    meta.seq_lens = lens;
    meta.block_table = table;
    meta.cu_seqlens_q = starts;
    meta.context_lens = contexts;
    meta.num_decodes = decodes;
    meta.num_prefills = prefills;
    meta.decode_query_len = m;
    meta.num_actual_tokens = rows;
    meta.max_query_len = std::max(m, length);
    meta.max_seq_len = 256 * 5;
  }
};

/// Counts of a batch may fall, but not rise: a cu_seqlens_q beyond T is the caller's error, which
/// only MSA_CHECK=1 can see.
void handle(Handles& handles, BatchMetadata& b) {
  handles.view(b.seq_lens);
  handles.view(b.block_table);
  handles.number(b.max_query_len);
  handles.number(b.max_seq_len);
  if (b.num_decodes == 0) handles.number(b.decode_query_len);  // of nobody's rows: any number
}

/// What a size query asked for, or now and then less: the call must notice. Only what is handed
/// over is there, so that a call that goes on is caught.
Workspace workspace_of(Bytes& in, std::size_t bytes, std::vector<std::uint64_t>& memory) {
  const std::int64_t less = in.below(16);
  if (less == 1) return {};
  if (less == 2) bytes -= bytes / 2;
  if (less == 3 && bytes > 0) --bytes;
  memory.resize((bytes + 7) / 8);
  return {memory.data(), bytes};
}

void fuzz_attend(Bytes& in, Arena& arena) {
  const DType cache = element_type(in);
  const std::int64_t kv_heads = 1 + in.below(2), group = 1 + in.below(4);
  const Batch batch(in, arena);
  AttendArgs a;
  a.batch = batch.meta;
  const DType type = in.below(2) == 0 ? DType::bf16 : DType::f16;
  a.q = arena.take(type, {batch.rows, kv_heads * group, 128});
  a.out = arena.take(type, {batch.rows, kv_heads * group, 128});
  a.lse = arena.take(DType::f32, {batch.rows, kv_heads * group});
  const Tensor ids = arena.take(DType::i32, {batch.rows, kv_heads, 4});
  garbage<std::int32_t>(in, ids, -2, 11);
  a.selection = ids;
  a.kv_cache = arena.take(cache, {pages, kv_heads, 128, 256});
  Handles handles;
  handles.view(a.q), handles.view(a.out), handles.view(a.lse), handles.view(a.selection);
  handles.cache(a.kv_cache);
  handle(handles, a.batch);
  handles.flag(a.causal), handles.flag(a.invariant);
  handles.number(a.kv_shard.rank), handles.number(a.kv_shard.world);
  handles.number(a.k_scale.value), handles.number(a.softmax_scale);
  handles.number(a.workspace_cap);
  handles.mutate(in, arena);
  std::vector<std::uint64_t> memory;
  a.workspace = workspace_of(in, workspace_size(a), memory);
  attend(a);
}

void fuzz_scores(Bytes& in, Arena& arena) {
  const std::int64_t heads = 1 + in.below(3);
  const Batch batch(in, arena);
  IndexScoresArgs a;
  a.batch = batch.meta;
  a.index_q = arena.take(DType::bf16, {batch.rows, heads, 128});
  a.index_cache = arena.take(in.below(2) == 0 ? DType::bf16 : DType::e4m3, {pages, 128, 128});
  a.scores = arena.take(DType::f32, {heads, in.below(14), batch.rows});
  Handles handles;
  handles.view(a.index_q), handles.view(a.index_cache), handles.view(a.scores);
  handle(handles, a.batch);
  handles.flag(a.exact), handles.number(a.workspace_cap);
  handles.mutate(in, arena);
  std::vector<std::uint64_t> memory;
  a.workspace = workspace_of(in, workspace_size(a), memory);
  index_scores(a);
}

void fuzz_index(Bytes& in, Arena& arena) {
  const std::int64_t heads = 1 + in.below(3);
  const Batch batch(in, arena);
  IndexArgs a;
  a.batch = batch.meta;
  a.index_q = arena.take(DType::bf16, {batch.rows, heads, 128});
  a.index_cache = arena.take(in.below(2) == 0 ? DType::bf16 : DType::e4m3, {pages, 128, 128});
  a.selection = arena.take(DType::i32, {batch.rows, heads, 1 + in.below(8)});
  Handles handles;
  handles.view(a.index_q), handles.view(a.index_cache), handles.view(a.selection);
  handle(handles, a.batch);
  handles.number(a.rule.init_blocks), handles.number(a.rule.local_blocks);
  handles.flag(a.rule.reduce_heads), handles.flag(a.exact);
  handles.number(a.workspace_cap);
  handles.mutate(in, arena);
  std::vector<std::uint64_t> memory;
  a.workspace = workspace_of(in, workspace_size(a), memory);
  index_blocks(a);
}

void fuzz_select(Bytes& in, Arena& arena) {
  const std::int64_t heads = 1 + in.below(3), blocks = in.below(40), rows = in.below(5);
  SelectArgs a;
  a.num_tokens = rows;
  a.scores = arena.take(DType::f32, {heads, blocks, rows});
  const Tensor valid = arena.take(DType::i32, {rows});
  garbage<std::int32_t>(in, valid, -1, 41);
  a.valid_blocks = valid;
  a.selection = arena.take(DType::i32, {rows, heads, 1 + in.below(20)});
  Handles handles;
  handles.view(a.scores), handles.view(a.valid_blocks), handles.view(a.selection);
  handles.number(a.rule.init_blocks), handles.number(a.rule.local_blocks);
  handles.flag(a.rule.reduce_heads), handles.number(a.workspace_cap);
  handles.mutate(in, arena);
  std::vector<std::uint64_t> memory;
  a.workspace = workspace_of(in, workspace_size(a), memory);
  select_blocks(a);
}

void fuzz_write(Bytes& in, Arena& arena) {
  const std::int64_t rows = in.below(6), q_heads = 1 + in.below(4), kv_heads = 1 + in.below(2);
  const DType type = in.below(2) == 0 ? DType::bf16 : DType::f16;
  WriteCacheArgs a;
  a.num_tokens = rows;
  a.qkv = arena.take(type, {rows, (q_heads + 2 * kv_heads + 3) * 128});
  const Tensor positions = arena.take(DType::i64, {rows});
  const Tensor slots = arena.take(DType::i64, {rows});
  const Tensor index_slots = arena.take(DType::i64, {rows});
  for (const Tensor& t : {positions, slots, index_slots}) garbage<std::int64_t>(in, t, -2, 600);
  a.positions = positions;
  a.slot_mapping = slots;
  a.index_slot_mapping = index_slots;
  a.cos_sin = arena.take(DType::f32, {200, 64});
  a.q_norm = a.k_norm = a.index_q_norm = a.index_k_norm = arena.take(type, {128});
  a.q_out = arena.take(type, {rows, q_heads, 128});
  a.kv_cache = arena.take(element_type(in), {pages, kv_heads, 128, 256});
  a.index_q_out = arena.take(type, {rows, 2, 128});
  a.index_cache = arena.take(in.below(2) == 0 ? DType::bf16 : DType::e4m3, {pages, 128, 128});
  Handles handles;
  handles.view(a.qkv), handles.view(a.positions), handles.view(a.cos_sin);
  handles.view(a.slot_mapping), handles.view(a.index_slot_mapping), handles.view(a.q_norm);
  handles.view(a.q_out), handles.view(a.index_q_out), handles.view(a.index_cache);
  handles.cache(a.kv_cache);
  handles.number(a.num_tokens), handles.number(a.norm_eps), handles.number(a.v_scale.value);
  handles.mutate(in, arena);
  write_cache(a);
}

void fuzz_layer_step(Bytes& in, Arena& arena) {
  const std::int64_t kv_heads = 1 + in.below(2), group = 1 + in.below(4), topk = 1 + in.below(5);
  const Batch batch(in, arena);
  const std::int64_t rows = batch.rows;
  const DType type = in.below(2) == 0 ? DType::bf16 : DType::f16;
  LayerStepArgs a;
  WriteCacheArgs& w = a.write;
  w.num_tokens = rows;
  w.qkv = arena.take(type, {rows, (kv_heads * group + 3 * kv_heads + 1) * 128});
  const Tensor positions = arena.take(DType::i64, {rows});
  const Tensor slots = arena.take(DType::i64, {rows});
  for (const Tensor& t : {positions, slots}) garbage<std::int64_t>(in, t, -2, 600);
  w.positions = positions;
  w.slot_mapping = w.index_slot_mapping = slots;
  w.cos_sin = arena.take(DType::f32, {200, 64});
  w.q_norm = w.k_norm = w.index_q_norm = w.index_k_norm = arena.take(type, {128});
  w.q_out = arena.take(type, {rows, kv_heads * group, 128});
  w.kv_cache = arena.take(element_type(in), {pages, kv_heads, 128, 256});
  w.index_q_out = arena.take(type, {rows, kv_heads, 128});
  w.index_cache = arena.take(in.below(2) == 0 ? DType::bf16 : DType::e4m3, {pages, 128, 128});
  a.index.batch = a.attend.batch = batch.meta;
  a.index.selection = arena.take(DType::i32, {rows, kv_heads, topk});
  a.attend.out = arena.take(type, {rows, kv_heads * group, 128});
  a.attend.lse = arena.take(DType::f32, {rows, kv_heads * group});
  Handles handles;
  handles.view(w.qkv), handles.view(w.positions), handles.view(w.slot_mapping);
  handles.view(w.q_out), handles.view(w.index_q_out), handles.view(w.index_cache);
  handles.cache(w.kv_cache);
  handles.view(a.index.selection), handles.view(a.attend.out), handles.view(a.attend.lse);
  handle(handles, a.index.batch), handle(handles, a.attend.batch);
  handles.number(w.num_tokens), handles.number(w.k_scale.value);
  handles.number(a.index.rule.init_blocks), handles.flag(a.index.rule.reduce_heads);
  handles.number(a.attend.kv_shard.world), handles.number(a.attend.softmax_scale);
  handles.flag(a.attend.causal), handles.flag(a.attend.invariant);
  handles.number(a.index.workspace_cap), handles.number(a.attend.workspace_cap);
  handles.mutate(in, arena);
  std::vector<std::uint64_t> memory;
  a.index.workspace = workspace_of(in, workspace_size(a), memory);
  layer_step(a);
}

void fuzz_insert(Bytes& in, Arena& arena) {
  const std::int64_t rows = in.below(6), kv_heads = 1 + in.below(2);
  const DType type = in.below(2) == 0 ? DType::bf16 : DType::f16;
  InsertCacheArgs a;
  a.num_tokens = rows;
  a.k = arena.take(type, {rows, kv_heads, 128});
  a.v = arena.take(type, {rows, kv_heads, 128});
  const Tensor slots = arena.take(DType::i64, {rows});
  garbage<std::int64_t>(in, slots, -2, 600);
  a.slot_mapping = a.index_slot_mapping = slots;
  a.kv_cache = arena.take(element_type(in), {pages, kv_heads, 128, 256});
  a.index_k = arena.take(type, {rows, 128});
  a.index_cache = arena.take(DType::bf16, {pages, 128, 128});
  Handles handles;
  handles.view(a.k), handles.view(a.v), handles.view(a.slot_mapping), handles.view(a.index_k);
  handles.view(a.index_slot_mapping), handles.view(a.index_cache), handles.cache(a.kv_cache);
  handles.number(a.num_tokens), handles.number(a.k_scale.value);
  handles.mutate(in, arena);
  insert_cache(a);
}

void fuzz_merge(Bytes& in, Arena& arena) {
  const std::int64_t rows = in.below(5), heads = 1 + in.below(4);
  constexpr std::array<DType, 3> types = {DType::bf16, DType::f16, DType::f32};
  const DType type = types[static_cast<std::size_t>(in.below(3))];
  MergeArgs a;
  a.out_a = arena.take(type, {rows, heads, 128});
  a.out_b = arena.take(type, {rows, heads, 128});
  a.lse_a = arena.take(DType::f32, {rows, heads});
  a.lse_b = arena.take(DType::f32, {rows, heads});
  a.out = arena.take(type, {rows, heads, 128});
  a.lse = arena.take(DType::f32, {rows, heads});
  Handles handles;
  handles.view(a.out_a), handles.view(a.out_b), handles.view(a.lse_a), handles.view(a.lse_b);
  handles.view(a.out), handles.view(a.lse);
  handles.mutate(in, arena);
  merge_states(a);
}

void fuzz_copy(Bytes& in, Arena& arena) {
  const DType type = element_type(in);
  const std::int64_t heads = 1 + in.below(2), count = in.below(3);
  CopyPagesArgs a;
  a.src = arena.take(type, {pages, heads, 128, 256});
  a.dst = arena.take(type, {pages, heads, 128, 256});
  const Tensor pairs = arena.take(DType::i64, {count, 2});
  garbage<std::int64_t>(in, pairs, -1, pages);
  a.pairs = pairs;
  Handles handles;
  handles.view(a.src), handles.view(a.dst), handles.view(a.pairs);
  handles.mutate(in, arena);
  copy_pages(a);
}

}  // namespace

/// Any arguments whose memory is there are either served or refused with words that name the
/// operator. Tables, selections, lengths and slots may hold anything.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::array<void (*)(Bytes&, Arena&), 9> operators = {
      fuzz_attend, fuzz_index, fuzz_select, fuzz_write,     fuzz_insert,
      fuzz_merge,  fuzz_copy,  fuzz_scores, fuzz_layer_step};
  Bytes in(data, size);
  const auto op = static_cast<std::size_t>(in.below(operators.size()));
  setenv("MSA_CHECK", in.below(2) == 0 ? "0" : "1", 1);
  Arena arena;
  try {
    operators[op](in, arena);
  } catch (const Error& error) {
    if (error.failures().empty() || error.failures().front().find(": ") == std::string::npos) {
      std::abort();
    }
  }
  return 0;
}
