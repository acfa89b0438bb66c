// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "calls.h"
#include "error_of.h"
#include "scoped_env.h"

namespace msa {
namespace {

using ::testing::AllOf;
using testing::Argument;
using testing::Call;
using ::testing::HasSubstr;

constexpr std::int64_t max_int64 = std::numeric_limits<std::int64_t>::max();

/// Runs a broken call; fails unless it is refused with a text that has all of `parts`, every line
/// starts with the operator's name (or that of one of its parts), and no byte of the call's memory
/// changed.
void expect_refused(const Call& call, const std::vector<std::string>& parts,
                    ErrorCode code = ErrorCode::invalid_argument) {
  const auto before = call.memory->contents();
  try {
    call.run();
    ADD_FAILURE() << call.op << " accepted a call that should name " << parts.front();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& part : parts) EXPECT_THAT(error.what(), HasSubstr(part));
    std::vector<std::string> names = call.parts;
    names.push_back(call.op);
    for (const std::string& line : error.failures()) {
      EXPECT_TRUE(std::any_of(names.begin(), names.end(), [&](const auto& name) {
        return line.starts_with(name + ": ");
      })) << line;
    }
  }
  EXPECT_EQ(before, call.memory->contents()) << "outputs must be untouched";
}

/// Every way to break one tensor, with a name and a word that the message must hold.
struct Fault {
  std::string name;
  std::string text;
  std::function<bool(const Argument&)> break_it;  // false: does not apply
};

template <class Change>
std::function<bool(const Argument&)> always(Change change) {
  return [change](const Argument& argument) {
    argument.change(change);
    return true;
  };
}

std::vector<Fault> tensor_faults() {
  return {
      {"missing", "is missing",
       [](const Argument& a) {
         if (!a.required) return false;
         a.change([](auto& t) { t = {}; });
         return true;
       }},
      {"type", "has dtype", always([](auto& t) {
         // A type that no argument of this kind may have.
         t.dtype = size_of(t.dtype) == 2                            ? DType::i32
                   : t.dtype == DType::i64 || t.dtype == DType::i32 ? DType::f32
                   : t.dtype == DType::f32                          ? DType::i32
                                                                    : DType::i64;
       })},
      {"rank", "dimensions; expected", always([](auto& t) {
         t.shape[t.rank] = 1;
         t.stride[t.rank] = 1;
         ++t.rank;
       })},
      {"negative extent", "in dimension 0; expected", always([](auto& t) { t.shape[0] = -1; })},
      {"negative stride", "has the negative stride -1", always([](auto& t) { t.stride[0] = -1; })},
      {"last stride", "has last stride 2; allowed: 1",
       [](const Argument& a) {
         if (!a.dense_last) return false;
         bool applies = false;
         a.change([&](auto& t) {
           applies = t.shape[t.rank - 1] > 1;
           t.stride[t.rank - 1] = 2;
         });
         return applies;
       }},
      {"null", "has a null pointer", always([](auto& t) { t.data = nullptr; })},
      {"alignment", "is not aligned to its element size",
       [](const Argument& a) {
         bool applies = false;
         a.change([&](auto& t) {
           applies = size_of(t.dtype) > 1;
           const char* p = static_cast<const char*>(t.data) + 1;
           t.data = const_cast<char*>(p);
         });
         return applies;
       }},
      {"device", "is on device",
       [](const Argument& a) {
         a.change([](auto& t) { t.device = {DeviceType::cuda, 0}; });
         return true;
       }},
      {"device type", "has device type 77; allowed: cpu, cuda, cuda_host",
       always([](auto& t) { t.device.type = static_cast<DeviceType>(77); })},
      {"address space", "spans more than 2^63 bytes",
       [](const Argument& a) {
         a.change([](auto& t) {
           t.shape[0] = std::int64_t{1} << 40;
           t.stride[0] = std::int64_t{1} << 40;
         });
         return true;
       }},
      {"extents", "has extents whose product is more than 2^63 bytes", always([](auto& t) {
         // One element's memory for all of them.
         t.shape[0] = max_int64;
         t.stride[0] = 0;
       })},
  };
}

/// Ranks that count dimensions which a view has no room for: none may be looked at.
constexpr int impossible_ranks[] = {std::numeric_limits<int>::min(), -1, 6, 99, 1 << 30,
                                    std::numeric_limits<int>::max()};

std::vector<Fault> faults() {
  std::vector<Fault> faults = tensor_faults();
  for (const int rank : impossible_ranks) {
    faults.push_back({"rank " + std::to_string(rank),
                      "has rank " + std::to_string(rank) + "; allowed: ",
                      always([rank](auto& t) { t.rank = rank; })});
  }
  return faults;
}

TEST(Validation, ValidCallsAreAccepted) {
  for (const auto& make : testing::call_makers()) {
    const Call call = make();
    EXPECT_NO_THROW(call.run()) << call.op;
  }
}

TEST(Validation, EveryFaultOfEveryTensorIsRefusedByNameAndNothingIsWritten) {
  int broken = 0;
  for (const auto& make : testing::call_makers()) {
    const std::size_t count = make().arguments.size();
    for (std::size_t i = 0; i < count; ++i) {
      for (const Fault& fault : faults()) {
        Call call = make();
        const Argument& argument = call.arguments[i];
        SCOPED_TRACE(call.op + " " + argument.name + ": " + fault.name);
        if (!fault.break_it(argument)) continue;
        // The first tensor of a call sets the device that the others are compared with, and page
        // moves may cross devices: other arguments are named then.
        const bool names_another = fault.name == "device" && (i == 0 || call.op == "copy_pages");
        if (names_another) {
          expect_refused(call, {"is on device"});
        } else {
          expect_refused(call, {"argument '" + argument.name + "' ", fault.text});
        }
        ++broken;
      }
    }
  }
  EXPECT_GT(broken, 1400);
}

/// Ways to break the tensor of a scale; messages name the scale.
std::vector<Fault> scale_faults() {
  struct Change {
    const char* name;
    const char* text;
    std::function<void(ConstTensor&)> change;
  };
  const Change changes[] = {
      {"null", "has a null pointer", [](auto& t) { t.data = nullptr; }},
      {"alignment", "is not aligned to its element size of 4 bytes",
       [](auto& t) { t.data = static_cast<const char*>(t.data) + 2; }},
      {"type", "is a tensor of dtype bf16", [](auto& t) { t.dtype = DType::bf16; }},
      {"two factors", "scales per head or slot are not supported", [](auto& t) { t.shape[0] = 2; }},
      {"no factor", "scales per head or slot are not supported", [](auto& t) { t.shape[0] = 0; }},
      {"device", "is on device cuda:0",
       [](auto& t) {
         t.device = {DeviceType::cuda, 0};
       }},
      {"device type", "has device type -1; allowed: cpu, cuda, cuda_host",
       [](auto& t) { t.device.type = static_cast<DeviceType>(-1); }},
  };
  std::vector<Fault> faults;
  for (const Change& c : changes) {
    faults.push_back({c.name, c.text, [change = c.change](const Argument& argument) {
                        change(*std::get<ConstTensor*>(argument.view));
                        return true;
                      }});
  }
  for (const int rank : impossible_ranks) {
    faults.push_back({"rank " + std::to_string(rank),
                      "has rank " + std::to_string(rank) + "; allowed: 0 to 5",
                      always([rank](auto& t) { t.rank = rank; })});
  }
  return faults;
}

TEST(Validation, EveryFaultOfEveryScaleIsRefusedByNameAndNothingIsWritten) {
  int broken = 0;
  for (const auto& make : testing::call_makers()) {
    for (std::size_t i = 0; i < make().scales.size(); ++i) {
      const auto with_tensor = [&] {
        Call call = make();
        const Tensor one = call.memory->dense(DType::f32, {2}).narrow(0, 0, 1);
        *one.ptr<float>() = 1;
        *call.scales[i].scale = Scale(ConstTensor(one));
        return call;
      };
      const Call whole = with_tensor();
      EXPECT_NO_THROW(whole.run()) << whole.op;
      for (const Fault& fault : scale_faults()) {
        const Call call = with_tensor();
        const testing::ScaleArgument& scale = call.scales[i];
        SCOPED_TRACE(call.op + " " + scale.name + ": " + fault.name);
        fault.break_it({scale.name, &scale.scale->tensor});
        expect_refused(call, {"argument '" + scale.name + "' ", fault.text});
        ++broken;
      }
    }
  }
  EXPECT_GT(broken, 100);
}

// What a call does not read may be garbage: here no request needs the batch's arrays.
TEST(Validation, TheRankOfWhatIsNotReadIsNotTrusted) {
  for (const int rank : impossible_ranks) {
    testing::AttendCall call;
    BatchMetadata& batch = call.args.batch;
    batch.num_actual_tokens = batch.num_decodes = batch.num_prefills = 0;
    for (ConstTensor* t :
         {&batch.seq_lens, &batch.block_table, &batch.cu_seqlens_q, &batch.context_lens}) {
      t->rank = rank;
    }
    EXPECT_NO_THROW(attend(call.args)) << rank;
  }
}

TEST(Validation, EveryExtentOfEveryTensorIsChecked) {
  for (const auto& make : testing::call_makers()) {
    const std::size_t count = make().arguments.size();
    for (std::size_t i = 0; i < count; ++i) {
      const int rank = make().arguments[i].rank();
      for (int dim = 0; dim < rank; ++dim) {
        Call call = make();
        const Argument& argument = call.arguments[i];
        std::int64_t extent = 0;
        argument.change([&](auto& t) { extent = --t.shape[dim]; });
        if (argument.is_free(dim)) continue;
        SCOPED_TRACE(call.op + " " + argument.name + " dimension " + std::to_string(dim));
        const auto before = call.memory->contents();
        try {
          call.run();
          ADD_FAILURE() << "accepted extent " << extent;
        } catch (const Error& error) {
          const auto other = argument.measures.find(dim);
          const std::string& named =
              other == argument.measures.end() ? argument.name : other->second;
          EXPECT_THAT(error.what(), HasSubstr("argument '" + named + "' "));
        }
        EXPECT_EQ(before, call.memory->contents());
      }
    }
  }
}

TEST(Validation, AllFaultsAreReportedAtOnce) {
  testing::AttendCall call;
  call.args.q.dtype = DType::f32;
  call.args.selection.shape[1] = 3;
  call.args.batch.decode_query_len = 17;
  call.args.kv_shard = {2, 2};
  call.args.softmax_scale = std::numeric_limits<float>::quiet_NaN();
  try {
    attend(call.args);
    FAIL();
  } catch (const Error& error) {
    EXPECT_GE(error.failures().size(), 5U);
    EXPECT_THAT(
        error.what(),
        AllOf(HasSubstr("'q' has dtype f32; allowed: bf16, f16 (shape [4, 4, 128], strides "
                        "[512, 128, 1])"),
              HasSubstr("'selection' has 3 lists a row; allowed: 1 or the cache's 2"),
              HasSubstr("'decode_query_len' is 17; allowed: at least 1 and at most 16 (pass "
                        "the rows of longer requests as prefill)"),
              HasSubstr("'kv_shard.rank' is 2; allowed: at least 0 and at most 1"),
              HasSubstr("'softmax_scale' is nan")));
  }
}

/// Counts that measure a batch's arrays, each wrong: what else is wrong with the arrays is said
/// too.
template <class CallType, class Run>
void expect_faults_beside_wrong_counts(Run run) {
  const std::pair<const char*, std::function<void(BatchMetadata&)>> counts[] = {
      {"'num_decodes' is -1", [](auto& b) { b.num_decodes = -1; }},
      {"'num_prefills' is -1", [](auto& b) { b.num_prefills = -1; }},
      {"'num_actual_tokens' is -1", [](auto& b) { b.num_actual_tokens = -1; }},
      {"'decode_query_len' is 17", [](auto& b) { b.decode_query_len = 17; }}};
  for (const auto& [fault, break_it] : counts) {
    SCOPED_TRACE(fault);
    CallType call;
    BatchMetadata& b = call.args.batch;
    break_it(b);
    b.seq_lens.dtype = DType::i64;
    b.block_table = {};
    b.cu_seqlens_q.rank = 2;
    b.context_lens.data = nullptr;
    const std::string text = error_of([&] { run(call.args); });
    EXPECT_THAT(text, AllOf(HasSubstr(fault), HasSubstr("'seq_lens' has dtype i64; allowed: i32"),
                            HasSubstr("'block_table' is missing; expected [R"),
                            HasSubstr("'cu_seqlens_q' has 2 dimensions; expected [R_p + 1"),
                            HasSubstr("'context_lens' has a null pointer")));
    EXPECT_THAT(text, ::testing::Not(HasSubstr("≥ -")));
  }
}

TEST(Validation, AWrongCountHidesNoOtherFault) {
  expect_faults_beside_wrong_counts<testing::AttendCall>([](const auto& a) { attend(a); });
  expect_faults_beside_wrong_counts<testing::IndexCall>([](const auto& a) { index_blocks(a); });
  expect_faults_beside_wrong_counts<testing::ScoresCall>([](const auto& a) { index_scores(a); });
  testing::AttendCall call;
  call.args.batch.num_actual_tokens = -1;
  call.args.q.shape[2] = 64;
  EXPECT_THAT(error_of([&] { attend(call.args); }),
              HasSubstr("'q' has 64 in dimension 2; expected [T ≥ 0, Hq ≥ 1, 128]"));
  // A count of none needs no arrays, whatever the others are.
  testing::AttendCall decodes;
  decodes.args.batch.num_prefills = 0;
  decodes.args.batch.num_decodes = -1;
  decodes.args.batch.cu_seqlens_q = decodes.args.batch.context_lens = {};
  EXPECT_THAT(error_of([&] { attend(decodes.args); }), ::testing::Not(HasSubstr("'cu_seqlens_q'")));
}

// A product of a length that nobody has with a length of the selection.
TEST(Validation, TheLengthOfDecodeRequestsIsCheckedWithoutAnyOfThem) {
  testing::AttendCall call;
  BatchMetadata& batch = call.args.batch;
  batch.num_decodes = 0;
  for (const std::int64_t m : {std::int64_t{0}, std::int64_t{1}, std::int64_t{16}}) {
    batch.decode_query_len = m;
    EXPECT_NO_THROW(attend(call.args)) << m;
  }
  for (const std::int64_t m : {std::int64_t{-1}, std::int64_t{17}, max_int64}) {
    batch.decode_query_len = m;
    const std::string text =
        "'decode_query_len' is " + std::to_string(m) + "; allowed: at least 0 and at most 16";
    EXPECT_THAT(error_of([&] { attend(call.args); }), HasSubstr(text));
    EXPECT_THAT(error_of([&] { workspace_size(call.args); }), HasSubstr(text));
    testing::IndexCall index;
    index.args.batch.num_decodes = 0;
    index.args.batch.decode_query_len = m;
    EXPECT_THAT(error_of([&] { index_blocks(index.args); }), HasSubstr(text));
  }
}

/// Calls broken in a number: the change and what the text must say.
template <class CallType>
struct NumberFault {
  std::function<void(CallType&)> change;
  std::string text;
};

template <class CallType, class Run>
void expect_number_faults(const std::vector<NumberFault<CallType>>& faults, const char* op, Run run,
                          const std::vector<std::string>& parts = {}) {
  for (const auto& fault : faults) {
    CallType call;
    fault.change(call);
    SCOPED_TRACE(fault.text);
    Call generic{op, {}, [&] { run(call.args); }, call.memory, {}, parts};
    expect_refused(generic, {fault.text});
  }
}

TEST(Validation, AttendNumbers) {
  using Fault = NumberFault<testing::AttendCall>;
  const float inf = std::numeric_limits<float>::infinity();
  expect_number_faults<testing::AttendCall>(
      {
          Fault{[](auto& c) { c.args.batch.num_decodes = -1; }, "'num_decodes' is -1"},
          Fault{[](auto& c) { c.args.batch.num_prefills = -2; }, "'num_prefills' is -2"},
          Fault{[](auto& c) { c.args.batch.num_actual_tokens = -1; }, "'num_actual_tokens' is -1"},
          Fault{[](auto& c) { c.args.batch.num_actual_tokens = std::int64_t{1} << 31; },
                "'num_actual_tokens' is 2147483648"},
          Fault{[](auto& c) { c.args.batch.num_actual_tokens = 0; },
                "'num_actual_tokens' is 0; allowed: at least num_decodes · decode_query_len = 1"},
          Fault{[](auto& c) { c.args.batch.decode_query_len = 0; }, "'decode_query_len' is 0"},
          Fault{[](auto& c) { c.args.batch.max_query_len = -1; }, "'max_query_len' is -1"},
          Fault{[](auto& c) { c.args.batch.max_seq_len = -1; }, "'max_seq_len' is -1"},
          Fault{[](auto& c) { c.args.batch.block_table.stride[0] = 1; },
                "'block_table' has row stride 1; allowed: at least its width 2"},
          Fault{[](auto& c) { c.args.kv_shard.world = 0; }, "'kv_shard.world' is 0"},
          Fault{[](auto& c) { c.args.kv_shard.rank = -1; }, "'kv_shard.rank' is -1"},
          Fault{[inf](auto& c) { c.args.softmax_scale = inf; }, "'softmax_scale' is inf"},
          Fault{[](auto& c) { c.args.k_scale = 0.0f; }, "'k_scale' is 0"},
          Fault{[inf](auto& c) { c.args.v_scale = inf; }, "'v_scale' is inf"},
          Fault{[](auto& c) {
                  c.args.k_scale = Scale(ConstTensor(c.memory->dense(DType::f32, {2, 128})));
                },
                "scales per head or slot are not supported"},
          Fault{[](auto& c) {
                  c.args.v_scale = Scale(ConstTensor(c.memory->dense(DType::bf16, {1})));
                },
                "'v_scale' is a tensor of dtype bf16"},
          Fault{[](auto& c) {
                  c.args.selection = c.memory->dense(DType::i32, {4, 2, 65});
                },
                "'selection.topk' is 65; allowed: at least 1 and at most 64"},
          Fault{[](auto& c) {
                  c.args.selection = c.memory->dense(DType::i32, {4, 2, 0});
                },
                "'selection.topk' is 0"},
          Fault{[](auto& c) {
                  c.args.q = c.memory->dense(DType::bf16, {4, 34, 128});
                  c.args.out = c.memory->dense(DType::bf16, {4, 34, 128});
                },
                "17 for each of the cache's 2; allowed: 1 to 16 (shape [4, 34, 128], strides"},
          Fault{
              [](auto& c) {
                c.args.q = c.memory->dense(DType::bf16, {4, 3, 128});
                c.args.out = c.memory->dense(DType::bf16, {4, 3, 128});
              },
              "'q' has 3 heads; allowed: a multiple of the cache's 2 (shape [4, 3, 128], strides"},
          Fault{[](auto& c) {
                  c.args.kv_cache = c.memory->dense(DType::bf16, {4, 2, 64, 256});
                },
                "'kv_cache' has pages of 64 tokens; allowed: 128"},
          Fault{[](auto& c) {
                  c.args.kv_cache = c.memory->dense(DType::u8, {4, 2, 128, 256});
                },
                "give bytes their fp8 type"},
          Fault{[](auto& c) { c.args.kv_cache.k = c.args.kv_cache.packed; },
                "'kv_cache' is given together with separate K or V views"},
          Fault{[](auto& c) { c.args.out.stride[1] = 64; }, "'out' is written, but its strides"},
          Fault{[](auto& c) { c.args.out.data = const_cast<void*>(c.args.q.data); },
                "'out' shares memory with 'q'"},
          Fault{[](auto& c) { c.args.lse.data = c.args.out.data; },
                "'out' shares memory with 'lse'"},
          Fault{[](auto& c) { c.args.out.data = const_cast<void*>(c.args.kv_cache.packed.data); },
                "'out' shares memory with 'kv_cache'"},
          Fault{[](auto& c) {
                  c.args.workspace = {c.args.lse.data, 16};
                },
                "'lse' shares memory with 'workspace'"},
      },
      "attend", [](const AttendArgs& args) { attend(args); });
}

TEST(Validation, IndexNumbers) {
  using Fault = NumberFault<testing::IndexCall>;
  expect_number_faults<testing::IndexCall>(
      {
          Fault{[](auto& c) { c.args.batch.num_decodes = -1; }, "'num_decodes' is -1"},
          Fault{[](auto& c) { c.args.batch.num_prefills = -1; }, "'num_prefills' is -1"},
          Fault{[](auto& c) { c.args.batch.num_actual_tokens = -1; }, "'num_actual_tokens' is -1"},
          Fault{[](auto& c) { c.args.batch.num_actual_tokens = std::int64_t{1} << 31; },
                "'num_actual_tokens' is 2147483648"},
          Fault{[](auto& c) { c.args.batch.num_actual_tokens = 0; },
                "'num_actual_tokens' is 0; allowed: at least num_decodes · decode_query_len = 1"},
          Fault{[](auto& c) { c.args.batch.decode_query_len = 0; }, "'decode_query_len' is 0"},
          Fault{[](auto& c) { c.args.batch.decode_query_len = 17; },
                "'decode_query_len' is 17; allowed: at least 1 and at most 16"},
          Fault{[](auto& c) { c.args.batch.max_query_len = -1; }, "'max_query_len' is -1"},
          Fault{[](auto& c) { c.args.batch.max_seq_len = -1; }, "'max_seq_len' is -1"},
          Fault{[](auto& c) { c.args.rule.init_blocks = -1; }, "'rule.init_blocks' is -1"},
          Fault{[](auto& c) { c.args.rule.local_blocks = -1; }, "'rule.local_blocks' is -1"},
          Fault{[](auto& c) { c.args.rule.reduce_heads = true; },
                "'selection' has 2 lists a row; allowed: 1 with reduce_heads"},
          Fault{[](auto& c) {
                  c.args.selection = c.memory->dense(DType::i32, {4, 2, 65});
                },
                "'selection.topk' is 65"},
          Fault{[](auto& c) {
                  c.args.index_q = c.memory->dense(DType::bf16, {4, 17, 128});
                },
                "'index_q.Hi' is 17"},
          Fault{[](auto& c) {
                  c.args.index_cache = c.memory->dense(DType::bf16, {4, 16, 128});
                },
                "'index_cache' has pages of 16 tokens; allowed: 128"},
          Fault{[](auto& c) {
                  c.args.selection = c.args.selection.narrow(2, 0, 1);
                  c.args.selection.stride[1] = 0;
                },
                "'selection' is written, but its strides"},
      },
      "index_blocks", [](const IndexArgs& args) { index_blocks(args); });
}

TEST(Validation, WriteNumbers) {
  using Fault = NumberFault<testing::WriteCall>;
  expect_number_faults<testing::WriteCall>(
      {
          Fault{[](auto& c) { c.args.num_tokens = -1; }, "'num_tokens' is -1"},
          Fault{[](auto& c) { c.args.num_tokens = std::int64_t{1} << 31; },
                "'num_tokens' is 2147483648"},
          Fault{[](auto& c) { c.args.num_tokens = 4; },
                "'positions' has 3 in dimension 0; expected [T ≥ 4]"},
          Fault{[](auto& c) { c.args.norm_eps = -1.0f; }, "'norm_eps' is -1"},
          Fault{[](auto& c) { c.args.k_scale = -1.0f; }, "'k_scale' is -1"},
          Fault{[](auto& c) { c.args.v_scale = 0.0f; }, "'v_scale' is 0"},
          Fault{[](auto& c) {
                  c.args.v_scale = Scale(ConstTensor(c.memory->dense(DType::f32, {2, 128})));
                },
                "'v_scale' is a tensor of dtype f32 with shape [2, 128]"},
          Fault{[](auto& c) { c.args.q_out.shape[1] = std::int64_t{1} << 62; },
                "heads; allowed: as many as make fewer than 2^63 columns of qkv"},
          Fault{[](auto& c) { c.args.qkv.shape[1] -= 128; },
                "'qkv' has 1280 in dimension 1; expected [T ≥ 3, (Hq + 2·Hkv + (Hi > 0 ? Hi + 1 : "
                "0))·128 = 1408]"},
          Fault{[](auto& c) { c.args.q_out.dtype = DType::f16; },
                "'q_out' has dtype f16; allowed: bf16"},
          Fault{[](auto& c) { c.args.q_out.data = const_cast<void*>(c.args.qkv.data); },
                "'q_out' shares memory with 'qkv'"},
          Fault{[](auto& c) { c.args.index_cache.data = c.args.kv_cache.packed.data; },
                "'kv_cache' shares memory with 'index_cache'"},
          // The stride of the only page, which could be any number, is that of q_out's tokens.
          Fault{[](auto& c) {
                  c.args.index_cache = c.memory->dense(DType::bf16, {1, 128, 128});
                  c.args.index_cache.stride[0] = c.args.q_out.stride[0];
                  c.args.q_out.data = c.args.index_cache.template ptr<std::uint16_t>() + 20 * 128;
                },
                "'q_out' shares memory with 'index_cache'"},
          Fault{[](auto& c) {
                  c.args.v_scale =
                      Scale(ConstTensor::dense(c.args.kv_cache.packed.data, DType::f32, {1}));
                },
                "'kv_cache' shares memory with 'v_scale'"},
      },
      "write_cache", [](const WriteCacheArgs& args) { write_cache(args); });
}

TEST(Validation, LayerStepNumbers) {
  using Fault = NumberFault<testing::LayerStepCall>;
  expect_number_faults<testing::LayerStepCall>(
      {
          Fault{[](auto& c) { c.args.write.num_tokens = -1; },
                "write_cache: argument 'num_tokens' is -1"},
          Fault{[](auto& c) { c.args.write.norm_eps = -1.0f; },
                "write_cache: argument 'norm_eps' is -1"},
          // The caches' scales are write's, for attend too.
          Fault{[](auto& c) { c.args.write.k_scale = 0.0f; },
                "write_cache: argument 'k_scale' is 0"},
          Fault{[](auto& c) { c.args.write.v_scale = 0.0f; }, "attend: argument 'v_scale' is 0"},
          Fault{[](auto& c) { c.args.index.batch.num_decodes = -1; },
                "index_blocks: argument 'num_decodes' is -1"},
          Fault{[](auto& c) { c.args.index.batch.num_actual_tokens = 3; },
                "layer_step: argument 'index.batch.num_actual_tokens' is 3; expected "
                "write.num_tokens = 4"},
          Fault{[](auto& c) { c.args.index.rule.local_blocks = -1; },
                "index_blocks: argument 'rule.local_blocks' is -1"},
          Fault{[](auto& c) { c.args.index.rule.reduce_heads = true; },
                "'selection' has 2 lists a row; allowed: 1 with reduce_heads"},
          Fault{[](auto& c) { c.args.attend.batch.max_seq_len = -1; },
                "attend: argument 'max_seq_len' is -1"},
          Fault{[](auto& c) { c.args.attend.batch.num_actual_tokens = 5; },
                "layer_step: argument 'attend.batch.num_actual_tokens' is 5; expected "
                "write.num_tokens = 4"},
          Fault{[](auto& c) { c.args.attend.kv_shard.world = 0; },
                "attend: argument 'kv_shard.world' is 0"},
          Fault{
              [](auto& c) { c.args.attend.softmax_scale = std::numeric_limits<float>::infinity(); },
              "attend: argument 'softmax_scale' is inf"},
          Fault{[](auto& c) { c.args.attend.out.data = c.args.write.q_out.data; },
                "attend: argument 'out' shares memory with 'q'"},
      },
      "layer_step", [](const LayerStepArgs& args) { layer_step(args); }, testing::layer_step_parts);
}

/// A tensor of a step, which a test may put elsewhere.
struct StepTensor {
  const char* name;
  bool written;
  std::function<void(LayerStepArgs&, void*)> put;
};

std::vector<StepTensor> step_tensors(testing::Memory& memory) {
  const auto split = [&memory](LayerStepArgs& a) {
    a.write.kv_cache = KVCache(memory.dense(DType::bf16, {4, 2, 128, 128}),
                               memory.dense(DType::bf16, {4, 2, 128, 128}));
  };
  const auto factor = [](void* p) { return Scale(ConstTensor::dense(p, DType::f32, {1})); };
  return {
      {"write.q_out", true, [](auto& a, void* p) { a.write.q_out.data = p; }},
      {"write.kv_cache", true, [](auto& a, void* p) { a.write.kv_cache.packed.data = p; }},
      {"write.k_cache", true,
       [split](auto& a, void* p) {
         split(a);
         a.write.kv_cache.k.data = p;
       }},
      {"write.v_cache", true,
       [split](auto& a, void* p) {
         split(a);
         a.write.kv_cache.v.data = p;
       }},
      {"write.index_q_out", true, [](auto& a, void* p) { a.write.index_q_out.data = p; }},
      {"write.index_cache", true, [](auto& a, void* p) { a.write.index_cache.data = p; }},
      {"index.selection", true, [](auto& a, void* p) { a.index.selection.data = p; }},
      {"attend.out", true, [](auto& a, void* p) { a.attend.out.data = p; }},
      {"attend.lse", true, [](auto& a, void* p) { a.attend.lse.data = p; }},
      {"index.workspace", true,
       [](auto& a, void* p) {
         a.index.workspace = {p, 1 << 20};
       }},
      {"write.qkv", false, [](auto& a, void* p) { a.write.qkv.data = p; }},
      {"write.positions", false, [](auto& a, void* p) { a.write.positions.data = p; }},
      {"write.cos_sin", false, [](auto& a, void* p) { a.write.cos_sin.data = p; }},
      {"write.q_norm", false, [](auto& a, void* p) { a.write.q_norm.data = p; }},
      {"write.k_norm", false, [](auto& a, void* p) { a.write.k_norm.data = p; }},
      {"write.index_q_norm", false, [](auto& a, void* p) { a.write.index_q_norm.data = p; }},
      {"write.index_k_norm", false, [](auto& a, void* p) { a.write.index_k_norm.data = p; }},
      {"write.slot_mapping", false, [](auto& a, void* p) { a.write.slot_mapping.data = p; }},
      {"write.index_slot_mapping", false,
       [](auto& a, void* p) { a.write.index_slot_mapping.data = p; }},
      {"write.k_scale", false, [factor](auto& a, void* p) { a.write.k_scale = factor(p); }},
      {"write.v_scale", false, [factor](auto& a, void* p) { a.write.v_scale = factor(p); }},
      {"index.batch.seq_lens", false, [](auto& a, void* p) { a.index.batch.seq_lens.data = p; }},
      {"index.batch.block_table", false,
       [](auto& a, void* p) { a.index.batch.block_table.data = p; }},
      {"index.batch.cu_seqlens_q", false,
       [](auto& a, void* p) { a.index.batch.cu_seqlens_q.data = p; }},
      {"index.batch.context_lens", false,
       [](auto& a, void* p) { a.index.batch.context_lens.data = p; }},
      {"attend.batch.seq_lens", false, [](auto& a, void* p) { a.attend.batch.seq_lens.data = p; }},
      {"attend.batch.block_table", false,
       [](auto& a, void* p) { a.attend.batch.block_table.data = p; }},
      {"attend.batch.cu_seqlens_q", false,
       [](auto& a, void* p) { a.attend.batch.cu_seqlens_q.data = p; }},
      {"attend.batch.context_lens", false,
       [](auto& a, void* p) { a.attend.batch.context_lens.data = p; }}};
}

// Three calls, each right by itself, in which one writes over what another reads.
TEST(Validation, NothingThatAStepWritesSharesMemoryWithAnotherOfItsTensors) {
  testing::LayerStepCall counted;
  const std::size_t count = step_tensors(*counted.memory).size();
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = i + 1; j < count; ++j) {
      testing::LayerStepCall call;
      const std::vector<StepTensor> tensors = step_tensors(*call.memory);
      const StepTensor &first = tensors[i], &second = tensors[j];
      // One cache, packed or not.
      const bool both_caches = first.name == std::string("write.kv_cache") &&
                               std::string(second.name).ends_with("_cache") &&
                               !std::string(second.name).starts_with("write.index");
      if (!first.written || both_caches) continue;
      SCOPED_TRACE(std::string(first.name) + " over " + second.name);
      const Tensor shared = call.memory->dense(DType::u8, {1 << 20});
      second.put(call.args, shared.data);
      if (first.name == std::string("write.k_cache") &&
          second.name == std::string("write.v_cache")) {
        call.args.write.kv_cache.k.data = shared.data;
      } else {
        first.put(call.args, shared.data);
      }
      expect_refused({"layer_step",
                      {},
                      [&] { layer_step(call.args); },
                      call.memory,
                      {},
                      testing::layer_step_parts},
                     {"shares memory with"});
    }
  }
}

