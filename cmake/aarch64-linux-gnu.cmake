# Toolchain file of a cross build for Arm with Debian's compiler: tools/fetch_arm_packages fills MSA_ARM_PACKAGES, and
# tests run under qemu (`make arm`).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# Debian's cross compiler brings the C and C++ libraries; the other packages lie in a folder of their own.
set(MSA_ARM_PACKAGES "" CACHE PATH "Folder of the unpacked arm64 packages")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MSA_ARM_PACKAGES)
set(libraries /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${MSA_ARM_PACKAGES} ${libraries})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;${libraries})
