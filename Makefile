# Two commands do everything: `make run` builds and serves, `make test` runs all that CI runs.

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cairn
# Outside the checkout, so that every clone shares the one long build of RocksDB.
export CARGO_TARGET_DIR ?= $(CACHE)/target
export CAIRN_BIN := $(CARGO_TARGET_DIR)/release/cairn

CARGO ?= cargo
# Where Rust's installer puts it: this very run has to find it.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

.PHONY: run cluster build test lint unit scripts differential simulation crash chaos clients apps conformance selftest fuzz \
        bench bench-cluster instructions larger-than-memory bench-depth depth build-tools test-tools bench-tools clean
# apt-get and cargo each run once at a time, and cargo keeps the cores busy by itself.
.NOTPARALLEL:

run: build
	$(CAIRN_BIN) serve $(ARGS)

# Three nodes of a cluster on ports 7001 to 7003, until Ctrl-C: make cluster DIR=./data-cluster ARGS="--sync always"
cluster: build
	tools/cluster $(CAIRN_BIN) $(or $(DIR),./data-cluster) $(ARGS)

build: build-tools
	$(CARGO) build --release --package cairn-server

# Lint first: it is quick. Then from the small to the large.
test: build-tools test-tools lint build unit scripts instructions depth clients apps selftest conformance

lint: build-tools
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

# Unit and property tests, golden scripts, the differential, concurrency, crash and power-cut tests.
unit: build test-tools
	$(CARGO) test --release --workspace

scripts: build test-tools
	$(CARGO) test --release --package cairn-tests --test scripts

crash: build test-tools
	$(CARGO) test --release --package cairn-tests --test crash --test powercut --test cluster_powercut -- --nocapture

# A long differential run: make differential COMMANDS=1000000 SEED=1
COMMANDS ?= 1000000
SEED ?= 1
differential: build test-tools
	$(CARGO) run --release --package cairn-tests --bin differential -- \
	    --commands $(COMMANDS) --seed $(SEED)

# Stories of a cluster in which everything goes wrong, each told by its seed: make simulation SEEDS=0..5000
SEEDS ?= 0..2000
simulation: build-tools
	CAIRN_SEEDS=$(SEEDS) $(CARGO) test --release --package cairn-raft --lib -- --nocapture simulation

# A cluster of real processes, hurt in every way for as long as asked, and what clients were told checked:
# make chaos MINUTES=60 SEED=1
MINUTES ?= 5
chaos: build test-tools
	$(CARGO) run --release --package cairn-tests --bin chaos -- \
	    --minutes $(MINUTES) $(if $(filter-out file,$(origin SEED)),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS))

# redis-py, ioredis and node-redis from their packages, and redis-cli; over TCP, TLS and a Unix socket.
clients: build test-tools
	tests/clients/run

# Job queues, locks and rate limiters, from their packages. Any server will do: make apps PORT=6379, which is
# emptied. ONLY="bull redlock" runs these alone.
apps: $(if $(PORT),,build) test-tools
	$(if $(PORT),CAIRN_TEST_ADDR=127.0.0.1:$(PORT)) $(if $(ONLY),ONLY="$(ONLY)") tests/apps/run

# Redis' own test suite, from Debian's source package; CLUSTER=1 against a cluster of one node.
conformance: build test-tools
	tests/conformance/run $(if $(CLUSTER),--cluster)

selftest: test-tools
	python3 -B -m unittest discover --start-directory tests/conformance
	python3 -B -m unittest discover --start-directory bench

# Cairn beside redis-server, into bench/RESULTS.md: make bench QUICK= ROUNDS=5 BENCH_SECONDS=0.8 BENCH_DIR=/var/tmp
# Servers that run already take part by BENCH_PEERS=name=port,name=port.
bench: build test-tools
	bench/run $(if $(QUICK),--quick) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	    $(if $(BENCH_SECONDS),--seconds $(BENCH_SECONDS)) $(if $(BENCH_DIR),--dir $(BENCH_DIR)) \
	    $(if $(BENCH_PEERS),--peers $(BENCH_PEERS))