TEST(Validation, OverlapsAcrossAStepAreReportedByTheNamesOfItsArguments) {
  testing::LayerStepCall call;
  LayerStepArgs& a = call.args;
  a.index.selection.data = a.write.kv_cache.packed.data;
  a.attend.lse.data = a.write.index_cache.data;
  a.attend.out.data = const_cast<void*>(a.write.qkv.data);
  a.write.q_out.data = const_cast<void*>(a.index.batch.block_table.data);
  a.write.norm_eps = -1;
  expect_refused(
      {"layer_step", {}, [&] { layer_step(a); }, call.memory, {}, testing::layer_step_parts},
      {"layer_step: argument 'write.kv_cache' shares memory with 'index.selection' (",
       "layer_step: argument 'write.index_cache' shares memory with 'attend.lse' (",
       "layer_step: argument 'attend.out' shares memory with 'write.qkv' (",
       "layer_step: argument 'write.q_out' shares memory with 'index.batch.block_table' (",
       "write_cache: argument 'norm_eps' is -1"});
}

/// A call whose workspace lies over one of its inputs, whatever the workspace is needed for.
template <class CallType, class Run>
void expect_workspace_apart(const char* op, Run run,
                            const std::vector<std::pair<const char*, const void*>>& inputs,
                            CallType& call) {
  for (const auto& [name, data] : inputs) {
    SCOPED_TRACE(std::string(op) + " " + name);
    call.args.workspace = {const_cast<void*>(data), 64};
    expect_refused({op, {}, [&] { run(call.args); }, call.memory},
                   {std::string("'workspace' shares memory with '") + name + "'"});
  }
}

