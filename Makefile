# The front door. `make run` and `make test` are all that a newcomer needs; everything they do is plain CMake.
BUILD ?= build
JOBS ?= $(shell nproc)
# That each fuzz target runs for; CI takes less.
FUZZ_SECONDS ?= 30
# Inputs that each fuzz target tries at most, with a fixed seed; CI sets it, so that one tree always gets the same answer.
FUZZ_RUNS ?= -1
CCACHE := $(shell command -v ccache)
CMAKE_FLAGS := -G Ninja $(if $(CCACHE),-DCMAKE_CXX_COMPILER_LAUNCHER=$(CCACHE))
CLANG := -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14
# Sanitized code is for finding faults, not for speed: what compiles fast is enough.
SANITIZED := $(CLANG) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO='-O1 -g1' -DMSA_BUILD_EXAMPLES=OFF
# To clang-tidy the emulated baseline is the text of the other instruction sets once more.
LOWEST := $(if $(filter x86_64,$(shell uname -m)),-DMSA_CPU_LOWEST=avx2)
# A fixed seed for the random problems: a run that fails can be repeated.
CTEST := RC_PARAMS=seed=20261201 ctest --output-on-failure --timeout 900 -j $(JOBS)

.PHONY: help run build test python-torch wheel check format-check tidy tidy-deep docs asan tsan fuzz arm arm-deep clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

run: build ## build, then serve a real request trace through sparse attention (about two minutes)
	$(BUILD)/src/cli/msa replay data/mooncake_conversation_200.jsonl --json $(BUILD)/report.json --plot $(BUILD)/report.svg

build: ## install what is missing, build the library and the command
	@tools/install_deps build
	cmake -S . -B $(BUILD) $(CMAKE_FLAGS) -DMSA_BUILD_TESTS=OFF
	cmake --build $(BUILD) -j $(JOBS)

PYTHON_VENV := $(abspath $(BUILD))/python
TEST_TREE = tools/python_test setup $(PYTHON_VENV) && \
  cmake -S . -B $(BUILD)/test $(CMAKE_FLAGS) -DMSA_WERROR=ON -DMSA_BUILD_PYTHON=$$([ -x $(PYTHON_VENV)/bin/python ] && echo ON || echo OFF) -DMSA_PYTHON=$(PYTHON_VENV)/bin/python && \
  cmake --build $(BUILD)/test -j $(JOBS)

test: ## install what is missing, build everything, run all tests
	@tools/install_deps test
	$(TEST_TREE)
	$(CTEST) --test-dir $(BUILD)/test
	tools/python_test run $(BUILD)/test $(PYTHON_VENV)

python-torch: ## the Python package's tests once more, with PyTorch (1 GB of downloads)
	@tools/install_deps test
	$(TEST_TREE)
	tools/python_test torch $(BUILD)/test $(PYTHON_VENV)

wheel: ## the Python package's wheel, in build/test/dist
	@tools/install_deps test
	$(TEST_TREE)
	tools/python_test wheel $(BUILD)/test $(PYTHON_VENV)

check: format-check docs tidy asan tsan fuzz arm ## the quality gates, one after the other

format-check: ## sources are formatted
	@tools/install_deps gates
	git ls-files '*.h' '*.cpp' '*.c' '*.cu' '*.cuh' | xargs clang-format-14 --dry-run --Werror

TIDY = cmake -S . -B $(BUILD)/tidy $(CMAKE_FLAGS) $(CLANG) -DMSA_CUDA=OFF $(LOWEST) && tools/run_tidy $(BUILD)/tidy $(JOBS)

# Of these checks the first two are most of an hour, and the last two, which ask about names and about string_view(nullptr), a quarter
# of what is left.
tidy: ## clang-tidy over src/ and tests/, all checks that a run of CI has the time for; findings are errors
	@tools/install_deps gates
	$(TIDY) --checks=-clang-analyzer-*,-performance-unnecessary-value-param,-bugprone-reserved-identifier,-bugprone-stringview-nullptr

tidy-deep: ## clang-tidy with the checks that take most of an hour, the static analyzer's
	@tools/install_deps gates
	$(TIDY)

docs: ## the documentation of the public headers and of the Python package is complete
	@tools/install_deps gates
	doxygen docs/Doxyfile
	tools/python_reference

# One build for the suite and for the fuzzers.
ASAN = cmake -S . -B $(BUILD)/asan $(CMAKE_FLAGS) $(SANITIZED) -DMSA_SANITIZE=address,undefined -DMSA_BUILD_FUZZ=ON -DMSA_FUZZ_SECONDS=$(FUZZ_SECONDS) -DMSA_FUZZ_RUNS=$(FUZZ_RUNS)

asan: ## the suite under the address and undefined-behaviour sanitizers
	@tools/install_deps gates
	$(ASAN)
	cmake --build $(BUILD)/asan -j $(JOBS)
	$(CTEST) --test-dir $(BUILD)/asan -LE fuzz

tsan: ## the thread pool and calls from several threads under the thread sanitizer
	@tools/install_deps gates
	cmake -S . -B $(BUILD)/tsan $(CMAKE_FLAGS) $(SANITIZED) -DMSA_SANITIZE=thread -DMSA_BUILD_CLI=OFF
	cmake --build $(BUILD)/tsan -j $(JOBS) --target msa_thread_tests
	$(CTEST) --test-dir $(BUILD)/tsan -L threads

fuzz: ## each libFuzzer target under the same sanitizers for FUZZ_SECONDS (30)
	@tools/install_deps gates
	$(ASAN)
	cmake --build $(BUILD)/asan -j $(JOBS) --target msa_fuzz
	$(CTEST) --test-dir $(BUILD)/asan -L fuzz

ARM = tools/fetch_arm_packages $(BUILD)/arm-packages && cmake -S . -B $(BUILD)/$@ $(CMAKE_FLAGS) -DMSA_WERROR=ON \
  -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake -DMSA_ARM_PACKAGES=$(abspath $(BUILD))/arm-packages
# Emulated, these take several times as long as all the others.
ARM_SLOW := conformance.(attend|index_blocks)_(bits|decode|grid|prefill|reports|selection|shards|values)|conformance.layer_step|BitsDependNeither|example.layer

arm: ## a cross build for Arm, and the tests of its library that are fast under an emulator
	@tools/install_deps arm
	$(ARM) -DMSA_BUILD_CLI=OFF
	cmake --build $(BUILD)/arm -j $(JOBS)
	$(CTEST) --test-dir $(BUILD)/arm -E '$(ARM_SLOW)'

arm-deep: ## the command too, and all tests: an hour
	@tools/install_deps arm
	$(ARM)
	cmake --build $(BUILD)/arm-deep -j $(JOBS)
	$(CTEST) --timeout 7200 --test-dir $(BUILD)/arm-deep

clean: ## remove what was built
	rm -rf $(BUILD)
