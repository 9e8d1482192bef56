# The few commands people type. CI runs `make test`, nothing else.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO_DENY := .cache/bin/cargo-deny
IMAGE ?= pod-safety:dev

# `$(call timed,NAME) COMMAND` says afterwards how long it took.
timed = TIMEFORMAT='== $(1): %0R s'; time

MINUTES ?= 10
export MINUTES

TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
# README's first command as it stands, beside what the tests build: with their dependencies, and a program of its own.
AS_TYPED := CARGO_TARGET_DIR=$(TARGET)/typed CARGO_BUILD_BUILD_DIR=$(TARGET)
# As in the container image, without the demonstration; the suites start it. Tests of the demonstration need the other one.
PROGRAM := $(TARGET)/debug/as-shipped/pod-safety
# The suites wait for the program, not for its speed. The crates below it are built as the tests need them, so that each is
# compiled once.
PROGRAM_BUILD := --no-default-features --features pod-safety-shared/testing
NEXTEST := .cache/bin/cargo-nextest nextest run --workspace --locked
# Of Kubernetes, beside the one that all tests run with.
KUBERNETES_VERSION := $(shell sed -n 's|^\tk8s.io/kubernetes v|v|p' tests/control-plane/tools/kubernetes/go.mod)
OTHER_VERSIONS := $(shell cat tests/control-plane/tools/kubernetes/versions)

.PHONY: help demo try test test-all build mutants promises install fmt lint unit control-plane test-nodes test-nodes-all histories campaign perturb fuzz bench drains scale docs image image-agents kind kind-shell kind-delete test-kind advisories workflows clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

demo: ## a simulated cluster in trouble, live in this terminal; needs Rust alone
	@cargo run --locked -- demo

try: install ## a small cluster on this machine with pod-safety in it, to look at
	@cargo run --quiet --locked --profile test -p pod-safety-control-plane --example try

test: install lint build ## everything that CI checks, on a fresh machine too; .config/nextest.toml says what runs beside what
	@$(call timed,documentation tests) cargo test --quiet --workspace --doc --locked
	@verdict=0; POD_SAFETY_PROGRAM=$(PROGRAM) $(NEXTEST) || verdict=$$?; ./tests/times.sh; exit $$verdict