TEST(Validation, AWorkspaceLiesOverNoInput) {
  testing::AttendCall attend_call;
  AttendArgs& a = attend_call.args;
  a.k_scale = Scale(ConstTensor(attend_call.memory->dense(DType::f32, {1})));
  a.v_scale = Scale(ConstTensor(attend_call.memory->dense(DType::f32, {1})));
  const auto batch = [](const BatchMetadata& b,
                        std::vector<std::pair<const char*, const void*>> all) {
    all.insert(all.end(), {{"seq_lens", b.seq_lens.data},
                           {"block_table", b.block_table.data},
                           {"cu_seqlens_q", b.cu_seqlens_q.data},
                           {"context_lens", b.context_lens.data}});
    return all;
  };
  expect_workspace_apart(
      "attend", [](const auto& args) { attend(args); },
      batch(a.batch, {{"q", a.q.data},
                      {"kv_cache", a.kv_cache.packed.data},
                      {"selection", a.selection.data},
                      {"k_scale", a.k_scale.tensor.data},
                      {"v_scale", a.v_scale.tensor.data}}),
      attend_call);
  testing::IndexCall index_call;
  const IndexArgs& i = index_call.args;
  expect_workspace_apart(
      "index_blocks", [](const auto& args) { index_blocks(args); },
      batch(i.batch, {{"index_q", i.index_q.data}, {"index_cache", i.index_cache.data}}),
      index_call);
  testing::ScoresCall scores_call;
  const IndexScoresArgs& s = scores_call.args;
  expect_workspace_apart(
      "index_scores", [](const auto& args) { index_scores(args); },
      batch(s.batch, {{"index_q", s.index_q.data}, {"index_cache", s.index_cache.data}}),
      scores_call);
  testing::SelectCall select_call;
  const SelectArgs& c = select_call.args;
  expect_workspace_apart(
      "select_blocks", [](const auto& args) { select_blocks(args); },
      {{"scores", c.scores.data}, {"valid_blocks", c.valid_blocks.data}}, select_call);
}

