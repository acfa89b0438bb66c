# Whether the compiler can build the tile code of src/cpu/tiles (MSA_TILES_BUILT), and the flags of its sources.
include(CheckCXXSourceCompiles)
set(MSA_TILE_OPTIONS -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl -mavx512vbmi -mavx512bf16 -mfma -mbmi -mbmi2)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # avx512fintrin.h of GCC 12 initializes what it calls undefined by itself (GCC bug 105593).
  list(APPEND MSA_TILE_OPTIONS -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
set(MSA_TILES_BUILT OFF)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
  list(JOIN MSA_TILE_OPTIONS " " CMAKE_REQUIRED_FLAGS)
  check_cxx_source_compiles([[
    #include <immintrin.h>
    int main() {
      const __m512 x = _mm512_set1_ps(1.0f);
      const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(x, x);
      const __m256bh half = _mm512_cvtneps_pbh(_mm512_dpbf16_ps(x, (__m512bh)both, (__m512bh)both));
      if (_mm256_cvtss_f32(_mm256_dpbf16_ps(_mm256_setzero_ps(), half, half)) == 0) return 2;
      asm volatile("tdpbf16ps %tmm2, %tmm1, %tmm0");
      return _mm512_test_epi8_mask(_mm512_permutexvar_epi8(both, both), both) == 0;
    }]] MSA_COMPILER_HAS_TILES)
  unset(CMAKE_REQUIRED_FLAGS)
  set(MSA_TILES_BUILT ${MSA_COMPILER_HAS_TILES})
  if(NOT MSA_TILES_BUILT)
    message(STATUS "Kernels of AMX and AVX512-BF16: off, ${CMAKE_CXX_COMPILER} does not know the instructions")
  endif()
endif()
if(MSA_TILES_BUILT)
  target_compile_definitions(msa_settings INTERFACE $<${host_code}:MSA_CPU_TILES>)
endif()
