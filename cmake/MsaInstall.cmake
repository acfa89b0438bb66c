# What `cmake --install` puts in place. Nothing installed names an absolute path: the tree may be moved.
# The command installs itself, its man page and its completions (src/cli).
include(CMakePackageConfigHelpers)

install(TARGETS msa msa_static EXPORT msa_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/msa DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# find_package(msa CONFIG) → msa::msa, msa::msa_static.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/msa)
install(EXPORT msa_targets NAMESPACE msa:: FILE msaTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/msaConfig.cmake.in ${PROJECT_BINARY_DIR}/msaConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/msaConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/msaConfig.cmake ${PROJECT_BINARY_DIR}/msaConfigVersion.cmake
  DESTINATION ${package_dir})

# pkg-config --cflags --libs msa. ${pcfiledir} is where the .pc file lies.
set(pkgconfig_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH MSA_PC_PREFIX ${pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH MSA_PC_LIBDIR ${pkgconfig_dir} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH MSA_PC_INCLUDEDIR ${pkgconfig_dir} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
foreach(path MSA_PC_PREFIX MSA_PC_LIBDIR MSA_PC_INCLUDEDIR)
  string(REGEX REPLACE "/$" "" ${path} "${${path}}")
endforeach()
if(MSA_CUDA_ENABLED)
  set(MSA_PC_CUDA "-lcudart_static -ldl -lrt ")
endif()
configure_file(cmake/msa.pc.in ${PROJECT_BINARY_DIR}/msa.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/msa.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