TEST(Validation, InsertNumbers) {
  using Fault = NumberFault<testing::InsertCall>;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  expect_number_faults<testing::InsertCall>(
      {
          Fault{[](auto& c) { c.args.num_tokens = -1; }, "'num_tokens' is -1"},
          Fault{[](auto& c) { c.args.num_tokens = std::int64_t{1} << 31; },
                "'num_tokens' is 2147483648"},
          Fault{[](auto& c) { c.args.num_tokens = 4; },
                "'index_slot_mapping' has 3 in dimension 0; expected [T ≥ 4]"},
          Fault{[](auto& c) { c.args.k_scale = 0.0f; }, "'k_scale' is 0"},
          Fault{[nan](auto& c) { c.args.v_scale = nan; }, "'v_scale' is nan"},
          Fault{[](auto& c) {
                  c.args.k_scale = Scale(ConstTensor(c.memory->dense(DType::f32, {2, 128})));
                },
                "'k_scale' is a tensor of dtype f32 with shape [2, 128]"},
          Fault{[](auto& c) {
                  c.args.v = c.memory->dense(DType::f16, {3, 2, 128});
                },
                "'v' has dtype f16; expected k's, bf16"},
          Fault{[](auto& c) {
                  c.args.kv_cache = KVCache(c.memory->dense(DType::e4m3, {4, 2, 64, 256}));
                },
                "'kv_cache' has pages of 64 tokens; allowed: 128"},
          Fault{[](auto& c) {
                  c.args.index_cache = c.memory->dense(DType::bf16, {4, 32, 128});
                },
                "'index_cache' has pages of 32 tokens; allowed: 128"},
          Fault{[](auto& c) { c.args.kv_cache.packed.data = const_cast<void*>(c.args.k.data); },
                "'kv_cache' shares memory with 'k'"},
          Fault{[](auto& c) { c.args.index_cache.data = c.args.kv_cache.packed.data; },
                "'kv_cache' shares memory with 'index_cache'"},
          Fault{[](auto& c) { c.args = {}; },
                "'kv_cache' and 'index_cache' are both missing; allowed: either part or both"},
      },
      "insert_cache", [](const InsertCacheArgs& args) { insert_cache(args); });
}