test-all: install lint build ## the same and what only repeats earlier proof: image, benchmark, long strikes, kube-controller-manager itself, other versions of Kubernetes, fuzzing, mutants; hours
	@$(call timed,documentation tests) cargo test --quiet --workspace --doc --locked
	@verdict=0; POD_SAFETY_PROGRAM=$(PROGRAM) $(NEXTEST) --profile all || verdict=$$?; ./tests/times.sh all; exit $$verdict
	@$(foreach version,$(OTHER_VERSIONS),$(call timed,Kubernetes $(version)) POD_SAFETY_PROGRAM=$(PROGRAM) \
		$(MAKE) --no-print-directory control-plane KUBERNETES=$(version);)
	@$(call timed,image of agents) ./tests/image/agents.sh
	@$(call timed,fuzz) $(MAKE) --no-print-directory fuzz MINUTES=60
	@$(call timed,promises) $(MAKE) --no-print-directory promises
	@$(call timed,mutants) $(MAKE) --no-print-directory mutants SHARD=$$((10#$$(date +%j) % 8))/8

build: # all tests, and the program as it is shipped, which the suites start
	@$(call timed,program) cargo build --quiet --locked --profile test --workspace --bin pod-safety $(PROGRAM_BUILD)
	@mkdir -p $(dir $(PROGRAM)) && ln -f $(TARGET)/debug/pod-safety $(PROGRAM)
	@$(call timed,tests built) cargo test --quiet --workspace --locked --no-run
	@$(call timed,demo) $(AS_TYPED) cargo run --quiet --locked -- version >/dev/null

install: ## what the tests need beyond Rust, Go and Debian; quick when it is there
	@$(call timed,install) ./tests/install.sh

fmt: ## write all sources in the one format
	@cargo fmt --all

lint: $(CARGO_DENY) ## format, messages of new commits, clippy, documentation, licences and bans
	@$(call timed,format) cargo fmt --all --check
	@./tests/locks/commits.sh
	@$(call timed,clippy) cargo clippy --quiet --workspace --all-targets --locked -- --deny warnings
	@export RUSTDOCFLAGS='--deny warnings'; \
	$(call timed,documentation) cargo doc --quiet --workspace --no-deps --locked
	@$(call timed,licences and bans) $(CARGO_DENY) --log-level error check bans licenses sources

unit: ## the tests that need neither a control plane nor a release build: seconds
	@cargo test --locked --workspace --exclude={pod-safety-devices,pod-safety-{control-plane,locks,image,mutants,bench,real-nodes,simulator,fuzz,kernel-search}}
	@cargo test --locked -p pod-safety-devices --lib

control-plane: install ## the suites against the real kube-apiserver, etcd and kubectl; KUBERNETES=1.32: their core against that version
	@$(if $(KUBERNETES),$(NEXTEST) --profile core,cargo test --locked -p pod-safety-control-plane)

test-nodes: install ## the short set on real nodes: kubelets, containers, partitions, power cuts; needs root
	@./tests/real-nodes/scripts/tools.sh >/dev/null
	@cargo test --locked -p pod-safety-real-nodes

# Not part of `test`: two hours. ROUNDS and SEED are of the faults by chance. A run that passes writes its record, as those of bench, mutants and test-kind do.
test-nodes-all: install ## every scenario three ways, then faults by chance; writes the table of tests/records/real-nodes.md
	@./tests/real-nodes/scripts/tools.sh >/dev/null; \
	cargo run --quiet --locked --profile test -p pod-safety-real-nodes -- --helm; \
	cargo run --quiet --locked --profile test -p pod-safety-real-nodes -- --hollow; \
	cargo run --quiet --locked --profile test -p pod-safety-real-nodes -- --requests; \
	cargo run --quiet --locked --profile test -p pod-safety-real-nodes -- --rounds $(or $(ROUNDS),50) --seed $(or $(SEED),1) --table tests/records/real-nodes.md; \
	tests/records/write.sh test-nodes-all outcome=passed seconds=$$SECONDS kubernetes=$(KUBERNETES_VERSION) figure="rounds by chance: $(or $(ROUNDS),50), seed $(or $(SEED),1)"

histories: ## two hours: HISTORIES=1000 of kubelets without containers on NODES=24, drawn from SEED=1
	@cargo run --quiet --locked --profile test -p pod-safety-real-nodes -- --histories $(or $(HISTORIES),1000) --nodes $(or $(NODES),24) --seed $(or $(SEED),1)

campaign: ## simulated clusters for MINUTES (10) from a seed drawn by chance; EXHAUSTIVE=1: `make perturb`
	@cargo run --release --quiet --locked -p pod-safety-simulator --example campaign -- $(if $(EXHAUSTIVE),perturb)

perturb: ## a strike at every call and every event of every scenario
	@cargo run --release --quiet --locked -p pod-safety-simulator --example campaign -- perturb

fuzz: ## each fuzz target under libFuzzer for its share of MINUTES (10); ONLY=WORD takes some, KEEP=1 keeps what reached new code
	@./tests/fuzz/run.sh

# One operator, answer, arm or field of the code that safety rests on is changed at a time. tests/records/mutants.md has the figures.
# FILES and SHARD=K/N take a part; only the whole of it writes the tables anew.
MUTATED := shared/proof/** shared/src/authority/** shared/fence/src/** shared/leader/src/** shared/cache/src/** shared/client/src/** \
	controllers/pod-gc/src/** controllers/disruption/src/** controllers/node-lifecycle/src/** controllers/taint-eviction/src/** \
	controllers/fencing/src/** controllers/volume-guard/src/** controllers/eviction/src/** controllers/drain/src/**
mutants: ## changes in the code that safety rests on which no unit test notices
	@[ -x .cache/bin/cargo-mutants ] || cargo install --quiet --debug --locked --version 27.1.0 --root .cache cargo-mutants
	@mkdir -p $(TARGET)/mutants
	@.cache/bin/cargo-mutants mutants --list --json $(foreach place,$(or $(FILES),$(MUTATED)),--file '$(place)') >$(TARGET)/mutants/list.json
	@cargo run --quiet --locked -p pod-safety-mutants -- mutants $(TARGET)/mutants/list.json --work $(TARGET)/mutants $(if $(JOBS),--jobs $(JOBS)) \
		$(if $(SHARD),--shard $(SHARD),$(if $(FILES),,--write tests/records/mutants.md)) $(if $(SHARD)$(FILES),,; \
	tests/records/write.sh mutants outcome=passed seconds=$$SECONDS)

# Each sentence that promises something has a row in tests/promises: the code that makes it true, a change of meaning that breaks it,
# and the unit test that notices. ONLY=pod-safety-proof takes one package, DRAW=20 one of twenty.
promises: ## each promise of the pages is broken once in the code, and its test must fail
	@cargo run --quiet --locked --profile test -p pod-safety-mutants -- promises --work $(TARGET)/promises $(if $(ONLY),--only $(ONLY)) $(if $(DRAW),--draw $(DRAW))

bench: install ## two hours: the numbers beside kube-controller-manager's; writes docs/benchmarks.md, its picture and its file of numbers
	@cargo run --release --locked -p pod-safety-bench -- --docs docs; \
	tests/records/write.sh bench outcome=passed seconds=$$SECONDS kubernetes=$(KUBERNETES_VERSION)

drains: install ## 20 minutes: 1,000 nodes drained by kubectl and by pod-safety in turn; writes their tables in docs/benchmarks.md
	@cargo build --quiet --release --locked -p pod-safety -p pod-safety-bench --no-default-features
	@$(TARGET)/release/pod-safety-bench drains --pod-safety $(TARGET)/release/pod-safety --docs docs

scale: ## 40 minutes: made-up clusters of up to 130,000 nodes; writes the tables and pictures of docs/scale.md
	@cargo build --quiet --release --locked -p pod-safety -p pod-safety-bench --no-default-features
	@$(TARGET)/release/pod-safety-bench sizes --pod-safety $(TARGET)/release/pod-safety

# No tool of `make install`, for only this needs it. mdbook is of the version for which mdbook-mermaid was made: another one is a
# warning. In the book, links out of docs/ lead to the repository.
BOOK := $(TARGET)/book
REPOSITORY := https://github.com/pod-safety/pod-safety/blob/main
docs: ## docs/ as a book, in target/book/index.html
	@[ -x .cache/bin/mdbook ] || cargo install --quiet --debug --locked --version 0.5.0 --no-default-features --features search --root .cache mdbook
	@[ -x .cache/bin/mdbook-mermaid ] || cargo install --quiet --debug --locked --version 0.17.1 --root .cache mdbook-mermaid
	@rm -rf $(BOOK) $(BOOK)-source && mkdir -p $(BOOK)-source && cp -r book.toml docs $(BOOK)-source
	@sed -i 's#](\.\./#]($(REPOSITORY)/#g' $(BOOK)-source/docs/*.md
	@sed -i 's#](\.\./\.\./#]($(REPOSITORY)/#g' $(BOOK)-source/docs/*/*.md
	@.cache/bin/mdbook-mermaid install $(BOOK)-source 2>/dev/null
	@said=$$(PATH="$(CURDIR)/.cache/bin:$$PATH" mdbook build --dest-dir $(BOOK) $(BOOK)-source 2>&1) || { echo "$$said"; exit 1; }; \
	! grep -iE 'warn|error' <<<"$$said"

BUILD_IMAGE = docker build --build-arg REVISION="$$(git rev-parse HEAD)" $(if $(RUST_IMAGE),--build-arg RUST_IMAGE=$(RUST_IMAGE))
image: ## build the container image, pod-safety:dev (or IMAGE); needs a container engine; RUST_IMAGE names the compiler's
	@$(BUILD_IMAGE) --tag $(IMAGE) .

image-agents: ## build the image of the sidecar, pod-safety:dev-agents, with Debian's fence agents
	@$(BUILD_IMAGE) --target agents --tag $(IMAGE)-agents .

kind: ## a kind cluster of three nodes with pod-safety in it, to play with; needs Docker, or Debian and root
	@./tests/kind/up.sh

kind-shell: ## a shell in which kubectl, helm and docker mean that cluster
	@./tests/kind/with.sh $(SHELL) || true

kind-delete: ## take it away again
	@./tests/kind/down.sh

# Not part of `test`: it takes ten minutes, and the first time half an hour where no images can be pulled.
test-kind: install ## install it there as README says, lose a node, fence it, look with Prometheus; writes tests/records/test-kind.toml
	@./tests/kind/test.sh

# Not part of `test`: the advisory database is fetched from its public repository, so this needs the network,
# and what it finds depends on the day, not on the commit.
advisories: $(CARGO_DENY) ## known vulnerabilities in what we depend on (needs the network)
	@$(CARGO_DENY) check advisories

# Not part of `test`: .ci/run is one of the steps, and others take hours.
workflows: ## each `run:` step of .github/workflows, in order, on a clean clone, but for a few; ONLY='release command' takes one job
	@cargo run --quiet --locked --profile test -p pod-safety-locks --example workflows -- $(ONLY)

clean: ## remove build output (the installed tools in .cache stay)
	@cargo clean

$(CARGO_DENY):
	@./tests/install.sh
