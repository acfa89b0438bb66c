// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
//
// The packed functions that the Python package calls. tvm-ffi finds them by their exported names,
// __tvm_ffi_ and the function's; arguments come in the order in which the functions read them.
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "api/dispatch.h"
#include "arguments.h"
#include "msa/copy_pages.h"
#include "msa/device.h"
#include "msa/error.h"
#include "msa/layer.h"
#include "msa/merge.h"
#include "msa/write_cache.h"
#include "packed.h"

namespace msa::python {
namespace {

/// Device memory of a framework's own allocator, given back when the call has been launched: on the
/// stream that the framework works on, that is early enough.
class DeviceMemory {
 public:
  DeviceMemory(std::size_t bytes, Device device) {
    auto extent = static_cast<std::int64_t>(bytes);
    DLTensor wanted{};
    wanted.device = {kDLCUDA, device.index};
    wanted.dtype = {kDLUInt, 8, 1};
    wanted.ndim = 1;
    wanted.shape = &extent;
    if (TVMFFIEnvTensorAlloc(&wanted, &tensor_) != 0) throw RaisedError();
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { TVMFFIObjectDecRef(tensor_); }

  void* data() const { return TVMFFITensorGetDLTensorPtr(tensor_)->data; }

 private:
  TVMFFIObjectHandle tensor_ = nullptr;
};

/// Host memory of a thread, as large as its largest call needed.
class HostMemory {
 public:
  Workspace reserve(std::size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_.reset(static_cast<char*>(::operator new(bytes, alignment)));
      bytes_ = bytes;
    }
    return {memory_.get(), bytes_};
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(char* memory) const { ::operator delete(memory, alignment); }
  };
  std::unique_ptr<char, Free> memory_;
  std::size_t bytes_ = 0;
};

/// Memory for one call that was given none.
class FoundWorkspace final : public WorkspaceSource {
 public:
  explicit FoundWorkspace(Device device) : device_(device) {}

  Workspace find(std::size_t bytes) override {
    if (device_.type == DeviceType::cpu) {
      static thread_local HostMemory memory;
      return memory.reserve(bytes);
    }
    if (bytes == 0 || TVMFFIEnvGetDLPackManagedTensorAllocator() == nullptr) return {};
    memory_.emplace(bytes, device_);
    return {memory_->data(), bytes};
  }