TEST(Validation, ScoresNumbers) {
  using Fault = NumberFault<testing::ScoresCall>;
  expect_number_faults<testing::ScoresCall>(
      {
          Fault{[](auto& c) { c.args.batch.num_decodes = -1; }, "'num_decodes' is -1"},
          Fault{[](auto& c) { c.args.batch.num_prefills = -1; }, "'num_prefills' is -1"},
          Fault{[](auto& c) { c.args.batch.decode_query_len = 17; },
                "'decode_query_len' is 17; allowed: at least 1 and at most 16"},
          Fault{[](auto& c) { c.args.batch.num_actual_tokens = 5; },
                "'scores' has 4 in dimension 2; expected [Hi = 2, blocks, T ≥ 5]"},
          Fault{[](auto& c) { c.args.batch.max_seq_len = -1; }, "'max_seq_len' is -1"},
          Fault{[](auto& c) {
                  c.args.index_q = c.memory->dense(DType::bf16, {4, 17, 128});
                },
                "'index_q.Hi' is 17"},
          Fault{[](auto& c) {
                  c.args.index_cache = c.memory->dense(DType::bf16, {4, 16, 128});
                },
                "'index_cache' has pages of 16 tokens; allowed: 128"},
          Fault{[](auto& c) { c.args.scores.stride[2] = 0; },
                "'scores' is written, but its strides"},
          Fault{[](auto& c) { c.args.scores.data = const_cast<void*>(c.args.index_q.data); },
                "'scores' shares memory with 'index_q'"},
          Fault{[](auto& c) {
                  c.args.workspace = {c.args.scores.data, 16};
                },
                "'scores' shares memory with 'workspace'"},
      },
      "index_scores", [](const IndexScoresArgs& args) { index_scores(args); });
}

