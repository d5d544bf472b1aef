# The commands of this repository. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory --no-builtin-rules
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WHEELS := target/wheels
EVENTS ?= 200000
SECONDS_EACH ?= 300
# Most executions of each fuzz target (-1: no limit), the longest input in bytes (0: as in the corpus), and the
# sanitizer: address or none.
RUNS ?= -1
MAX_LEN ?= 0
SANITIZER ?= address
TARGET ?=
# More options of `cargo fuzz run`: --no-trace-compares is three to five times as fast, but finds comparisons later.
FLAGS ?=
ROUNDS ?= 1000
CUTS ?= 200
SEEDS ?= 1000000
SEED ?= 0
# Tests of Python that run at the same time.
WORKERS ?= 2
PARTS ?= together alone
SPARK42 := target/spark42
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export NO_MKDOCS_2_WARNING := 1

# The sources of the wheel: when none of them is newer than the stamp, setup has nothing to do.
SOURCES := Cargo.toml Cargo.lock pyproject.toml README.md \
  $(shell find crates -name '*.rs' -not -path '*/tests/*' -not -path '*/benches/*' -not -path 'crates/bench/*' -not -path 'crates/testkit/*' -not -path 'crates/vectors/*') \
  $(wildcard crates/*/Cargo.toml) .ci/jar $(shell find jvm -type f) \
  $(shell find python -type f -not -name '*.pyc' -not -name '*.so' -not -name '*.jar' 2>/dev/null)

.PHONY: help
help: ## Print this list
	@printf 'Ackline. The commands:\n\n'
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-19s %s\n", $$1, $$2 }'
	@printf '\nOptions: PYTHON=python3.12   EVENTS=500000 (demo)   ROUNDS=1000 (soak)   CUTS=200 (power)   SECONDS_EACH=300 RUNS=100000000 SANITIZER=none MAX_LEN=256 FLAGS=--no-trace-compares TARGET=link_ledger (fuzz)   SECONDS=600 (attack)   SEEDS=1000000 SEED=0 (sim)   NOTE=--note (callgrind)   BUYER=--kill (buyer)   PARTS=together WORKERS=2 (test-python)   ACKLINE_VECTORS=DIR (vectors)   ADVISORIES=DIR (audit)\n'

.PHONY: setup
setup: $(VENV)/.stamp-wheel ## Build everything once and install it with all extras into .venv
	@echo "ready: $(BIN)/ackline and $(BIN)/python"

$(VENV)/.stamp-tools: .ci/requirements.lock .ci/need
	@.ci/need python cargo cc java go
	@echo '== tools into $(VENV)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r .ci/requirements.lock
	@touch $@

$(VENV)/.stamp-wheel: $(VENV)/.stamp-tools $(SOURCES)
	@echo '== release build of the wheel (3 to 5 minutes the first time)'
	rm -f $(WHEELS)/ackline-*.whl
	.ci/jar
	$(BIN)/maturin build --release --locked --out $(WHEELS)
	@echo '== ackline into $(VENV), beside its extras'
	for wheel in $(WHEELS)/ackline-*.whl; do \
	  $(BIN)/python -m pip install --quiet --force-reinstall --no-deps "$$wheel"; \
	done
	@touch $@

.PHONY: demo
demo: setup ## Run real senders, a receiver killed with -9, Spark and Parquet, and count the events at the end
	$(BIN)/python examples/demo.py --events $(EVENTS)

.PHONY: sim
sim: ## Run SEEDS random schedules of calls, deliveries and cuts of Relink (from SEED=N on)
	cargo run --release --locked -p ackline-relink --example sim -- --seeds $(SEEDS) --seed $(SEED)

.PHONY: test
test: vectors test-rust test-python test-attacks test-spark test-interop test-docs test-features ## Run every test: vectors, Rust, Python, attacks, Spark, real peers, examples, features

.PHONY: vectors
vectors: setup ## Run the conformance vectors in Rust and in Python; ACKLINE_VECTORS adds a folder
	@status=0; \
	cargo run --profile checked --locked --quiet --bin ackline-vectors -- tests/vectors $${ACKLINE_VECTORS:+"$$ACKLINE_VECTORS"} || status=1; \
	$(BIN)/python tests/python/conformance/run_vectors.py tests/vectors $${ACKLINE_VECTORS:+"$$ACKLINE_VECTORS"} || status=1; \
	exit $$status

.PHONY: quick
quick: setup ## Run the fast checks before a commit: formats, lints of changed files, unit tests, vectors, Python without Spark
	@.ci/quick

# Examples are built where a test needs them, and clippy checks all of them.
.PHONY: build-tests
build-tests: ## Build the tests of Rust
	@.ci/need cargo cc
	cargo test --profile checked --locked --workspace --tests --no-run

.PHONY: test-rust
test-rust: build-tests ## Run the tests of Rust, with those in the documentation
	@status=0; \
	cargo test --profile checked --locked --workspace --no-fail-fast --tests || status=1; \
	cargo test --profile checked --locked --workspace --no-fail-fast --doc || status=1; \
	exit $$status

# pytest FOLDER: first the tests that may run at the same time, then those that measure time or memory, one by one.
pytest = status=0; \
  $(if $(filter together,$(PARTS)),$(BIN)/python -m pytest $(1) -m 'not alone' -n $(WORKERS) --dist worksteal || status=1;) \
  $(if $(filter alone,$(PARTS)),$(BIN)/python -m pytest $(1) -m alone || status=1;) \
  exit $$status

.PHONY: test-python
test-python: setup ## Run the tests of tests/python; PARTS=together or PARTS=alone runs a part
	@$(call pytest,tests/python)

.PHONY: test-attacks
test-attacks: setup ## Run each attack on a receiver, and check memory, descriptors and latency
	@$(call pytest,tests/attacks)

# Duration of `make attack`, in seconds.
SECONDS ?= 600
.PHONY: attack
attack: setup ## Run random attacks on a receiver, one to three at once, for SECONDS
	cd tests/attacks && $(CURDIR)/$(BIN)/python storm.py $(SECONDS)

.PHONY: attack-table
attack-table: $(VENV)/.stamp-tools ## Write the figures of the last `make test-attacks` into docs/security.md
	cd tests/attacks && $(CURDIR)/$(BIN)/python table.py

.PHONY: test-spark
test-spark: setup $(SPARK42)/.stamp ## Run the tests of Spark, and the contract with its oldest supported release
	@.ci/need maven
	# One session at a time: on two cores two sessions would exceed their deadlines.
	$(BIN)/python -m pytest tests/spark
	PYTHONPATH=$(CURDIR)/$(SPARK42) $(BIN)/python -m pytest tests/spark/test_contract.py tests/spark/test_jar.py \
	  tests/spark/test_from_kafka.py \
	  tests/spark/test_sink.py::test_rows_of_every_type_arrive_as_their_json \
	  tests/spark/test_sink.py::test_a_stream_goes_on_where_its_checkpoint_stands

# The oldest supported Spark; PYTHONPATH puts it before the one of the environment.
$(SPARK42)/.stamp: $(VENV)/.stamp-tools
	@echo '== Spark 4.2 for the contract test, once'
	rm -rf $(SPARK42)
	$(BIN)/python -m pip install --quiet --no-deps --target $(SPARK42) pyspark==4.2.0
	@touch $@

.PHONY: spark42
spark42: $(SPARK42)/.stamp ## Install the oldest supported Spark beside the environment

.PHONY: peers
peers: setup ## Build the real peers of the interop tests: Go, Rust, npm, Maven
	@.ci/need node maven
	$(BIN)/python tests/interop/peers.py

.PHONY: test-interop
test-interop: peers ## Run the tests with real senders and receivers
	@$(call pytest,tests/interop)

# With the versions of the workspace: cargo takes the lines that it needs out of this file.
.PHONY: test-features
test-features: ## Run a crate outside the workspace that uses the crate ackline with bpmux alone
	@.ci/need cargo cc
	cp Cargo.lock tests/features/bpmux_user/Cargo.lock
	CARGO_TARGET_DIR=target/features cargo run --quiet --manifest-path tests/features/bpmux_user/Cargo.toml

.PHONY: test-docs
test-docs: setup ## Run the examples of the documentation and compare its tables with the product
	# Some examples start Spark sessions: one at a time here too.
	$(BIN)/python -m pytest tests/docs

.PHONY: lint
lint: setup ## Check formatting, clippy, ruff, mypy, stubtest, the modules that `make sync` writes, the layers, licences
	.ci/lint

.PHONY: sync
sync: setup ## Write all generated files: Python for threads, types of options and machines, the pages on options
	@$(BIN)/python .ci/sync
	@$(BIN)/python .ci/options
	@$(BIN)/python .ci/sansio-types

.PHONY: audit
audit: ## Check dependencies: licences, bans, sources; known vulnerabilities from a local copy of RustSec's database
	@ADVISORIES='$(ADVISORIES)' .ci/audit

.PHONY: lock
lock: $(VENV)/.stamp-tools ## Write .ci/requirements.lock: the newest versions that .ci/requirements.txt and the extras allow, with hashes
	.ci/lock

.PHONY: kill
kill: setup ## Run the long kill test: receiver 20 times, driver and workers 5 times each; count every acked event
	$(BIN)/python tests/spark/kill_test.py --receiver-kills 20 --driver-kills 5 --worker-kills 5

.PHONY: soak
soak: setup ## Run the kill test over ROUNDS=1000 kills of receiver, driver and workers: an hour or more
	$(BIN)/python tests/spark/kill_test.py --rounds $(ROUNDS) --pause 0.2

.PHONY: power
power: setup ## Run CUTS=200 power cuts of a spool on ext4 and on XFS; count every acked event: root only (about 15 minutes)
	$(BIN)/python tests/power/power.py --cuts $(CUTS)

.PHONY: bench
bench: setup ## Measure the figures of docs/performance.md on this machine
	$(BIN)/python tests/bench/run.py

# Options of the buyer's figure, such as BUYER='--rates 5000 --kill --rounds 1'; without them three runs.
BUYER ?=
.PHONY: buyer
buyer: setup $(SPARK42)/.stamp ## Measure Filebeat, Kafka, Spark, Parquet against Filebeat, Ackline, Spark, Parquet (two hours)
	@.ci/need python java go maven
ifeq ($(BUYER),)
	$(BIN)/python tests/bench/buyer.py
	# Filebeat's pauses of up to 10 s hide the latency of what follows it.
	$(BIN)/python tests/bench/buyer.py --rates 5000,20000 --profile defaults --profile recommended --eager-filebeat
	$(BIN)/python tests/bench/buyer.py --rates 5000 --profile defaults --kill
else
	$(BIN)/python tests/bench/buyer.py $(BUYER)
endif

.PHONY: callgrind
callgrind: ## Count the instructions for each event, and compare them with the noted figures; NOTE=--note writes them
	@.ci/need python cargo cc valgrind
	$(PYTHON) tests/bench/instructions.py $(or $(NOTE),--check)

.PHONY: model
model: ## Explore the models of Relink and of the spool, and replay Relink's traces against the machines (5 to 15 minutes)
	@.ci/need cargo cc
	cargo run --profile checked --locked --quiet --bin ackline-model

.PHONY: fuzz
fuzz: ## Run the fuzz targets, each for SECONDS_EACH=300 seconds or RUNS executions; SANITIZER=none is many times faster
	@.ci/need cargo cc
	@cargo fuzz --version >/dev/null 2>&1 || { echo '== cargo-fuzz'; cargo install --locked --version 0.13.2 cargo-fuzz; }
	@if cargo +nightly --version >/dev/null 2>&1; then run='cargo +nightly fuzz'; else export RUSTC_BOOTSTRAP=1; run='cargo fuzz'; fi; \
	for target in $(if $(TARGET),$(TARGET),$(notdir $(basename $(wildcard fuzz/fuzz_targets/*.rs)))); do \
	  echo "== $$target, $(SECONDS_EACH) s or $(RUNS) executions"; \
	  seeds=; if [ -d fuzz/seeds/$$target ]; then seeds=fuzz/seeds/$$target; fi; \
	  mkdir -p fuzz/corpus/$$target; \
	  $$run run -s $(SANITIZER) $(FLAGS) $$target fuzz/corpus/$$target $$seeds -- -max_total_time=$(SECONDS_EACH) -runs=$(RUNS) -max_len=$(MAX_LEN) -rss_limit_mb=2048; \
	  $$run cmin -s $(SANITIZER) $(FLAGS) $$target fuzz/corpus/$$target; \
	done

.PHONY: figures
figures: $(VENV)/.stamp-tools ## Print figures of the structure: lines of each protocol in its crate and outside, functions, files
	@$(BIN)/python .ci/figures

.PHONY: docs
docs: $(VENV)/.stamp-tools ## Build the documentation strictly into site/
	$(BIN)/mkdocs build --strict --quiet
	@echo 'built: site/index.html'

.PHONY: clean
clean: ## Remove .venv, site/ and build output
	rm -rf $(VENV) site target fuzz/target