# A cluster of three on this machine, into bench/CLUSTER.md: kills of leaders, transfers, writes beside etcd, reads beside
# a single server. Takes half an hour; QUICK=1 two minutes, and writes nothing.
bench-cluster: build test-tools bench-tools
	$(CARGO) run --release --package cairn-tests --bin bench_cluster -- \
	    $(if $(QUICK),--kills 3 --transfers 5 --rounds 1 --seconds 2,--report bench/CLUSTER.md) $(if $(ONLY),--only $(ONLY))

# How many instructions commands take, against the recorded figures; RECORD=1 records them.
instructions: build-tools test-tools
	$(CARGO) build --release --package cairn-server --example instructions
	tests/instructions/run $(if $(RECORD),--record)

# More data than memory: what reads cost, whether writes stall, what stays in memory. Takes half an hour and
# 15 GB; QUICK=1 a minute and 2 GB: make larger-than-memory MEGABYTES=5120 MEMORY=256 SECONDS=600 DIR=/var/tmp
larger-than-memory: build
	$(CARGO) run --release --package cairn-tests --bin larger_than_memory -- \
	    $(if $(QUICK),--megabytes 600 --memory 128 --seconds 15) $(if $(MEGABYTES),--megabytes $(MEGABYTES)) \
	    $(if $(MEMORY),--memory $(MEMORY)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(DIR),--dir $(DIR))

# Whether costs stay what they are when there is much: collections of millions, large strings, deletions, expiry
# in bulk. Takes half an hour and 2 GB; SCALE=small a minute or two: make bench-depth SCALE=small ONLY=strings,expiry
# DEPTH_DIR=/var/tmp
bench-depth: build
	$(CARGO) run --release --package cairn-tests --bin bench_depth -- \
	    $(if $(SCALE),--scale $(SCALE)) $(if $(ONLY),--only $(ONLY)) $(if $(DEPTH_DIR),--dir $(DEPTH_DIR))

# The same in small, with room for a machine that does other work: what is missed here grew with size.
depth: build
	$(CARGO) run --release --package cairn-tests --bin bench_depth -- \
	    --scale small $(if $(DEPTH_DIR),--dir $(DEPTH_DIR))

# Ten minutes of fuzzing the protocol parser, and ten of what RESTORE reads.
FUZZ_SECONDS ?= 600
fuzz: build-tools
	command -v cargo-fuzz >/dev/null || $(CARGO) install cargo-fuzz
	cd crates/resp && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run parser -- -max_total_time=$(FUZZ_SECONDS)
	cd crates/rdb && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run payload -- -max_total_time=$(FUZZ_SECONDS)

# What the build needs: a C++ compiler, libclang for RocksDB's bindings, Rust and what fetches it.
build-tools:
	@tools/install-missing \
	    ca-certificates 'ls /etc/ssl/certs/ca-certificates.crt' \
	    curl 'command -v curl || command -v $(firstword $(CARGO))' \
	    g++ 'command -v c++' \
	    libclang-dev 'ls /usr/lib/llvm-*/lib/libclang.so'
	@tools/install-rust $(CARGO)

# What the tests need: Redis itself to compare with, what unpacks its source, the clients' languages, and
# what counts instructions.
test-tools:
	@tools/install-missing \
	    redis-server 'command -v redis-server' \
	    redis-tools 'command -v redis-cli' \
	    tcl 'command -v tclsh' \
	    dpkg-dev 'command -v dpkg-source' \
	    debian-archive-keyring 'ls /usr/share/keyrings/debian-archive-keyring.gpg' \
	    python3 'command -v python3' \
	    python3-venv 'python3 -c "import ensurepip"' \
	    nodejs 'command -v node' \
	    npm 'command -v npm' \
	    openssl 'command -v openssl' \
	    valgrind 'command -v valgrind'

# What a cluster is measured beside.
bench-tools:
	@tools/install-missing \
	    etcd-server 'command -v etcd' \
	    etcd-client 'command -v etcdctl'

clean:
	$(CARGO) clean