TEST(Validation, SelectNumbers) {
  using Fault = NumberFault<testing::SelectCall>;
  expect_number_faults<testing::SelectCall>(
      {
          Fault{[](auto& c) { c.args.num_tokens = -1; }, "'num_tokens' is -1"},
          Fault{[](auto& c) { c.args.num_tokens = std::int64_t{1} << 31; },
                "'num_tokens' is 2147483648"},
          Fault{[](auto& c) { c.args.num_tokens = 5; },
                "'valid_blocks' has 4 in dimension 0; expected [T ≥ 5]"},
          Fault{[](auto& c) { c.args.rule.init_blocks = -1; }, "'rule.init_blocks' is -1"},
          Fault{[](auto& c) { c.args.rule.local_blocks = std::int64_t{1} << 31; },
                "'rule.local_blocks' is 2147483648"},
          Fault{[](auto& c) { c.args.rule.reduce_heads = true; },
                "'selection' has 2 lists a row; allowed: 1 with reduce_heads"},
          Fault{[](auto& c) {
                  c.args.selection = c.memory->dense(DType::i32, {4, 2, 65});
                },
                "'selection.topk' is 65; allowed: at least 1 and at most 64"},
          Fault{[](auto& c) {
                  c.args.selection = c.memory->dense(DType::i32, {4, 2, 0});
                },
                "'selection.topk' is 0"},
          Fault{[](auto& c) {
                  c.args.scores = c.memory->dense(DType::f32, {17, 5, 4});
                  c.args.selection = c.memory->dense(DType::i32, {4, 17, 2});
                },
                "'scores.Hi' is 17"},
          Fault{[](auto& c) { c.args.selection.data = const_cast<void*>(c.args.scores.data); },
                "'selection' shares memory with 'scores'"},
          Fault{
              [](auto& c) { c.args.selection.data = const_cast<void*>(c.args.valid_blocks.data); },
              "'selection' shares memory with 'valid_blocks'"},
      },
      "select_blocks", [](const SelectArgs& args) { select_blocks(args); });
}

