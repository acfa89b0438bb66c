// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>
#include <limits>
#include <string>

namespace msa::python {
namespace {

std::optional<DType> dtype_of(DLDataType type) {
  if (type.lanes != 1) return std::nullopt;
  if (type.code == kDLFloat && type.bits == 32) return DType::f32;
  if (type.code == kDLFloat && type.bits == 16) return DType::f16;
  if (type.code == kDLBfloat && type.bits == 16) return DType::bf16;
  if (type.code == kDLFloat8_e4m3fn) return DType::e4m3;
  if (type.code == kDLFloat8_e5m2) return DType::e5m2;
  if (type.code == kDLInt && type.bits == 32) return DType::i32;
  if (type.code == kDLInt && type.bits == 64) return DType::i64;
  if (type.code == kDLUInt && type.bits == 8) return DType::u8;
  return std::nullopt;
}

/// Of a type that the library does not have: every operator refuses it, and its name is kept.
DType foreign(DLDataType type) {
  const int lanes = std::min<int>(type.lanes, 255);
  return static_cast<DType>(-1 - (int{type.code} << 16 | int{type.bits} << 8 | lanes));
}

bool is_foreign(DType type) { return static_cast<std::int32_t>(type) < 0; }

/// "float64", "uint16", "float16x4", …: as array libraries call what no operator takes.
std::string foreign_name(DType type) {
  const int packed = -1 - static_cast<std::int32_t>(type);
  const int code = packed >> 16, bits = packed >> 8 & 255, lanes = packed & 255;
  const std::string vector = lanes == 1 ? "" : cat("x", lanes);
  const char* kind = nullptr;
  if (code == kDLFloat) kind = "float";
  if (code == kDLBfloat) kind = "bfloat";
  if (code == kDLInt) kind = "int";
  if (code == kDLUInt) kind = "uint";
  if (code == kDLComplex) kind = "complex";
  if (code == kDLBool) return "bool" + vector;
  if (kind == nullptr) return cat("DLPack code ", code, " of ", bits, " bits", vector);
  return cat(kind, bits, vector);
}

std::optional<DeviceType> device_of(DLDeviceType type) {
  if (type == kDLCPU) return DeviceType::cpu;
  if (type == kDLCUDA || type == kDLCUDAManaged) return DeviceType::cuda;
  if (type == kDLCUDAHost) return DeviceType::cuda_host;
  return std::nullopt;
}

/// "'text'". What Python's side says in place of an argument that tvm-ffi does not take, "<list>",
/// is no text that a caller gave.
std::string quoted(std::string_view text) {
  constexpr std::size_t most = 200;
  if (text.size() > most) return cat("'", text.substr(0, most), "…'");
  const bool said = text.size() > 1 && text.front() == '<' && text.back() == '>';
  return said ? std::string(text) : cat("'", text, "'");
}

std::optional<std::string_view> text_in(const TVMFFIAny& any) {
  if (any.type_index == kTVMFFISmallStr) return std::string_view(any.v_bytes, any.small_str_len);
  if (any.type_index == kTVMFFIRawStr) return std::string_view(any.v_c_str);
  if (any.type_index == kTVMFFIStr) {
    const TVMFFIByteArray* bytes = TVMFFIBytesGetByteArrayPtr(any.v_obj);
    return std::string_view(bytes->data, bytes->size);
  }
  return std::nullopt;
}

/// The value of an argument, for a message.
std::string shown(const TVMFFIAny& any) {
  if (const std::optional<std::string_view> text = text_in(any)) return quoted(*text);
  switch (any.type_index) {
    case kTVMFFINone:
      return "None";
    case kTVMFFIInt:
      return cat(any.v_int64);
    case kTVMFFIBool:
      return any.v_int64 != 0 ? "True" : "False";
    case kTVMFFIFloat: {
      const std::string text = cat(any.v_float64);
      const bool like_an_integer = text.find_first_not_of("-0123456789") == std::string::npos;
      return like_an_integer ? text + ".0" : text;
    }
    case kTVMFFITensor:
    case kTVMFFIDLTensorPtr:
      return "<tensor>";
    default:
      return "<object of another kind>";
  }
}

const DLTensor* tensor_in(const TVMFFIAny& any) {
  if (any.type_index == kTVMFFITensor) return TVMFFITensorGetDLTensorPtr(any.v_obj);
  if (any.type_index == kTVMFFIDLTensorPtr) return static_cast<const DLTensor*>(any.v_ptr);
  return nullptr;
}

}  // namespace

std::optional<DLDataType> dl_type(std::string_view name) {
  const std::optional<DType> dtype = parse_dtype(name);
  if (!dtype) return std::nullopt;
  switch (*dtype) {
    case DType::f32:
      return DLDataType{kDLFloat, 32, 1};
    case DType::bf16:
      return DLDataType{kDLBfloat, 16, 1};
    case DType::f16:
      return DLDataType{kDLFloat, 16, 1};
    case DType::e4m3:
      return DLDataType{kDLFloat8_e4m3fn, 8, 1};
    case DType::e5m2:
      return DLDataType{kDLFloat8_e5m2, 8, 1};
    case DType::i32:
      return DLDataType{kDLInt, 32, 1};
    case DType::i64:
      return DLDataType{kDLInt, 64, 1};
    case DType::u8:
      return DLDataType{kDLUInt, 8, 1};
  }
  return std::nullopt;
}

const TVMFFIAny& Arguments::next() {
  static constexpr TVMFFIAny none{};
  return read_++ < count_ ? args_[read_ - 1] : none;
}

void Arguments::done() {
  if (left()) check_.fail("args", cat("are ", count_, "; allowed: ", read_, " at most"));
  check_.raise();
}

std::string Arguments::argument(std::string_view name) const {
  for (const auto& [theirs, ours] : names_) {
    if (!name.starts_with(theirs)) continue;
    const std::string_view rest = name.substr(theirs.size());
    if (rest.empty() || rest.front() == '.' || theirs.ends_with('.')) return cat(ours, rest);
  }
  return std::string(name);
}

std::string Arguments::type(DType type) const {
  return is_foreign(type) ? foreign_name(type) : msa::name(type);
}

std::string_view Arguments::typing() const {
  return "name the fp8 type of bytes by kv_dtype or msa_cpp.view";
}

Tensor Arguments::convert(const DLTensor& given, const char* name) {
  Tensor t;
  if (given.ndim > Tensor::max_rank) {
    check_.fail(name, cat("has rank ", given.ndim, "; allowed: 0 to ", Tensor::max_rank));
    return t;
  }
  const std::optional<DType> dtype = dtype_of(given.dtype);
  const std::optional<DeviceType> device = device_of(given.device.device_type);
  if (!device) {
    check_.fail(name, cat("lies on a device of DLPack type ", int{given.device.device_type},
                          "; allowed: CPU, CUDA"));
  }
  t.data = static_cast<char*>(given.data) + (given.data == nullptr ? 0 : given.byte_offset);
  t.dtype = dtype ? *dtype : foreign(given.dtype);
  t.device.type = device.value_or(DeviceType::cpu);
  t.device.index = t.device.type == DeviceType::cuda ? given.device.device_id : 0;
  t.rank = given.ndim;
  // Frameworks give an array without elements any strides.
  bool any_strides = given.strides == nullptr;
  for (int i = 0; i < given.ndim; ++i) any_strides |= given.shape[i] == 0;
  std::int64_t dense = 1;
  for (int i = given.ndim - 1; i >= 0; --i) {
    t.shape[i] = given.shape[i];
    t.stride[i] = any_strides ? dense : given.strides[i];
    dense *= std::max<std::int64_t>(given.shape[i], 1);
  }
  return t;
}

void Arguments::fail_tensor(const char* name, const TVMFFIAny& given) {
  check_.fail(name,
              cat("is ", shown(given),
                  "; allowed: an array with __dlpack__ (one that may be written where it is an "
                  "output), or a view of one"));
}

Tensor Arguments::tensor(const char* name, const char* member) {
  if (member != nullptr) call_it(member, name);
  const TVMFFIAny& any = next();
  if (any.type_index == kTVMFFINone) return {};
  const DLTensor* given = tensor_in(any);
  if (given != nullptr) return convert(*given, name);
  fail_tensor(name, any);
  return {};
}

TVMFFIObjectHandle Arguments::object(const char* name) {
  const TVMFFIAny& any = next();
  if (any.type_index == kTVMFFITensor) return any.v_obj;
  fail_tensor(name, any);
  return nullptr;
}

KVCache Arguments::kv_cache() {
  const bool pair = read_ + 1 < count_ && args_[read_ + 1].type_index != kTVMFFINone;
  const Tensor first = tensor(pair ? "k_cache" : "kv_cache");
  const Tensor second = tensor("v_cache");
  const std::optional<std::string_view> text_of_type = text("kv_dtype");
  KVCache cache = second.given() ? KVCache(first, second) : KVCache(first);
  if (!text_of_type || *text_of_type == "auto") return cache;
  const std::optional<DType> dtype = parse_dtype(*text_of_type);
  if (!dtype) {
    check_.fail("kv_dtype",
                cat("is ", quoted(*text_of_type),
                    "; allowed: None, 'auto', or what its type is called: ", type_names));
    return cache;
  }
  for (Tensor* view : {&cache.packed, &cache.k, &cache.v}) {
    if (!view->given() || view->dtype == *dtype || is_foreign(view->dtype)) continue;
    if (view->dtype != DType::u8 || size_of(*dtype) != 1) {
      check_.fail("kv_dtype",
                  cat("is ", quoted(*text_of_type), ", but the cache has dtype ", name(view->dtype),
                      "; allowed: the name of its type, and an fp8 type for raw bytes"));
      break;
    }
    *view = view->as(*dtype);
  }
  return cache;
}

Tensor Arguments::index_tensor(const char* name) {
  const Tensor t = tensor(name);
  return t.dtype == DType::u8 ? t.as(DType::e4m3) : t;
}

Scale Arguments::scale(const char* name) {
  const TVMFFIAny& number = next();
  const Tensor instead = tensor(name);
  if (instead.given()) return Scale(instead);
  if (number.type_index == kTVMFFINone) return {};
  if (number.type_index == kTVMFFIFloat) return static_cast<float>(number.v_float64);
  if (number.type_index == kTVMFFIInt) return static_cast<float>(number.v_int64);
  const DLTensor* given = tensor_in(number);
  if (given != nullptr) return Scale(convert(*given, name));
  check_.fail(name, cat("is ", shown(number), "; allowed: a number, or a tensor of one f32"));
  return {};
}

std::int64_t Arguments::integer(const char* name, std::int64_t otherwise) {
  const TVMFFIAny& any = next();
  if (any.type_index == kTVMFFIInt || any.type_index == kTVMFFIBool) return any.v_int64;
  if (any.type_index != kTVMFFINone) {
    check_.fail(name, cat("is ", shown(any), "; allowed: a whole number of 64 bits"));
  }
  return otherwise;
}

int Arguments::small_integer(const char* name, int otherwise) {
  const std::int64_t value = integer(name, otherwise);
  constexpr std::int64_t low = std::numeric_limits<int>::min(),
                         high = std::numeric_limits<int>::max();
  return check_.range(name, value, low, high) ? static_cast<int>(value) : otherwise;
}

double Arguments::number(const char* name, double otherwise) {
  const TVMFFIAny& any = next();
  if (any.type_index == kTVMFFIFloat) return any.v_float64;
  if (any.type_index == kTVMFFIInt) return static_cast<double>(any.v_int64);
  if (any.type_index != kTVMFFINone)
    check_.fail(name, cat("is ", shown(any), "; allowed: a number"));
  return otherwise;
}

bool Arguments::flag(const char* name, bool otherwise) {
  const TVMFFIAny& any = next();
  if (any.type_index == kTVMFFINone) return otherwise;
  const bool is_flag = any.type_index == kTVMFFIBool || any.type_index == kTVMFFIInt;
  if (is_flag && (any.v_int64 == 0 || any.v_int64 == 1)) return any.v_int64 == 1;
  check_.fail(name, cat("is ", shown(any), "; allowed: True or False"));
  return otherwise;
}

std::optional<std::string_view> Arguments::text(const char* name) {
  const TVMFFIAny& any = next();
  const std::optional<std::string_view> text = text_in(any);
  if (!text && any.type_index != kTVMFFINone) {
    check_.fail(name, cat("is ", shown(any), "; allowed: a text, or None"));
  }
  return text;
}

BatchMetadata Arguments::batch() {
  BatchMetadata batch;
  batch.seq_lens = tensor("seq_lens");
  batch.block_table = tensor("block_table");
  batch.cu_seqlens_q = tensor("cu_seqlens_q");
  batch.context_lens = tensor("context_lens");
  batch.num_decodes = integer("num_decodes");
  batch.num_prefills = integer("num_prefills");
  batch.decode_query_len = integer("decode_query_len");
  batch.num_actual_tokens = integer("num_actual_tokens");
  batch.max_query_len = integer("max_query_len");
  batch.max_seq_len = integer("max_seq_len");
  return batch;
}

SelectRule Arguments::rule() {
  call_it("rule.", "");
  SelectRule rule;
  rule.init_blocks = integer("init_blocks", rule.init_blocks);
  rule.local_blocks = integer("local_blocks", rule.local_blocks);
  rule.reduce_heads = flag("reduce_heads", rule.reduce_heads);
  return rule;
}

std::optional<Workspace> Arguments::workspace() {
  const Tensor memory = tensor("workspace");
  if (!memory.given()) return std::nullopt;
  const std::optional<std::int64_t> bytes = span_bytes(memory);
  const auto dense = memory.numel() * static_cast<std::int64_t>(size_of(memory.dtype));
  if (memory.numel() > 0 && bytes != dense) {
    check_.fail("workspace", cat("has gaps between its elements; allowed: dense memory (",
                                 describe(memory), ")"));
    return std::nullopt;
  }
  return Workspace{memory.data, static_cast<std::size_t>(dense)};
}

std::size_t Arguments::workspace_cap() {
  const std::int64_t cap =
      integer("workspace_cap", static_cast<std::int64_t>(default_workspace_cap));
  if (cap < 0) check_.fail("workspace_cap", cat("is ", cap, "; allowed: 0 or more bytes"));
  return static_cast<std::size_t>(cap);
}

Stream Arguments::stream(Device device) {
  const TVMFFIAny& any = next();
  Stream stream;
  if (any.type_index == kTVMFFINone) {
    if (device.type != DeviceType::cpu) {
      stream.handle = TVMFFIEnvGetStream(kDLCUDA, device.index);
    }
  } else if (any.type_index == kTVMFFIInt) {
    stream.handle = reinterpret_cast<void*>(any.v_int64);
  } else if (any.type_index == kTVMFFIOpaquePtr) {
    stream.handle = any.v_ptr;
  } else {
    check_.fail("stream", cat("is ", shown(any),
                              "; allowed: a cudaStream_t as a number, or a stream "
                              "object"));
  }
  return stream;
}

}  // namespace msa::python
