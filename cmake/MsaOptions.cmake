# Settings shared by every target: msa_settings carries the language level, the warnings and the sanitizers.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_EXTENSIONS OFF)

add_library(msa_settings INTERFACE)
target_compile_features(msa_settings INTERFACE cxx_std_20)
# nvcc hands its host compiler what follows -Xcompiler; device code contracts products as nvcc always does.
set(host_code $<COMPILE_LANGUAGE:C,CXX>)
set(cuda_code $<COMPILE_LANGUAGE:CUDA>)
target_compile_options(msa_settings INTERFACE
  $<${host_code}:-Wall> $<${host_code}:-Wextra> $<$<AND:${host_code},$<BOOL:${MSA_WERROR}>>:-Werror>
  $<${cuda_code}:-Xcompiler=-Wall> $<${cuda_code}:-Xcompiler=-Wextra>
  $<$<AND:${cuda_code},$<BOOL:${MSA_WERROR}>>:-Werror=all-warnings>)
# Contracted products would make a reference or a bitwise promise depend on the compiler's mood.
target_compile_options(msa_settings INTERFACE $<${host_code}:-ffp-contract=off>)
target_include_directories(msa_settings INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)

# The baseline of x86-64 emulates vectors by loops: under sanitizers it compiles ten times as long as AVX2 and AVX-512
# together, and it runs the same source. Sanitized builds leave it out.
set(lowest baseline)
if(MSA_SANITIZE AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(lowest avx2)
endif()
set(MSA_CPU_LOWEST ${lowest} CACHE STRING "Lowest instruction set that the code is compiled for: baseline, avx2 (x86-64)")
set_property(CACHE MSA_CPU_LOWEST PROPERTY STRINGS baseline avx2)
if(MSA_CPU_LOWEST STREQUAL "avx2")
  target_compile_options(msa_settings INTERFACE
    "$<${host_code}:-mavx2;-mfma;-mf16c;-mbmi;-mbmi2;-maes;-mpclmul>")
elseif(NOT MSA_CPU_LOWEST STREQUAL "baseline")
  message(FATAL_ERROR "MSA_CPU_LOWEST: '${MSA_CPU_LOWEST}' is neither baseline nor avx2")
endif()

if(MSA_SANITIZE)
  target_compile_options(msa_settings INTERFACE
    "$<${host_code}:-fsanitize=${MSA_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  target_link_options(msa_settings INTERFACE -fsanitize=${MSA_SANITIZE})
endif()

# For the command and the tests, most of them calls of templates: under sanitizers they compile two to three times as
# fast unoptimized, and little of a test's time passes there.
set(MSA_GLUE_OPTIONS)
if(MSA_SANITIZE)
  set(MSA_GLUE_OPTIONS -O0)
endif()

# What fuzzers run counts its branches. Only that does, so that one build serves them and the whole suite: the reference,
# the grid and the vector code, where a sanitized suite spends its time, stay as they are.
set(MSA_FUZZED_OPTIONS)
if(MSA_BUILD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "MSA_BUILD_FUZZ=ON asks for clang; the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  set(MSA_FUZZED_OPTIONS -fsanitize=fuzzer-no-link)
endif()