TEST(Validation, MergeOverlaps) {
  using Fault = NumberFault<testing::MergeCall>;
  const auto shared = [](auto& view, const void* with, std::ptrdiff_t bytes = 0) {
    view.data = const_cast<char*>(static_cast<const char*>(with) + bytes);
  };
  expect_number_faults<testing::MergeCall>(
      {
          Fault{[=](auto& c) { shared(c.args.out, c.args.out_b.data); },
                "'out' shares memory with 'out_b'"},
          Fault{[=](auto& c) { shared(c.args.lse, c.args.lse_b.data); },
                "'lse' shares memory with 'lse_b'"},
          // In place on a means the very view.
          Fault{[=](auto& c) { shared(c.args.out, c.args.out_a.data, 256); },
                "'out' shares memory with 'out_a'"},
          Fault{[=](auto& c) { shared(c.args.lse, c.args.lse_a.data, 4); },
                "'lse' shares memory with 'lse_a'"},
          Fault{[=](auto& c) { shared(c.args.lse, c.args.out.data); },
                "'out' shares memory with 'lse'"},
          Fault{[=](auto& c) { shared(c.args.lse, c.args.out_b.data, 128); },
                "'lse' shares memory with 'out_b'"},
          Fault{[=](auto& c) { shared(c.args.out, c.args.lse_a.data); },
                "'out' shares memory with 'lse_a'"},
          Fault{[](auto& c) { c.args.out.stride[0] = 128; }, "'out' is written, but its strides"},
          Fault{[](auto& c) {
                  c.args.out = c.memory->dense(DType::f32, {3, 2, 128});
                },
                "'out' has dtype f32; allowed: bf16"},
      },
      "merge_states", [](const MergeArgs& args) { merge_states(args); });
  testing::MergeCall in_place;
  in_place.args.out.data = const_cast<void*>(in_place.args.out_a.data);
  in_place.args.lse.data = const_cast<void*>(in_place.args.lse_a.data);
  EXPECT_NO_THROW(merge_states(in_place.args));
}

// In place is a matter of where the elements are: not of strides that lead nowhere, nor of what a
// view carries past its rank.
TEST(Validation, AViewIsTheSameWhateverItCarriesBesidesItsElements) {
  testing::MergeCall call;
  MergeArgs& a = call.args;
  for (ConstTensor* t : {&a.out_a, &a.lse_a, &a.out_b, &a.lse_b}) t->shape[0] = 1;
  a.out = Tensor(const_cast<void*>(a.out_a.data), DType::bf16, {1, 2, 128}, {7, 128, 1});
  a.lse = Tensor(const_cast<void*>(a.lse_a.data), DType::f32, {1, 2}, {max_int64, 1});
  for (Tensor* t : {&a.out, &a.lse}) {
    for (int dim = t->rank; dim < Tensor::max_rank; ++dim) t->shape[dim] = t->stride[dim] = 99;
  }
  EXPECT_NO_THROW(merge_states(a));
  a.out.stride[1] = 256;
  EXPECT_THAT(error_of([&] { merge_states(a); }), HasSubstr("'out' shares memory with 'out_a'"));

  testing::AttendCall attend_call;
  attend_call.args.kv_cache = KVCache(attend_call.memory->dense(DType::bf16, {4, 2, 128, 128}),
                                      attend_call.memory->dense(DType::bf16, {4, 2, 128, 128}));
  attend_call.args.kv_cache.v.shape[4] = 99;
  EXPECT_NO_THROW(attend(attend_call.args));
}

TEST(Validation, PageShapes) {
  using Fault = NumberFault<testing::CopyCall>;
  expect_number_faults<testing::CopyCall>(
      {
          Fault{[](auto& c) {
                  c.args.dst = c.memory->dense(DType::bf16, {5, 2, 64, 256});
                },
                "'dst' has 64 in dimension 2; expected [pages, Hkv, 128, 256]"},
          Fault{[](auto& c) {
                  c.args.dst = c.memory->dense(DType::bf16, {5, 1, 128, 256});
                },
                "'dst' is bf16 of shape [5, 1, 128, 256]"},
          Fault{[](auto& c) {
                  c.args.dst = c.memory->dense(DType::bf16, {5, 2, 128, 128});
                },
                "expected src's type and page shape, bf16 of shape [3, 2, 128, 256]"},
          Fault{[](auto& c) {
                  c.args.dst = c.memory->dense(DType::bf16, {5, 128, 128});
                },
                "'dst' is bf16 of shape [5, 128, 128]"},
          Fault{[](auto& c) {
                  c.args.dst = c.memory->dense(DType::f16, {5, 2, 128, 256});
                },
                "'dst' is f16 of shape"},
          Fault{[](auto& c) {
                  c.args.src = c.memory->dense(DType::bf16, {3, 2, 128, 64});
                },
                "'src' has 64 elements a row; allowed: 128, or 256 for a packed main cache"},
          Fault{[](auto& c) {
                  c.args.src = c.memory->dense(DType::bf16, {3, 128, 256});
                },
                "'src' has 256 elements a row; allowed: 128"},
          Fault{[](auto& c) {
                  c.args.src = c.memory->dense(DType::bf16, {3, 1, 1, 128, 256});
                },
                "'src' has 5 dimensions; expected [pages, 128, 128] or [pages, Hkv, 128, 256]"},
          Fault{[](auto& c) { c.args.src.rank = 99; },
                "'src' has rank 99; allowed: that of [pages, 128, 128] or [pages, Hkv, 128, 256]"},
          Fault{[](auto& c) {
                  c.args.pairs = c.memory->dense(DType::i64, {2, 3});
                },
                "'pairs' has 3 in dimension 1; expected [N, 2]"},
          Fault{[](auto& c) { c.args.dst.data = const_cast<void*>(c.args.pairs.data); },
                "'dst' shares memory with 'pairs'"},
          Fault{[](auto& c) { c.args.dst.stride[0] = 0; }, "'dst' is written, but its strides"},
          Fault{[](auto& c) {
                  c.args.pairs.shape[0] = std::int64_t{1} << 58;
                  c.args.pairs.stride[0] = 0;
                },
                "'pairs' has row stride 0 and so names each destination 288230376151711744 times"},
      },
      "copy_pages", [](const CopyPagesArgs& args) { copy_pages(args); });
}

TEST(Validation, ASizeQueryNeedsNoMemory) {
  testing::AttendCall call;
  const std::size_t with_memory = workspace_size(call.args);
  call.args.q.data = nullptr;
  call.args.kv_cache.packed.data = nullptr;
  call.args.selection.data = nullptr;
  call.args.out = {};
  call.args.lse = {};
  EXPECT_EQ(workspace_size(call.args), with_memory);
  call.args.q.dtype = DType::f32;
  EXPECT_THROW(workspace_size(call.args), Error);
}

TEST(Validation, ZeroTokensAndZeroPagesAreValid) {
  testing::AttendCall call;
  AttendArgs a;
  a.q = ConstTensor::dense(nullptr, DType::bf16, {0, 4, 128});
  a.kv_cache = Tensor::dense(nullptr, DType::bf16, {0, 2, 128, 256});
  a.selection = ConstTensor::dense(nullptr, DType::i32, {0, 2, 16});
  a.out = Tensor::dense(nullptr, DType::bf16, {0, 4, 128});
  EXPECT_NO_THROW(attend(a));
  call.args.batch.num_actual_tokens = 0;
  call.args.batch.num_decodes = 0;
  call.args.batch.num_prefills = 0;
  call.args.batch.seq_lens = {};
  EXPECT_NO_THROW(attend(call.args));
}

