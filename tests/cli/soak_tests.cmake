# Tests of `msa soak`: its parts, and the command as a process, with a short soak on the CPU.
if(NOT TARGET msa_soak)
  return()
endif()

add_executable(soak_test ${CMAKE_CURRENT_LIST_DIR}/soak_test.cpp)
target_link_libraries(soak_test PRIVATE msa_soak GTest::gtest_main)
gtest_discover_tests(soak_test DISCOVERY_TIMEOUT 60)

add_executable(soak_command_test
  ${CMAKE_CURRENT_LIST_DIR}/program.cpp ${CMAKE_CURRENT_LIST_DIR}/soak_command_test.cpp)
target_link_libraries(soak_command_test
  PRIVATE msa_settings nlohmann_json::nlohmann_json GTest::gtest_main)
target_compile_definitions(soak_command_test PRIVATE MSA_COMMAND="${command}")
add_dependencies(soak_command_test msa_cli)
gtest_discover_tests(soak_command_test DISCOVERY_TIMEOUT 60)
