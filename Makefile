# Millrace: the commands of daily work. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Outside the clone, so that several clones share what they have built.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/millrace-target
export FUZZ_SECONDS ?= 60
# The linker of this processor may fold equal functions, of which generic code has many; others can't.
comma := ,
FOLD := $(if $(filter x86_64,$(shell uname -m)),$(comma)--icf=all)
# Where rustup and cargo put their programs, for shells that have not been told.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help setup build demo check test soak bench package lint fuzz clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what building, the demo and the tests need
	@tools/setup

build: ## build the release binary out/millrace, and out/millrace.debug
	@cargo rustc --release --locked --package millrace --bin millrace -- -C link-arg=-Wl,-z,pack-relative-relocs$(FOLD)
	@tools/split-debug "$$CARGO_TARGET_DIR/release/millrace" out/millrace

demo: setup build ## carry real traffic between two hosts and show what happened
	@tools/demo

check: lint ## lint, and run unit and conformance tests: a few minutes
	@tools/test --quick

# Lint and build have folders of their own, and neither keeps both processors busy.
test: setup ## set up, lint, build, run every test, and fuzz for minutes
	@$(MAKE) --no-print-directory build & build=$$!; trap 'kill $$build 2> /dev/null || true' EXIT; \
	    $(MAKE) --no-print-directory lint; wait $$build
	@tools/setup fuzz
	@tools/test

soak: build ## churn for an hour (MILLRACE_SOAK_SECONDS), and repeat faults for minutes
	@cargo test --locked --package millrace-tests --test scenarios -- --ignored --show-output soak::

bench: build ## measure everything beside its peers: out/bench.html, out/bench.json
	@out/millrace bench all --html out/bench.html --json > out/bench.json

package: build ## make a Debian package with the service, manual pages and completions in out/
	@tools/package out/millrace out

lint: ## formatting, clippy, dependency rules and shell syntax
	@tools/setup lint
	@tools/lint

fuzz: ## fuzz each target for FUZZ_SECONDS (60)
	@tools/setup fuzz
	@tools/fuzz

clean: ## remove the binary and everything that was built
	@cargo clean --quiet
	@rm -rf out "$$CARGO_TARGET_DIR-fuzz"