// No block, no score: nothing is done for any of the tokens.
TEST(Validation, ZeroBlocksOfAnyNumberOfTokensTakeNoTime) {
  testing::Memory memory;
  IndexScoresArgs a;
  a.batch.num_actual_tokens = std::numeric_limits<std::int32_t>::max();
  a.index_q = memory.dense(DType::bf16, {1, 2, 128});
  a.index_q.shape[0] = a.batch.num_actual_tokens;
  a.index_q.stride[0] = 0;
  a.index_cache = memory.dense(DType::bf16, {1, 128, 128});
  a.scores = Tensor(memory.dense(DType::f32, {1}).data, DType::f32,
                    {2, 0, a.batch.num_actual_tokens}, {max_int64, max_int64, max_int64});
  EXPECT_NO_THROW(index_scores(a));
}

// The stride of a dimension of one index leads nowhere.
TEST(Validation, TheStrideOfOneIndexIsAnyNumber) {
  int strides = 0;
  for (const auto& make : testing::call_makers()) {
    for (std::size_t i = 0; i < make().arguments.size(); ++i) {
      for (int dim = 0; dim < make().arguments[i].rank(); ++dim) {
        Call call = make();
        bool applies = false;
        call.arguments[i].change([&](auto& t) {
          applies = t.shape[dim] == 1;
          if (applies) t.stride[dim] = max_int64;
        });
        if (!applies) continue;
        EXPECT_NO_THROW(call.run()) << call.op << " " << call.arguments[i].name << " " << dim;
        ++strides;
      }
    }
  }
  EXPECT_GT(strides, 0);

  testing::SelectCall select;
  select.args.num_tokens = 1;
  select.args.selection.shape[0] = 1;
  select.args.selection.stride[0] = max_int64;
  EXPECT_NO_THROW(select_blocks(select.args));
  select.args.selection.data = const_cast<void*>(select.args.scores.data);
  EXPECT_THROW(select_blocks(select.args), Error);
}

// Sources times destinations would be 2^36 looks at two pages.
TEST(Validation, PagesNamedOftenAreCheckedOnce) {
  const ScopedEnv check("MSA_CHECK", "1");
  testing::Memory memory;
  constexpr std::int64_t count = std::int64_t{1} << 18;
  CopyPagesArgs a;
  a.dst = memory.dense(DType::e4m3, {3, 128, 128});
  a.src = a.dst;
  std::vector<std::int64_t> pairs(2 * count);  // from page 0
  for (std::int64_t i = 0; i < count; ++i) pairs[2 * i + 1] = 1;
  a.pairs = memory.i64(pairs, {count, 2});
  try {
    copy_pages(a);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "copy_pages: argument 'pairs' names destination page 1 twice");
  }
}

TEST(Validation, PageMovesBetweenHostAndDeviceNeedPinnedMemory) {
  testing::Memory memory;
  CopyPagesArgs a;
  a.src = memory.dense(DType::bf16, {3, 128, 128});
  a.dst = memory.dense(DType::bf16, {3, 128, 128});
  a.pairs = memory.i64({0, 1}, {1, 2});
  a.src.device = {DeviceType::cuda, 1};
  try {
    copy_pages(a);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("'pairs' is on device cpu:0; expected the device of 'src', cuda:1"),
                      HasSubstr("'dst' is in pageable host memory")));
  }
}

TEST(Validation, NoDeviceTypeIsTakenForHostMemory) {
  for (const int type : {-1, 3}) {
    const std::string text =
        "has device type " + std::to_string(type) + "; allowed: cpu, cuda, cuda_host";
    testing::AttendCall call;
    call.args.k_scale = Scale(ConstTensor(call.memory->dense(DType::f32, {1})));
    call.args.k_scale.tensor.device.type = static_cast<DeviceType>(type);
    expect_refused({"attend", {}, [&] { attend(call.args); }, call.memory},
                   {"argument 'k_scale' " + text});

    // The host side of a move from or to a CUDA device.
    const auto memory = std::make_shared<testing::Memory>();
    CopyPagesArgs a;
    a.src = memory->dense(DType::bf16, {3, 128, 128});
    a.dst = memory->dense(DType::bf16, {3, 128, 128});
    a.pairs = memory->i64({0, 1}, {1, 2});
    a.src.device = a.pairs.device = {DeviceType::cuda, 0};
    a.dst.device.type = static_cast<DeviceType>(type);
    expect_refused({"copy_pages", {}, [&] { copy_pages(a); }, memory}, {"argument 'dst' " + text});
  }
}

/// One token for slot 3, without a cache.
InsertCacheArgs one_token(testing::Memory& memory, std::int64_t heads) {
  InsertCacheArgs a;
  a.num_tokens = 1;
  a.k = memory.dense(DType::bf16, {1, heads, 128});
  a.v = memory.dense(DType::bf16, {1, heads, 128});
  a.slot_mapping = memory.i64({3}, {1});
  return a;
}

TEST(Validation, KAndVOfOnePackedRowDoNotCountAsOverlapping) {
  testing::Memory memory;
  const Tensor packed = memory.dense(DType::bf16, {4, 2, 128, 256});
  InsertCacheArgs a = one_token(memory, 2);
  a.kv_cache = KVCache(packed.narrow(3, 0, 128), packed.narrow(3, 128, 128));
  EXPECT_NO_THROW(insert_cache(a));
  a.kv_cache = KVCache(packed.narrow(3, 0, 128), packed.narrow(3, 127, 128));
  EXPECT_THROW(insert_cache(a), Error);
  a.kv_cache =
      KVCache(packed.narrow(3, 0, 128).narrow(0, 0, 1), packed.narrow(3, 128, 128).narrow(0, 0, 1));
  a.kv_cache.k.stride[0] = max_int64;
  EXPECT_NO_THROW(insert_cache(a));
  a.kv_cache =
      KVCache(packed.narrow(3, 0, 128).narrow(0, 0, 2), packed.narrow(3, 0, 128).narrow(0, 2, 2));
  EXPECT_NO_THROW(insert_cache(a));
  a.kv_cache =
      KVCache(packed.narrow(3, 0, 128).narrow(0, 0, 3), packed.narrow(3, 0, 128).narrow(0, 1, 3));
  EXPECT_THROW(insert_cache(a), Error);
}

// A dimension of one index has no step: whatever stride it carries, K and V of a row stay apart.
TEST(Validation, TheStrideOfAnExtentOfOneDoesNotMakeViewsOverlap) {
  testing::Memory memory;
  const Tensor packed = memory.dense(DType::bf16, {4, 1, 128, 256});
  InsertCacheArgs a = one_token(memory, 1);
  for (const std::int64_t stride : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1} << 40}) {
    Tensor k = packed.narrow(3, 0, 128), v = packed.narrow(3, 128, 128);
    k.stride[1] = stride;
    v.stride[1] = 256;
    a.kv_cache = KVCache(k, v);
    EXPECT_NO_THROW(insert_cache(a)) << stride;
    a.kv_cache = KVCache(k, packed.narrow(3, 127, 128));
    EXPECT_THAT(error_of([&] { insert_cache(a); }), HasSubstr("shares memory with")) << stride;
  }
}

}  // namespace
}  // namespace msa
