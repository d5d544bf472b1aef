# The few commands a person needs. `make` alone lists them.
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
# Executions of each fuzz target at the most (-1: no limit), the longest input in bytes (0: as the corpus has it), and
# the sanitizer: address, or none.
RUNS ?= -1
MAX_LEN ?= 0
SANITIZER ?= address
TARGET ?=
# What else `cargo fuzz run` is told: --no-trace-compares is three to five times as fast, and finds comparisons later.
FLAGS ?=
ROUNDS ?= 1000
CUTS ?= 200
SEEDS ?= 1000000
SEED ?= 0
# Tests of Python that run beside each other.
WORKERS ?= 2
PARTS ?= together alone
SPARK42 := target/spark42
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export NO_MKDOCS_2_WARNING := 1

# Everything the wheel is made of: when none of it is newer than the stamp, setup has nothing to do.
SOURCES := Cargo.toml Cargo.lock pyproject.toml README.md \
  $(shell find crates -name '*.rs' -not -path '*/tests/*' -not -path '*/benches/*' -not -path 'crates/bench/*' -not -path 'crates/testkit/*' -not -path 'crates/vectors/*') \
  $(wildcard crates/*/Cargo.toml) \
  $(shell find python -type f -not -name '*.pyc' -not -name '*.so' 2>/dev/null)

.PHONY: help
help: ## This list
	@printf 'Ackline. The commands:\n\n'
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'
	@printf '\nOptions: PYTHON=python3.12   EVENTS=500000 (demo)   ROUNDS=1000 (soak)   CUTS=200 (power)   SECONDS_EACH=300 RUNS=100000000 SANITIZER=none MAX_LEN=256 FLAGS=--no-trace-compares TARGET=link_ledger (fuzz)   SECONDS=600 (attack)   SEEDS=1000000 (sim)   ACKLINE_VECTORS=DIR (vectors)   ADVISORIES=DIR (audit)\n'

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
	$(BIN)/maturin build --release --locked --out $(WHEELS)
	@echo '== ackline into $(VENV), beside its extras'
	for wheel in $(WHEELS)/ackline-*.whl; do \
	  $(BIN)/python -m pip install --quiet --force-reinstall --no-deps "$$wheel"; \
	done
	@touch $@

.PHONY: demo
demo: setup ## Real senders, a receiver killed with -9, Spark, Parquet, and the count at the end
	$(BIN)/python examples/demo.py --events $(EVENTS)

.PHONY: sim
sim: ## Relink: SEEDS random schedules of calls, deliveries and cuts (SEED=N begins at one of them)
	cargo run --release --locked -p ackline-relink --example sim -- --seeds $(SEEDS) --seed $(SEED)

.PHONY: test
test: vectors test-rust test-python test-attacks test-spark test-interop test-docs test-features ## Every test: vectors, Rust, Python, Spark, real peers, examples

.PHONY: vectors
vectors: setup ## The conformance vectors in Rust and in Python; ACKLINE_VECTORS names one more folder
	@status=0; \
	cargo run --profile checked --locked --quiet --bin ackline-vectors -- tests/vectors $${ACKLINE_VECTORS:+"$$ACKLINE_VECTORS"} || status=1; \
	$(BIN)/python tests/python/conformance/run_vectors.py tests/vectors $${ACKLINE_VECTORS:+"$$ACKLINE_VECTORS"} || status=1; \
	exit $$status

.PHONY: quick
quick: setup ## The fast checks before a commit: formats, lints of what changed, unit tests, vectors, Python without Spark
	@.ci/quick

# Examples are built where a test needs them, and clippy checks all of them.
.PHONY: build-tests
build-tests:
	@.ci/need cargo cc
	cargo test --profile checked --locked --workspace --tests --no-run

.PHONY: test-rust
test-rust: build-tests
	@status=0; \
	cargo test --profile checked --locked --workspace --no-fail-fast --tests || status=1; \
	cargo test --profile checked --locked --workspace --no-fail-fast --doc || status=1; \
	exit $$status

# With the versions of the workspace: cargo takes the lines that it needs out of this file.
.PHONY: test-features
test-features: ## A crate outside the workspace that uses `ackline` with bpmux alone connects and calls
	@.ci/need cargo cc
	cp Cargo.lock tests/features/bpmux_user/Cargo.lock
	CARGO_TARGET_DIR=target/features cargo run --quiet --manifest-path tests/features/bpmux_user/Cargo.toml

# pytest FOLDER: the tests beside each other, then those that measure time or memory, one by one.
pytest = status=0; \
  $(if $(filter together,$(PARTS)),$(BIN)/python -m pytest $(1) -m 'not alone' -n $(WORKERS) || status=1;) \
  $(if $(filter alone,$(PARTS)),$(BIN)/python -m pytest $(1) -m alone || status=1;) \
  exit $$status

.PHONY: test-python
test-python: setup
	@$(call pytest,tests/python)

.PHONY: test-attacks
test-attacks: setup
	@$(call pytest,tests/attacks)

# How long `make attack` goes on.
SECONDS ?= 600
.PHONY: attack
attack: setup ## Attacks drawn by chance on a receiver, one to three at once, for SECONDS
	cd tests/attacks && $(CURDIR)/$(BIN)/python storm.py $(SECONDS)

.PHONY: attack-table
attack-table: $(VENV)/.stamp-tools ## The figures of the last `make test-attacks`, into docs/security.md
	cd tests/attacks && $(CURDIR)/$(BIN)/python table.py

.PHONY: test-spark
test-spark: setup $(SPARK42)/.stamp
	# One session at a time: two of them on two cores wait for each other beyond their deadlines.
	$(BIN)/python -m pytest tests/spark
	PYTHONPATH=$(CURDIR)/$(SPARK42) $(BIN)/python -m pytest tests/spark/test_contract.py \
	  tests/spark/test_sink.py::test_rows_of_every_type_arrive_as_their_json \
	  tests/spark/test_sink.py::test_a_stream_goes_on_where_its_checkpoint_stands

# The oldest Spark that is supported, before the one of the environment on the path.
$(SPARK42)/.stamp: $(VENV)/.stamp-tools
	@echo '== Spark 4.2 for the contract test, once'
	rm -rf $(SPARK42)
	$(BIN)/python -m pip install --quiet --no-deps --target $(SPARK42) pyspark==4.2.0
	@touch $@

.PHONY: spark42
spark42: $(SPARK42)/.stamp

# What the tests with real peers are built of.
.PHONY: peers
peers: setup
	@.ci/need node maven
	$(BIN)/python tests/interop/peers.py

.PHONY: test-interop
test-interop: peers
	@$(call pytest,tests/interop)

.PHONY: test-docs
test-docs: setup
	# Programs that start Spark sessions of their own, one at a time as well.
	$(BIN)/python -m pytest tests/docs

.PHONY: lint
lint: setup ## Formatting, clippy, ruff, mypy, stubtest, modules as `make sync` writes them, layers, licences
	.ci/lint

.PHONY: sync
sync: $(VENV)/.stamp-tools ## Write the Python modules for threads from those for asyncio
	@$(BIN)/python .ci/sync

.PHONY: audit
audit: ## Dependencies: licences, bans, sources and, from a local copy of RustSec's database, known vulnerabilities
	@ADVISORIES='$(ADVISORIES)' .ci/audit

.PHONY: lock
lock: $(VENV)/.stamp-tools ## .ci/requirements.lock anew: the newest versions that .ci/requirements.txt and the extras allow, with hashes
	.ci/lock

.PHONY: kill
kill: setup ## The long kill test: receiver 20 times, driver and workers 5 times each, every acked event counted
	$(BIN)/python tests/spark/kill_test.py --receiver-kills 20 --driver-kills 5 --worker-kills 5

.PHONY: soak
soak: setup ## The kill test over ROUNDS=1000 kills of receiver, driver and workers: an hour or more
	$(BIN)/python tests/spark/kill_test.py --rounds $(ROUNDS) --pause 0.2

.PHONY: power
power: setup ## CUTS=200 power cuts of a spool on ext4 and on XFS, every acked event counted: root only (about 15 minutes)
	$(BIN)/python tests/power/power.py --cuts $(CUTS)

.PHONY: bench
bench: setup ## The figures of docs/performance.md, measured again on this machine
	$(BIN)/python tests/bench/run.py

.PHONY: callgrind
callgrind: ## Instructions for each event of receiving, landing and writing, against what is noted
	@.ci/need python cargo cc valgrind
	$(PYTHON) tests/bench/instructions.py $(or $(NOTE),--check)

.PHONY: model
model: ## The models of Relink and of the spool: every state of the largest plans, and Relink's traces against the machines (5 to 15 minutes)
	@.ci/need cargo cc
	cargo run --profile checked --locked --quiet --bin ackline-model

.PHONY: fuzz
fuzz: ## The fuzz targets, SECONDS_EACH=300 seconds or RUNS executions each; SANITIZER=none is many times faster
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
figures: $(VENV)/.stamp-tools ## Figures of the structure: lines of each protocol in its crate and outside, functions, files
	@$(BIN)/python .ci/figures

.PHONY: docs
docs: $(VENV)/.stamp-tools ## The documentation, built strictly into site/
	$(BIN)/mkdocs build --strict --quiet
	@echo 'built: site/index.html'

.PHONY: clean
clean: ## Remove .venv, site/ and build output
	rm -rf $(VENV) site target fuzz/target
