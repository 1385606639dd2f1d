# Needs make, a Python >= 3.11 with pip and venv, and (optional, for the C kernels) a C compiler. Everything else is installed into .venv.
#
#   make demo    real photographs through a training loop, before and after (at most three minutes with the set-up)
#   make test    the core suite
#   make check   what a change must pass: style, types, layers, guards, docs, slow tests, real other packages, kernels under sanitizers,
#                other Pythons
#   make fuzz    each fuzzer for FUZZ_SECONDS, then the property tests with all their examples
#   make bench   the benchmarks behind the table in the README
#   make clean   remove what these made

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.NOTPARALLEL:
.DELETE_ON_ERROR:

# Else each of thousands of processes would compile each module anew. `make clean` removes what this writes.
unexport PYTHONDONTWRITEBYTECODE

PYTHONS := 3.11 3.12 3.13
PYTHON ?= $(shell tools/find_python $(PYTHONS) 3.14)
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# What an installation depends on; the Python files are read from src, so a change there needs no new one.
RECIPE := pyproject.toml $(wildcard setup.py src/penstock/kernels/*.[ch])
# The tests run in so many processes: one more than there are CPUs, for some tests wait.
TEST_PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(1 + len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)))')
GUARDS := sizes tests_mirror raises rooms
# Of the core suite, those whose tests need the pictures of the demo or PyTorch, which `make test` does not install.
SHOWN := tests/cli/test_demo.py tests/cli/test_photos.py tests/observe/test_timeline.py tests/examples/test_classic.py

.PHONY: help demo test check fuzz bench clean style types layers guards docs slow interop sanitize pythons

help:
	@sed -n 's/^#   //p' Makefile

demo: .venv/.demo
	@.venv/bin/penstock demo

test: .venv/.test
	@.venv/bin/python -m pytest -q -m "not slow" -n $(TEST_PROCESSES) --hypothesis-profile=quick

check: style types layers guards docs slow interop sanitize pythons
	@echo "check: all passed"

FUZZ_SECONDS ?= 60
FUZZERS := $(filter-out running,$(notdir $(basename $(wildcard fuzz/*.py))))

fuzz: .venv/.fuzz
	@for name in $(FUZZERS); do \
		echo "== $$name"; mkdir -p "build/fuzz/$$name"; \
		.venv/bin/python "fuzz/$$name.py" -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=build/fuzz/ "build/fuzz/$$name" "fuzz/corpus/$$name"; \
	done
	@.venv/bin/python -m pytest -q -m "not slow" -n $(TEST_PROCESSES) --hypothesis-profile=thorough tests/laws tests/_order tests/kernels tests/formats

bench: .venv/.bench
	@.venv/bin/python benchmarks

clean:
	rm -rf .venv .venv-* build dist demo-out bench-data .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf src/*.egg-info src/penstock/kernels/*.so
	find src tests tools benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

# The parts of `make check`, quickest first.

style: .venv/.check
	@echo "== style (ruff)"
	@.venv/bin/ruff check --quiet
	@.venv/bin/ruff format --check --quiet || { echo "not formatted (run .venv/bin/ruff format):"; .venv/bin/ruff format --check; }

types: .venv/.check
	@echo "== types (mypy --strict)"
	@.venv/bin/mypy

layers: .venv/.check
	@echo "== layers (import-linter)"
	@.venv/bin/lint-imports --no-cache --no-logo

guards: .venv/.check
	@echo "== guards"
	@status=0; for guard in $(GUARDS); do .venv/bin/python "tools/check_$$guard.py" || status=1; done; exit $$status

docs: .venv/.check
	@echo "== snippets of README.md and docs/"
	@.venv/bin/python tools/check_docs.py

slow: .venv/.check
	@echo "== slow tests"
	@.venv/bin/python -m pytest -q -m slow -n auto --ignore=tests/interop

# TensorFlow, PyTorch and the others choose releases of NumPy and protobuf; so they have an environment of their own.
interop: .venv-interop/.interop
	@echo "== with TensorFlow, PyTorch, webdataset, datasets, grain; and the demo"
	@.venv-interop/bin/python -m pytest -q tests/interop $(SHOWN) -n auto

sanitize: .venv/.check
	@echo "== C kernels under AddressSanitizer"
	@.venv/bin/python tools/fuzz_kernels.py

pythons: .venv/.check
	@own=$$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); missing=""; \
	for version in $(PYTHONS); do \
		if [ "$$version" = "$$own" ]; then echo "== Python $$version: that of .venv, run by make test"; \
		elif tools/find_python "$$version" >/dev/null; then $(MAKE) --no-print-directory "test-$$version"; \
		else missing="$$missing $$version"; fi; \
	done; \
	if [ -n "$$missing" ]; then echo "== NOT RUN, no such Python was found here:$$missing"; fi

test-%: .venv-%/.test
	@echo "== core suite on Python $*"
	@.venv-$*/bin/python -m pytest -q -m "not slow" -n $(TEST_PROCESSES) --hypothesis-profile=quick -p no:cacheprovider

# Virtual environments. A stamp tells what is installed; .venv grows by what a target needs.

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "no Python among $(PYTHONS) with venv and pip was found; name one: make PYTHON=/path/to/python3"; exit 1; }
	@echo "making .venv with $(PYTHON)"
	@"$(PYTHON)" -m venv .venv

.venv/.demo: $(RECIPE) | .venv/bin/python
	@echo "installing Penstock and what the demo shows into .venv (the first time about half a minute)"
	@.venv/bin/python $(PIP_INSTALL) -e '.[demo]'
	@touch $@

.venv/.test: $(RECIPE) | .venv/bin/python
	@echo "installing Penstock and what its tests need into .venv (the first time about half a minute)"
	@.venv/bin/python $(PIP_INSTALL) -e '.[test]'
	@touch $@

.venv/.check: $(RECIPE) | .venv/bin/python
	@echo "installing Penstock and what its checks need into .venv (the first time about a minute)"
	@.venv/bin/python $(PIP_INSTALL) -e '.[demo,test,lint]'
	@touch $@

.venv/.bench: $(RECIPE) | .venv/bin/python
	@echo "installing Penstock and what the benchmarks compare it with into .venv (PyTorch: some minutes)"
	@.venv/bin/python $(PIP_INSTALL) -e '.[bench]'
	@touch $@

.venv/.fuzz: $(RECIPE) | .venv/bin/python
	@.venv/bin/python $(PIP_INSTALL) -e '.[test,fuzz]'
	@touch $@

.venv-interop/bin/python:
	@echo "making .venv-interop"
	@"$(PYTHON)" -m venv .venv-interop

.venv-interop/.interop: $(RECIPE) | .venv-interop/bin/python
	@echo "installing Penstock, TensorFlow, PyTorch and others into .venv-interop (some minutes)"
	@.venv-interop/bin/python $(PIP_INSTALL) -e '.[demo,test,interop]'
	@touch $@

.PRECIOUS: .venv-%/bin/python .venv-%/.test
.venv-%/bin/python:
	@echo "making .venv-$*"
	@"$$(tools/find_python $*)" -m venv .venv-$*

.venv-%/.test: $(RECIPE) | .venv-%/bin/python
	@echo "installing Penstock and what its tests need into .venv-$*"
	@.venv-$*/bin/python $(PIP_INSTALL) -e '.[test]'
	@touch $@
