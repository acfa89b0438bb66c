# Arguments: BUILD_DIR SOURCE_DIR WORK_DIR LIBDIR CC CXX GENERATOR PKG_CONFIG.
set(first ${WORK_DIR}/first)
set(prefix ${WORK_DIR}/moved/here)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
endfunction()

function(expect path)
  if(NOT EXISTS ${prefix}/${path})
    message(FATAL_ERROR "${path} is not installed")
  endif()
endfunction()

# Install, then move.
file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${first})
file(MAKE_DIRECTORY ${WORK_DIR}/moved)
file(RENAME ${first} ${prefix})
expect(include/msa/msa.h)
expect(include/msa/c_api.h)
expect(${LIBDIR}/libmsa.so)
expect(${LIBDIR}/libmsa.so.0)
expect(${LIBDIR}/libmsa.a)
expect(share/doc/msa/LICENSE)

# Nothing lies beside these folders: the Python package's library goes into its wheel alone.
file(GLOB stray LIST_DIRECTORIES false ${prefix}/*)
if(stray)
  message(FATAL_ERROR "installed outside of every folder: ${stray}")
endif()

if(EXISTS ${prefix}/bin/msa)  # the command is left out where its packages are missing
  run(${prefix}/bin/msa --version)
  expect(share/man/man1/msa.1)
endif()

# No text that finds the library may name a place of this machine.
file(GLOB texts ${prefix}/${LIBDIR}/cmake/msa/* ${prefix}/${LIBDIR}/pkgconfig/*)
list(LENGTH texts count)
if(count LESS 5)
  message(FATAL_ERROR "expected the package's five files, found: ${texts}")
endif()
foreach(text ${texts})
  file(READ ${text} content)
  foreach(place ${BUILD_DIR} ${SOURCE_DIR} ${WORK_DIR})
    string(FIND "${content}" ${place} position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${text} names ${place}")
    endif()
  endforeach()
endforeach()

# The examples through find_package: all on the shared library, one on the static one.
set(configure ${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
  -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX})
run(${configure} -B ${WORK_DIR}/shared)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/shared --parallel 2)
run(${CMAKE_CTEST_COMMAND} --test-dir ${WORK_DIR}/shared --output-on-failure --no-tests=error)
run(${configure} -B ${WORK_DIR}/static -DMSA_EXAMPLES_STATIC=ON)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/static --target msa_example_attend_minimal)
run(${WORK_DIR}/static/attend_minimal)

# And through pkg-config, from C++ and from C.
if(NOT PKG_CONFIG)
  message("pkg-config is missing: that half of the test is skipped")
  return()
endif()
set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs msa OUTPUT_VARIABLE flags
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
run(${CXX} -std=c++20 ${SOURCE_DIR}/examples/attend_minimal.cpp -o ${WORK_DIR}/minimal ${flags})
run(${CC} -std=c99 ${SOURCE_DIR}/examples/c_attend.c -o ${WORK_DIR}/c_attend ${flags})
run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${prefix}/${LIBDIR} ${WORK_DIR}/minimal)
run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${prefix}/${LIBDIR} ${WORK_DIR}/c_attend)
