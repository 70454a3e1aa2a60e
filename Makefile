# Two commands for everybody: `make demo` and `make test`. Both install what is missing (Debian
# packages, deploy/debian/packages.txt) and build first.
.DEFAULT_GOAL := build
.PHONY: build packages demo demo-llm demo-vllm eval test test-dev test-asan test-tsan bench gpu-package lint format clean

build: packages
	cmake --preset dev
	cmake --build --preset dev

packages:
	@deploy/debian/install_packages.sh

# A real model's KV cache, compressed under every policy, with a live /metrics page.
demo: packages
	cmake --preset dev -DKVTRIAGE_BUILD_TESTS=OFF -DKVTRIAGE_BUILD_BENCH=OFF -B build/demo
	cmake --build build/demo --target kvtriage kvtriaged
	deploy/demo/run.sh build/demo/bin

# How good the evictions are on a real model: client/python/EVAL.md, made anew (under 40 minutes on two cores).
eval: packages
	cmake --preset dev -DKVTRIAGE_BUILD_TESTS=OFF -DKVTRIAGE_BUILD_BENCH=OFF -B build/demo
	cmake --build build/demo --target kvtriaged
	deploy/eval/run.sh build/demo

# A real model answers from what policies leave of its KV cache. Makes a Python environment with torch
# (7 GB, deploy/python/environment.sh) the first time.
demo-llm: packages
	cmake --preset dev -DKVTRIAGE_BUILD_TESTS=OFF -DKVTRIAGE_BUILD_BENCH=OFF -B build/demo
	cmake --build build/demo --target kvtriaged
	TQDM_DISABLE=1 deploy/python/run.sh llm build/demo python deploy/demo/llm

# kvtriaged beside vLLM, over HTTP, with and without compaction (client/python/vllm.md). Makes a Python
# environment with vLLM (6.4 GB) the first time.
demo-vllm: packages
	cmake --preset dev -DKVTRIAGE_BUILD_TESTS=OFF -DKVTRIAGE_BUILD_BENCH=OFF -B build/demo
	cmake --build build/demo --target kvtriaged
	deploy/python/run.sh vllm build/demo python deploy/demo/vllm

# Fast tests first; each stage ends with ctest's summary.
test: test-dev test-asan test-tsan

test-dev: packages
	cmake --preset dev
	cmake --build --preset dev --target all python_environments
	ctest --preset dev

# The same tests under AddressSanitizer, LeakSanitizer and UBSan.
test-asan: packages
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan

# ThreadSanitizer, on everything that does not link gRPC (Debian's gRPC is not instrumented).
test-tsan: packages
	cmake --preset tsan
	cmake --build --preset tsan --target kvtriage_tsan_tests
	ctest --preset tsan

# Ratios to peaks measured in the same run; fails when a "must" is missed in three tries.
bench: packages
	cmake --preset release
	cmake --build --preset release
	tests/bench/run.sh build/release

# One archive to check the CUDA backend on a machine with a GPU (tests/gpu/README.md). ARCH: the device's
# architecture. SERVICE: a folder with a kvtriaged and a kvtriage that go along.
ARCH ?= 90
gpu-package: packages
	cmake --preset gpu -DKVTRIAGE_CUDA_ARCHITECTURES=$(ARCH)
	KVTRIAGE_SERVICE=$(SERVICE) cmake --build build/gpu --target gpu_package

lint: build
	deploy/debian/lint.sh build/dev

format:
	git ls-files '*.h' '*.cc' '*.cuh' '*.cu' | xargs clang-format -i

clean:
	rm -rf build
