// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "api/host_reader.h"

namespace msa {

const Backend& HostReader::backend() {
  if (chosen_ == nullptr) chosen_ = &choose_();
  return *chosen_;
}

bool HostReader::reads(Device device) {
  return device.type != DeviceType::cuda || !backend().capturing(op_, device, stream_);
}

ConstTensor HostReader::read(const ConstTensor& tensor, std::int64_t rows) {
  if (tensor.device.type != DeviceType::cuda || !tensor.given() || rows == 0) return tensor;
  ConstTensor copy = tensor.narrow(0, 0, rows);
  if (copy.numel() == 0) return tensor;
  // One piece, gaps between strides included: the copy keeps the strides.
  std::int64_t last = 0;
  for (int i = 0; i < copy.rank; ++i) last += (copy.shape[i] - 1) * copy.stride[i];
  std::vector<std::byte>& memory =
      copies_.emplace_back(static_cast<std::size_t>(last + 1) * size_of(copy.dtype));
  backend().download(op_, copy.device, stream_, memory.data(), copy.data, memory.size());
  copy.data = memory.data();
  copy.device = {};
  return copy;
}

BatchMetadata HostReader::read(BatchMetadata batch) {
  const std::int64_t requests = batch.num_requests();
  batch.seq_lens = read(batch.seq_lens, requests);
  batch.block_table = read(batch.block_table, requests);
  if (batch.num_prefills > 0) {
    batch.cu_seqlens_q = read(batch.cu_seqlens_q, batch.num_prefills + 1);
    batch.context_lens = read(batch.context_lens, batch.num_prefills);
  }
  return batch;
}

}  // namespace msa
