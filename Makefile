# SPDX-License-Identifier: Apache-2.0
# The newcomer's door: `make demo` and `make test` set themselves up. Logic lives in scripts/ and CMake.

.PHONY: help demo test build python check bench benchmarks asan tsan lint format clean setup-demo setup-test
.DEFAULT_GOAL := help

# cmake and ninja may live in the virtual environment when there is no root to install them.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

JOBS ?= $(shell nproc)
QUIRE := build/release/quire
BUILD := cmake --build --preset

help:
	@echo "make demo    set up, build and run the demo on this machine"
	@echo "make test    set up, build and run every test (CTest, then pytest)"
	@echo "make build | python | check | bench | benchmarks | asan | tsan | lint | format | clean"

demo: setup-demo
	@scripts/configure.sh demo
	@$(BUILD) release -j $(JOBS) --target quire_tool
	@$(QUIRE) demo

test: build
	@ctest --preset release -j $(JOBS)
	@python -m pytest

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

# Beside torch; records and documents the figures of this machine.
benchmarks: setup-test python
	@PYTHONPATH=build/release/python python -m benchmarks.cpu $(ARGS)
	@python -m benchmarks.plot

asan: setup-demo
	@scripts/configure.sh asan-ubsan
	@$(BUILD) asan-ubsan -j $(JOBS)
	@ctest --preset asan-ubsan -j $(JOBS)

tsan: setup-demo
	@scripts/configure.sh tsan
	@$(BUILD) tsan -j $(JOBS)
	@ctest --preset tsan -j $(JOBS)

lint: setup-demo
	@scripts/configure.sh release
	@scripts/lint.sh

format:
	@scripts/source_files.sh | xargs clang-format -i

clean:
	@rm -rf build dist

setup-demo:
	@scripts/setup.sh demo

setup-test:
	@scripts/setup.sh test
