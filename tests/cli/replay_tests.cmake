# Tests of `msa replay`: its parts, and the command as a process.
if(NOT TARGET msa_replay)
  return()
endif()
find_package(rapidcheck REQUIRED)
find_package(nlohmann_json REQUIRED)

foreach(name trace scheduler run)
  add_executable(replay_${name}_test ${CMAKE_CURRENT_LIST_DIR}/replay_${name}_test.cpp)
  target_include_directories(replay_${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests/api)  # error_of.h
  target_link_libraries(replay_${name}_test
    PRIVATE msa_replay rapidcheck rapidcheck_gtest GTest::gtest_main)
  target_compile_definitions(replay_${name}_test PRIVATE MSA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(replay_${name}_test DISCOVERY_TIMEOUT 60)
endforeach()

add_executable(replay_command_test
  ${CMAKE_CURRENT_LIST_DIR}/program.cpp ${CMAKE_CURRENT_LIST_DIR}/replay_command_test.cpp)
target_link_libraries(replay_command_test
  PRIVATE msa_settings nlohmann_json::nlohmann_json GTest::gtest_main)
target_compile_definitions(replay_command_test
  PRIVATE MSA_COMMAND="${command}" MSA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(replay_command_test msa_cli)
gtest_discover_tests(replay_command_test DISCOVERY_TIMEOUT 60)

# g++ 12 sees an overlap in std::string's operator+ that is not there (GCC bug 105329).
set_source_files_properties(replay_command_test.cpp PROPERTIES COMPILE_OPTIONS
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
