// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
// Context parallelism over the GPUs of one machine. Every rank holds every world-th block of each
// request, attends to its own, and all ranks gather the partial results (out and lse) and merge
// them, in the order of the ranks: the same bits on each. A rank is a thread here; among processes
// nothing changes but how the NCCL communicator comes about.
//
//   context_parallel                 one rank a GPU, results gathered by NCCL
//   context_parallel --ranks N       on the first N GPUs
//   context_parallel --simulate N    N ranks on one GPU, which NCCL does not take: they copy
//
// Exit codes: 0 the merged result is the unsharded one, 1 it is not, 2 wrong usage, 77 this machine
// or this build cannot.
#include <cuda_runtime_api.h>
#ifdef EXAMPLE_NCCL
#include <nccl.h>
#endif

#include <algorithm>
#include <barrier>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bf16.h"
#include "msa/msa.h"

namespace {

using msa::ConstTensor;
using msa::DType;
using msa::Tensor;

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

/// Memory of the current device.
template <class T>
class Array {
 public:
  explicit Array(std::size_t count) : count_(count) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), std::max<std::size_t>(count, 1) * sizeof(T)),
          "cudaMalloc");
  }
  /// Uploads in the order of the stream. A plain cudaMemcpy of pageable memory may return before it
  /// has arrived, and a non-blocking stream would not wait for it.
  Array(const std::vector<T>& values, cudaStream_t stream) : Array(values.size()) {
    check(cudaMemcpyAsync(data_, values.data(), bytes(), cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { cudaFree(data_); }

  T* data() const { return data_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> host() const {
    std::vector<T> values(count_);
    check(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

// The batch: three decode requests of one token, and one prefill of 200 tokens behind 3,000.
constexpr std::int64_t hq = 16, hkv = 2, topk = 16;
constexpr std::int64_t decodes = 3, prefill_tokens = 200, tokens = decodes + prefill_tokens;
constexpr std::int64_t seq_lens[] = {9000, 2000, 130, 3200};
constexpr std::int64_t requests = 4, columns = 71;                        // ceil(9000 / 128)
constexpr std::size_t page_elements = hkv * 128 * 256;                    // K and V of a block
constexpr std::size_t row_elements = static_cast<std::size_t>(hq) * 128;  // of q and out

/// What every rank is given: queries, the index-key cache, which is small and not sharded, and of
/// the main cache the part that it takes.
struct Inputs {
  std::vector<std::uint16_t> q = normal_bf16(tokens * row_elements, 1);
  std::vector<std::uint16_t> index_q = normal_bf16(tokens * hkv * 128, 2);
  std::vector<std::uint16_t> index_cache = normal_bf16(requests * columns * 128 * 128, 3);
  std::vector<std::uint16_t> cache = normal_bf16(requests * columns * page_elements, 4);

  /// The blocks b of each request with b mod world = rank, each request's one after the other.
  std::vector<std::uint16_t> shard(msa::KVShard shard) const {
    std::vector<std::uint16_t> own;
    for (std::int64_t r = 0; r < requests; ++r) {
      for (std::int64_t b = shard.rank; b < columns; b += shard.world) {
        const auto first = cache.begin() + (r * columns + b) * page_elements;
        own.insert(own.end(), first, first + page_elements);
      }
    }
    return own;
  }
};

/// The partial result of one rank, on its GPU.
struct Partial {
  Array<std::uint16_t> out{tokens * row_elements};
  Array<float> lse{tokens * hq};
};

Tensor rows(void* data, int device) {
  return Tensor::dense(data, DType::bf16, {tokens, hq, 128}, {msa::DeviceType::cuda, device});
}
Tensor lse_rows(void* data, int device) {
  return Tensor::dense(data, DType::f32, {tokens, hq}, {msa::DeviceType::cuda, device});
}

/// index_blocks over all keys, then attend over those blocks that the shard holds. Every rank
/// chooses for itself: the same ids on equal GPUs.
void attend_shard(const Inputs& inputs, msa::KVShard shard, int device, cudaStream_t stream,
                  const Partial& result) {
  const msa::Device on{msa::DeviceType::cuda, device};
  const std::int64_t own = (columns - shard.rank + shard.world - 1) / shard.world;  // of a request
  const auto table_of = [](std::int64_t width) {
    std::vector<std::int32_t> table(requests * width);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::int32_t>(i);
    return table;
  };
  const std::vector<std::int32_t> lengths(std::begin(seq_lens), std::end(seq_lens));
  const std::vector<std::uint16_t> blocks = inputs.shard(shard);
  const Array<std::uint16_t> q(inputs.q, stream), index_q(inputs.index_q, stream);
  const Array<std::uint16_t> index_cache(inputs.index_cache, stream), cache(blocks, stream);
  const Array<std::int32_t> all(table_of(columns), stream), table(table_of(own), stream);
  const Array<std::int32_t> seq_len(lengths, stream);
  const Array<std::int32_t> starts({0, prefill_tokens}, stream);
  const Array<std::int32_t> contexts({seq_lens[decodes] - prefill_tokens}, stream);
  const Array<std::int32_t> selection(tokens * hkv * topk);

  msa::BatchMetadata batch;
  batch.seq_lens = ConstTensor::dense(seq_len.data(), DType::i32, {requests}, on);
  batch.cu_seqlens_q = ConstTensor::dense(starts.data(), DType::i32, {2}, on);
  batch.context_lens = ConstTensor::dense(contexts.data(), DType::i32, {1}, on);
  batch.num_decodes = decodes;
  batch.num_prefills = 1;
  batch.num_actual_tokens = tokens;
  batch.max_query_len = prefill_tokens;
  batch.max_seq_len = *std::max_element(std::begin(seq_lens), std::end(seq_lens));  // global

  msa::IndexArgs index;
  index.index_q = ConstTensor::dense(index_q.data(), DType::bf16, {tokens, hkv, 128}, on);
  index.index_cache =
      ConstTensor::dense(index_cache.data(), DType::bf16, {requests * columns, 128, 128}, on);
  index.batch = batch;
  index.batch.block_table = ConstTensor::dense(all.data(), DType::i32, {requests, columns}, on);
  index.selection = Tensor::dense(selection.data(), DType::i32, {tokens, hkv, topk}, on);
  index.stream = {stream};

  msa::AttendArgs attend;
  attend.q = rows(q.data(), device);
  attend.kv_cache =
      ConstTensor::dense(cache.data(), DType::bf16, {requests * own, hkv, 128, 256}, on);
  attend.selection = index.selection;
  attend.batch = batch;
  attend.batch.block_table = ConstTensor::dense(table.data(), DType::i32, {requests, own}, on);
  attend.out = rows(result.out.data(), device);
  attend.lse = lse_rows(result.lse.data(), device);
  attend.kv_shard = shard;
  attend.stream = {stream};

  const Array<std::byte> workspace(
      std::max(msa::workspace_size(index), msa::workspace_size(attend)));
  index.workspace = attend.workspace = {workspace.data(), workspace.bytes()};
  msa::index_blocks(index);
  msa::attend(attend);
  check(cudaStreamSynchronize(stream), "attend");  // the inputs go away
}

/// Brings what every rank has to all of them, one behind the other.
class Gather {
 public:
  virtual ~Gather() = default;
  virtual void all(int rank, const void* own, void* all, std::size_t bytes,
                   cudaStream_t stream) = 0;
};

#ifdef EXAMPLE_NCCL
void check(ncclResult_t status, const char* what) {
  if (status != ncclSuccess) {
    throw std::runtime_error(std::string(what) + ": " + ncclGetErrorString(status));
  }
}

class NcclGather final : public Gather {
 public:
  explicit NcclGather(int world) : communicators_(world) {
    check(ncclCommInitAll(communicators_.data(), world, nullptr), "ncclCommInitAll");
  }
  ~NcclGather() override {
    for (ncclComm_t communicator : communicators_) ncclCommDestroy(communicator);
  }
  void all(int rank, const void* own, void* all, std::size_t bytes, cudaStream_t stream) override {
    check(ncclAllGather(own, all, bytes, ncclInt8, communicators_[rank], stream), "ncclAllGather");
  }

 private:
  std::vector<ncclComm_t> communicators_;
};
#endif

/// Ranks of one GPU: each copies what it has, once every rank has it.
class CopyGather final : public Gather {
 public:
  explicit CopyGather(int world) : own_(world), arrived_(world) {}
  void all(int rank, const void* own, void* all, std::size_t bytes, cudaStream_t stream) override {
    own_[rank] = own;
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    arrived_.arrive_and_wait();
    for (std::size_t from = 0; from < own_.size(); ++from) {
      check(cudaMemcpyAsync(static_cast<char*>(all) + from * bytes, own_[from], bytes,
                            cudaMemcpyDeviceToDevice, stream),
            "cudaMemcpyAsync");
    }
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    arrived_.arrive_and_wait();  // `own_` may change
  }

 private:
  std::vector<const void*> own_;
  std::barrier<> arrived_;
};

struct Result {
  std::vector<std::uint16_t> out;
  std::vector<float> lse;
};

/// What one rank does.
void run_rank(const Inputs& inputs, msa::KVShard shard, int device, Gather& gather,
              Result& result) {
  check(cudaSetDevice(device), "cudaSetDevice");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  const Partial own;
  attend_shard(inputs, shard, device, stream, own);

  const auto world = static_cast<std::size_t>(shard.world);
  const Array<std::uint16_t> outs(world * tokens * row_elements);
  const Array<float> lses(world * tokens * hq);
  gather.all(shard.rank, own.out.data(), outs.data(), own.out.bytes(), stream);
  gather.all(shard.rank, own.lse.data(), lses.data(), own.lse.bytes(), stream);

  for (std::size_t from = 1; from < world; ++from) {
    msa::MergeArgs merge;
    merge.out_a = rows(outs.data(), device);
    merge.lse_a = lse_rows(lses.data(), device);
    merge.out_b = rows(outs.data() + from * tokens * row_elements, device);
    merge.lse_b = lse_rows(lses.data() + from * tokens * hq, device);
    merge.out = rows(outs.data(), device);  // in place on a
    merge.lse = lse_rows(lses.data(), device);
    merge.stream = {stream};
    msa::merge_states(merge);
  }
  check(cudaStreamSynchronize(stream), "merge_states");
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  result.out = outs.host();
  result.out.resize(tokens * row_elements);
  result.lse = lses.host();
  result.lse.resize(tokens * hq);
}

/// A number from 1 to 64, or 0.
int number(const char* text) {
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  return error == std::errc() && stop == end && value >= 1 && value <= 64 ? value : 0;
}

int run(int world, bool simulate) {
  std::unique_ptr<Gather> gather;
  if (simulate) gather = std::make_unique<CopyGather>(world);
#ifdef EXAMPLE_NCCL
  if (!simulate) gather = std::make_unique<NcclGather>(world);
#endif
  const Inputs inputs;
  std::vector<Result> results(world);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < world; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          run_rank(inputs, {rank, world}, simulate ? 0 : rank, *gather, results[rank]);
        } catch (const std::exception& error) {
          // The others wait for this rank: there is no way on for them either.
          std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
          std::_Exit(1);
        }
      });
    }
  }

  // The same on one rank.
  check(cudaSetDevice(0), "cudaSetDevice");
  const Partial whole;
  attend_shard(inputs, {0, 1}, 0, nullptr, whole);
  const std::vector<std::uint16_t> out = whole.out.host();
  const std::vector<float> lse = whole.lse.host();
  bool same = true;
  float difference = 0, largest = 0, lse_difference = 0;
  for (const Result& result : results) {
    same = same && result.out == results[0].out && result.lse == results[0].lse;
    for (std::size_t i = 0; i < out.size(); ++i) {
      largest = std::max(largest, std::abs(to_float(out[i])));
      difference = std::max(difference, std::abs(to_float(out[i]) - to_float(result.out[i])));
    }
    for (std::size_t i = 0; i < lse.size(); ++i) {
      lse_difference = std::max(lse_difference, std::abs(lse[i] - result.lse[i]));
    }
  }
  std::printf(
      "%d %s, %lld decode rows and %lld of prefill: largest difference from one rank %.5f of %.5f, "
      "of lse %.1e; the ranks' bits are %s; backend %s\n",
      world, simulate ? "simulated ranks on one GPU" : "GPUs by NCCL",
      static_cast<long long>(decodes), static_cast<long long>(prefill_tokens), difference, largest,
      lse_difference, same ? "equal" : "not equal", msa::last_backend());
  return same && largest > 0 && difference <= 0.01f * largest && lse_difference <= 1e-3f ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  bool simulate = false, wrong = argc != 1 && argc != 3;
  int world = 0;
  if (argc == 3) {
    simulate = std::strcmp(argv[1], "--simulate") == 0;
    world = number(argv[2]);
    wrong = (!simulate && std::strcmp(argv[1], "--ranks") != 0) || world == 0;
  }
  if (wrong) {
    std::fprintf(stderr, "usage: context_parallel [--ranks N | --simulate N], N from 1 to 64\n");
    return 2;
  }
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::printf("skipped: there is no CUDA device\n");
    return 77;
  }
  std::string reasons;  // why no backend takes a device's tensors
  bool served = false;
  for (const msa::BackendInfo& backend : msa::backends()) {
    if (backend.name == "cpu") continue;
    served = served || backend.reasons.empty();
    for (const std::string& reason : backend.reasons)
      reasons += "\n  " + backend.name + ": " + reason;
  }
  if (!served) {
    std::printf("skipped: no backend of msa takes tensors of a GPU%s\n", reasons.c_str());
    return 77;
  }
#ifndef EXAMPLE_NCCL
  if (!simulate) {
    std::printf("skipped: built without NCCL; --simulate N needs none\n");
    return 77;
  }
#endif
  if (!simulate && world > gpus) {
    std::printf("skipped: %d ranks, %d GPUs; --simulate N needs one\n", world, gpus);
    return 77;
  }
  try {
    return run(world == 0 ? gpus : world, simulate);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
