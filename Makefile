# Two commands do everything: `make run` builds and serves, `make test` runs all that CI runs.

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cairn
# Outside the checkout, so that every clone shares the one long build of RocksDB.
export CARGO_TARGET_DIR ?= $(CACHE)/target
export CAIRN_BIN := $(CARGO_TARGET_DIR)/release/cairn

CARGO ?= cargo
APT_GET := $(if $(filter 0,$(shell id -u)),,sudo )apt-get

.PHONY: run build test lint unit scripts differential crash clients conformance selftest fuzz \
        build-tools test-tools clean

run: build
	$(CAIRN_BIN) serve $(ARGS)

build: build-tools
	$(CARGO) build --release --package cairn-server

# Lint first: it is quick. Then from the small to the large.
test: build-tools test-tools lint build unit scripts clients selftest conformance

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

# Unit and property tests, golden scripts, the differential test, crash and power-cut tests.
unit: build
	$(CARGO) test --release --workspace

scripts: build
	$(CARGO) test --release --package cairn-tests --test scripts

crash: build
	$(CARGO) test --release --package cairn-tests --test crash --test powercut -- --nocapture

# A long differential run: make differential COMMANDS=1000000 SEED=1
COMMANDS ?= 1000000
SEED ?= 1
differential: build
	$(CARGO) run --release --package cairn-tests --bin differential -- \
	    --commands $(COMMANDS) --seed $(SEED)

# redis-py and ioredis, from their packages.
clients: build
	tests/clients/run

# Redis' own test suite, from Debian's source package.
conformance: build
	tests/conformance/run

selftest:
	python3 -B -m unittest discover --start-directory tests/conformance

# Ten minutes of fuzzing the protocol parser.
FUZZ_SECONDS ?= 600
fuzz:
	command -v cargo-fuzz >/dev/null || $(CARGO) install cargo-fuzz
	cd crates/resp && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run parser -- -max_total_time=$(FUZZ_SECONDS)

# What the build needs beyond Rust itself: a C++ compiler, and libclang for RocksDB's bindings.
build-tools:
	@command -v $(CARGO) >/dev/null || { \
	    $(APT_GET) update && $(APT_GET) install --yes rustup && rustup default stable; } || { \
	    echo "cairn needs Rust 1.95 or newer: see https://rustup.rs" >&2; exit 1; }
	@command -v c++ >/dev/null && ls /usr/lib/llvm-*/lib/libclang*.so* >/dev/null 2>&1 || { \
	    $(APT_GET) update && $(APT_GET) install --yes g++ libclang-dev; }

# What the tests need: Redis itself to compare with, and the clients' languages.
test-tools:
	@command -v redis-server >/dev/null && command -v redis-cli >/dev/null && command -v tclsh >/dev/null || { \
	    $(APT_GET) update && $(APT_GET) install --yes redis-server redis-tools tcl; }
	@command -v python3 >/dev/null && command -v node >/dev/null && command -v npm >/dev/null || { \
	    $(APT_GET) update && $(APT_GET) install --yes python3 python3-venv nodejs npm; }

clean:
	$(CARGO) clean