 private:
  Device device_;
  std::optional<DeviceMemory> memory_;
};

void give(TVMFFIAny* result, std::size_t bytes) {
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = static_cast<std::int64_t>(bytes);
}

void give(TVMFFIAny* result, const std::string& text) {
  const TVMFFIByteArray bytes{text.data(), text.size()};
  if (TVMFFIStringFromByteArray(&bytes, result) != 0) throw RaisedError();
}

/// Arguments of an operator with a workspace, and that.
template <class Args>
struct Call {
  Args args;
  std::optional<Workspace> workspace;
};

Device device_of(const AttendArgs& args) { return args.q.device; }
Device device_of(const IndexArgs& args) { return args.index_q.device; }
Device device_of(const IndexScoresArgs& args) { return args.index_q.device; }
Device device_of(const SelectArgs& args) { return args.scores.device; }
Device device_of(const LayerStepArgs& args) { return args.write.qkv.device; }

/// What ends an operator's arguments: workspace, its cap and the stream.
template <class Args>
void read_rest(Arguments& in, Call<Args>& call) {
  call.workspace = in.workspace();
  call.args.workspace_cap = in.workspace_cap();
  call.args.stream = in.stream(device_of(call.args));
  in.done();
}

Call<AttendArgs> read_attend(Arguments& in) {
  Call<AttendArgs> call;
  AttendArgs& args = call.args;
  args.q = in.tensor("q");
  args.kv_cache = in.kv_cache();
  args.selection = in.tensor("selection");
  args.batch = in.batch();
  args.out = in.tensor("out");
  args.lse = in.tensor("lse_out", "lse");
  args.softmax_scale = static_cast<float>(in.number("softmax_scale", args.softmax_scale));
  args.k_scale = in.scale("k_scale");
  args.v_scale = in.scale("v_scale");
  args.causal = in.flag("causal", args.causal);
  args.invariant = in.flag("invariant", args.invariant);
  args.kv_shard.rank = in.small_integer("kv_shard.rank", 0);
  args.kv_shard.world = in.small_integer("kv_shard.world", 1);
  read_rest(in, call);
  return call;
}

Call<IndexArgs> read_index_blocks(Arguments& in) {
  Call<IndexArgs> call;
  IndexArgs& args = call.args;
  args.index_q = in.index_tensor("index_q");
  args.index_cache = in.index_tensor("index_cache");
  args.batch = in.batch();
  args.selection = in.tensor("out", "selection");
  args.rule = in.rule();
  args.exact = in.flag("exact", args.exact);
  read_rest(in, call);
  return call;
}

Call<IndexScoresArgs> read_index_scores(Arguments& in) {
  Call<IndexScoresArgs> call;
  IndexScoresArgs& args = call.args;
  args.index_q = in.index_tensor("index_q");
  args.index_cache = in.index_tensor("index_cache");
  args.batch = in.batch();
  args.scores = in.tensor("out", "scores");
  args.exact = in.flag("exact", args.exact);
  read_rest(in, call);
  return call;
}

Call<SelectArgs> read_select_blocks(Arguments& in) {
  Call<SelectArgs> call;
  SelectArgs& args = call.args;
  args.scores = in.tensor("scores");
  args.valid_blocks = in.tensor("valid_blocks");
  args.selection = in.tensor("out", "selection");
  args.num_tokens = in.integer("num_tokens", args.valid_blocks.shape[0]);
  args.rule = in.rule();
  read_rest(in, call);
  return call;
}

WriteCacheArgs read_write(Arguments& in) {
  WriteCacheArgs args;
  args.qkv = in.tensor("qkv");
  args.positions = in.tensor("positions");
  args.cos_sin = in.tensor("cos_sin");
  args.q_norm = in.tensor("q_norm");
  args.k_norm = in.tensor("k_norm");
  args.index_q_norm = in.tensor("index_q_norm");
  args.index_k_norm = in.tensor("index_k_norm");
  args.norm_eps = static_cast<float>(in.number("norm_eps", args.norm_eps));
  args.slot_mapping = in.tensor("slot_mapping");
  args.index_slot_mapping = in.tensor("index_slot_mapping");
  args.q_out = in.tensor("q_out");
  args.kv_cache = in.kv_cache();
  args.index_q_out = in.index_tensor("index_q_out");
  args.index_cache = in.index_tensor("index_cache");
  args.k_scale = in.scale("k_scale");
  args.v_scale = in.scale("v_scale");
  args.num_tokens = in.integer("num_tokens", args.qkv.shape[0]);
  return args;
}

Call<LayerStepArgs> read_layer_step(Arguments& in) {
  Call<LayerStepArgs> call;
  LayerStepArgs& args = call.args;
  args.write = read_write(in);
  args.index.batch = in.batch();
  args.index.selection = in.tensor("selection");
  args.index.rule = in.rule();
  args.index.exact = in.flag("exact", args.index.exact);
  args.attend.batch = in.batch();
  args.attend.out = in.tensor("out");
  args.attend.lse = in.tensor("lse_out", "lse");
  args.attend.softmax_scale =
      static_cast<float>(in.number("softmax_scale", args.attend.softmax_scale));
  args.attend.causal = in.flag("causal", args.attend.causal);
  args.attend.invariant = in.flag("invariant", args.attend.invariant);
  in.call_it("index.batch", "index_batch");
  in.call_it("attend.batch", "batch");
  in.call_it("attend.lse", "lse_out");
  in.call_it("write.num_tokens", "batch.num_actual_tokens");
  for (const char* part : {"write.", "index.", "attend."}) in.call_it(part, "");
  call.workspace = in.workspace();
  args.index.workspace_cap = in.workspace_cap();
  args.attend.workspace_cap = args.index.workspace_cap;
  args.write.stream = in.stream(args.write.qkv.device);
  in.done();
  return call;
}

Workspace& workspace_of(LayerStepArgs& args) { return args.index.workspace; }
template <class Args>
Workspace& workspace_of(Args& args) {
  return args.workspace;
}

/// Runs an operator in the workspace given, or else in one that the package finds.
template <class Args>
void run(Call<Args> call, void (*op)(const Args&),
         void (*op_finding)(const Args&, WorkspaceSource&)) {
  if (call.workspace) {
    workspace_of(call.args) = *call.workspace;
    return op(call.args);
  }
  FoundWorkspace found(device_of(call.args));
  op_finding(call.args, found);
}

}  // namespace

MSA_PACKED(attend, in, result) { run(read_attend(in), &msa::attend, &msa::attend); }
MSA_PACKED(index_blocks, in, result) {
  run(read_index_blocks(in), &msa::index_blocks, &msa::index_blocks);
}
MSA_PACKED(index_scores, in, result) {
  run(read_index_scores(in), &msa::index_scores, &msa::index_scores);
}
MSA_PACKED(select_blocks, in, result) {
  run(read_select_blocks(in), &msa::select_blocks, &msa::select_blocks);
}
MSA_PACKED(layer_step, in, result) { run(read_layer_step(in), &msa::layer_step, &msa::layer_step); }

MSA_PACKED(write_cache, in, result) {
  WriteCacheArgs args = read_write(in);
  args.stream = in.stream(args.qkv.device);
  in.done();
  msa::write_cache(args);
}

MSA_PACKED(insert_cache, in, result) {
  InsertCacheArgs args;
  args.k = in.tensor("k");
  args.v = in.tensor("v");
  args.slot_mapping = in.tensor("slot_mapping");
  args.kv_cache = in.kv_cache();
  args.index_k = in.tensor("index_k");
  args.index_slot_mapping = in.tensor("index_slot_mapping");
  args.index_cache = in.index_tensor("index_cache");
  args.k_scale = in.scale("k_scale");
  args.v_scale = in.scale("v_scale");
  // T is what the first that is there has: where one is missing, the others show what it should be.
  ConstTensor rows;
  for (const ConstTensor* t :
       {&args.k, &args.v, &args.slot_mapping, &args.index_k, &args.index_slot_mapping}) {
    if (!rows.given()) rows = *t;
  }
  args.num_tokens = in.integer("num_tokens", rows.shape[0]);
  args.stream = in.stream(rows.device);
  in.done();
  msa::insert_cache(args);
}

MSA_PACKED(copy_pages, in, result) {
  CopyPagesArgs args;
  args.src = in.tensor("src");
  args.dst = in.tensor("dst");
  args.pairs = in.tensor("pairs");
  const bool from_device = args.src.device.type == DeviceType::cuda;
  args.stream = in.stream(from_device ? args.src.device : args.dst.device);
  in.done();
  msa::copy_pages(args);
}

MSA_PACKED(merge_states, in, result) {
  MergeArgs args;
  args.out_a = in.tensor("out_a");
  args.lse_a = in.tensor("lse_a");
  args.out_b = in.tensor("out_b");
  args.lse_b = in.tensor("lse_b");
  args.out = in.tensor("out");
  args.lse = in.tensor("lse_out", "lse");
  args.stream = in.stream(args.out_a.device);
  in.done();
  msa::merge_states(args);
}

MSA_PACKED(attend_workspace_size, in, result) {
  give(result, workspace_size(read_attend(in).args));
}
MSA_PACKED(index_blocks_workspace_size, in, result) {
  give(result, workspace_size(read_index_blocks(in).args));
}
MSA_PACKED(index_scores_workspace_size, in, result) {
  give(result, workspace_size(read_index_scores(in).args));
}
MSA_PACKED(select_blocks_workspace_size, in, result) {
  give(result, workspace_size(read_select_blocks(in).args));
}
MSA_PACKED(layer_step_workspace_size, in, result) {
  give(result, workspace_size(read_layer_step(in).args));
}

/// The same memory under another element type of the same size; None = its own.
MSA_PACKED(view, in, result) {
  const TVMFFIObjectHandle array = in.object("array");
  const std::optional<std::string_view> name_of_type = in.text("dtype");
  const std::optional<DLDataType> type = name_of_type ? dl_type(*name_of_type) : std::nullopt;
  if (name_of_type && !type) {
    in.fail("dtype", cat("is '", *name_of_type, "'; allowed: ", type_names));
  }
  in.done();
  DLTensor shown = *TVMFFITensorGetDLTensorPtr(array);
  if (type) {
    const int bits = int{shown.dtype.bits} * int{shown.dtype.lanes};
    if (int{type->bits} != bits) {
      in.fail("dtype",
              cat("is '", *name_of_type, "' of ", int{type->bits}, " bits; allowed: a type of ",
                  bits, " bits, as the array's elements have"));
      in.done();
    }
    shown.dtype = *type;
  }
  std::vector<std::int64_t> dense(static_cast<std::size_t>(shown.ndim) + 1, 1);
  if (shown.strides == nullptr) {  // of a dense array, and of one without dimensions
    for (int i = shown.ndim - 1; i > 0; --i) dense[i - 1] = dense[i] * shown.shape[i];
    shown.strides = dense.data();
  }
  TVMFFIObjectHandle made = nullptr;
  if (TVMFFITensorCreateUnsafeView(array, &shown, &made) != 0) throw RaisedError();
  result->type_index = kTVMFFITensor;
  result->zero_padding = 0;
  result->v_obj = static_cast<TVMFFIObject*>(made);
}

MSA_PACKED(version, in, result) { give(result, std::string(msa::version())); }
MSA_PACKED(last_backend, in, result) { give(result, std::string(msa::last_backend())); }

/// A line a backend: its name, then a tab and a reason for each that keeps it off.
MSA_PACKED(backends, in, result) {
  std::string lines;
  for (const BackendInfo& backend : msa::backends()) {
    lines += backend.name;
    for (const std::string& reason : backend.reasons) lines += '\t' + reason;
    lines += '\n';
  }
  give(result, lines);
}

/// Three lines: the instruction set in use, those available, the number of threads.
MSA_PACKED(cpu_info, in, result) {
  const CpuInfo cpu = msa::cpu_info();
  std::string text = cpu.isa + '\n';
  for (const std::string& isa : cpu.available) text += isa + ' ';
  give(result, text + '\n' + std::to_string(cpu.threads));
}

}  // namespace msa::python
