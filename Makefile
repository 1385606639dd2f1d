# Needs make, a Python >= 3.11 with pip and venv, and (optional, for the C kernels) a C compiler. Everything else is installed into .venv.
#
#   make demo    real photographs through a training loop, before and after (at most three minutes with the set-up)
#   make test    the core suite, three cells of each parametrized test; make check runs all
#   make check   what a change must pass: style, types, layers, guards, snippets, docs, the core suite with its branch coverage, slow tests,
#                real other packages, kernels under sanitizers, other Pythons
#   make wheels  the sdist and the wheels of a release in dist/, checked, and run where this machine can; the table is in build/wheels.md
#   make publish OUT=FOLDER   the site of this version beside those of earlier ones in FOLDER, with a selector
#   make docs    the documentation as a site in build/site, with the API reference; part of make check
#   make fuzz    each fuzzer for FUZZ_SECONDS, then the property tests with all their examples
#   make soak    SOAK_PLANS random plans through the laws of tests/laws, in processes of 250; prints seed and shortest plan of what fails;
#                then SOAK_RUNS runs that are broken off and resumed while their worker processes die, SOAK_MINUTES of feeds that must not grow,
#                1,000 programs that are killed, and SOAK_NODES nodes of a Ray cluster that are killed while a feed uses them
#   make bench   the benchmarks behind the table in the README
#   make house   how large and how tangled the source is, with ceilings and goals; WRITE=1 lowers the ceilings to it
#   make release-check
#                what a release must pass beside `make check`: builds into dist/, installs into empty environments, prints a table (some minutes)
#   make clean   remove what these made

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.NOTPARALLEL:
.DELETE_ON_ERROR:

# Else each of thousands of processes would compile each module anew. `make clean` removes what this writes.
unexport PYTHONDONTWRITEBYTECODE

PYTHONS := 3.11 3.12 3.13
# `make check` runs the core suite on the oldest, and most of it on the newest ones found. `make test-3.12` runs it on that one.
CHECKED_PYTHONS ?= 3.11 3.13 3.14
PYTHON ?= $(shell tools/find_python $(PYTHONS) 3.14)
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# What an installation depends on; the Python files are read from src, so a change there needs no new one.
RECIPE := pyproject.toml $(wildcard setup.py src/penstock/kernels/*.[ch])
# The tests run in so many processes: one more than there are CPUs, for some tests wait.
TEST_PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(1 + len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)))')
# The parts of `make check`, quickest first.
CHECKS := style types layers guards snippets docs coverage slow interop sanitize pythons
GUARDS := sizes tests raises rooms words
# The core suite.
CORE := -q -m "not slow" -n $(TEST_PROCESSES) --dist worksteal --hypothesis-profile=quick
# The part of it that the branch coverage of _engine, _order and _plan is measured with; a measured test takes 1.6 times as long.
MEASURED := $(addprefix tests/,_engine _order _plan _workers laws dataset/test_refusals.py)
# Folders of tests that hardly depend on the Python. Those of pickling, threads, processes, code objects and tracebacks do.
ANY_PYTHON := laws faults benchmarks examples formats image packing cli docs tools fuzz sources kernels observe _ops _order _storage dataset
# Of the core suite, the test that needs PyTorch, which .venv does not have.
WITH_TORCH := tests/examples/test_classic.py::test_the_net_ends_the_same_without_and_with_a_queue

.PHONY: help demo test check fuzz soak bench house wheels publish release-check clean $(CHECKS)

help:
	@sed -n 's/^#   //p' Makefile

demo: .venv/.demo
	@.venv/bin/python examples/demo/demo.py

test: .venv/.test
	@.venv/bin/python tools/run_tests.py $(CORE) --cells 3

# tools/timed writes what each took to build/cost.txt, which .ci/run prints. docs, interop and pythons install into environments of their own.
check:
	@tools/timed "  install" $(MAKE) --no-print-directory .venv/.check
	@for part in $(CHECKS); do tools/timed "  $$part" $(MAKE) --no-print-directory "$$part"; done
	@if [ -s build/unstable.txt ]; then echo "UNSTABLE, to be looked into (failed beside other tests, passed alone):"; sort -u build/unstable.txt; fi
	@echo "check: all passed"

FUZZ_SECONDS ?= 60
FUZZERS := $(filter-out running,$(notdir $(basename $(wildcard fuzz/*.py))))

fuzz: .venv/.fuzz
	@for name in $(FUZZERS); do \
		echo "== $$name"; mkdir -p "build/fuzz/$$name"; \
		.venv/bin/python "fuzz/$$name.py" -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=build/fuzz/ "build/fuzz/$$name" "fuzz/corpus/$$name"; \
	done
	@.venv/bin/python -m pytest -q -m "not slow" -n $(TEST_PROCESSES) --dist worksteal --hypothesis-profile=thorough tests/laws tests/_order tests/kernels tests/formats

SOAK_PLANS ?= 20000
SOAK_RUNS ?= 1000
SOAK_NODES ?= 50
SOAK_MINUTES ?= 30
SOAK_SEED ?=

soak: .venv/.test .venv-interop/.interop
	@.venv/bin/python tests/laws/soak.py $(SOAK_PLANS) $(SOAK_SEED)
	@.venv/bin/python tests/faults/kill_resume.py $(SOAK_RUNS) $(SOAK_SEED)
	@setsid --wait .venv/bin/python tests/faults/long_run.py $(SOAK_MINUTES)
	@SOAK_KILLS=112 .venv/bin/python -m pytest -q tests/faults/test_everything.py
	@.venv-interop/bin/python tests/interop/node_kills.py $(SOAK_NODES)

bench: .venv/.bench
	@.venv/bin/python benchmarks

WRITE ?=

house: .venv/.test
	@.venv/bin/python tools/house.py $(if $(WRITE),--write)

wheels: .venv/.wheels
	@.venv/bin/python tools/wheels.py

publish: docs
	@.venv-docs/bin/python tools/publish_docs.py $(OUT)

release-check: .venv-docs/.docs
	@"$(PYTHON)" tools/release_check.py

clean:
	rm -rf .venv .venv-* build dist demo-out bench-data .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf src/*.egg-info src/penstock/kernels/*.so
	find src tests tools benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

# The parts of `make check`.

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
	@status=0; for guard in $(GUARDS); do .venv/bin/python "tools/check_$$guard.py" || status=1; done; \
		.venv/bin/python tools/house.py --check || status=1; exit $$status

snippets: .venv/.check
	@echo "== snippets of README.md and docs/"
	@.venv/bin/python tools/check_docs.py

# A dangling link, a page that is not in the navigation and a public name without a docstring are warnings; strict (mkdocs.yml) makes them errors.
docs: .venv-docs/.docs
	@echo "== the site in build/site; to search in it: python3 -m http.server -d build/site"
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build 2>&1 | { grep -v '^INFO' || true; }

coverage: .venv/.check
	@echo "== core suite, with the branch coverage of _engine, _order and _plan"
	@rm -rf build/coverage && mkdir -p build/coverage
	@.venv/bin/coverage run tools/run_tests.py $(CORE) $(MEASURED)
	@.venv/bin/coverage combine --quiet && .venv/bin/coverage json --quiet -o build/coverage/report.json
	@.venv/bin/python tools/check_tests.py --coverage build/coverage/report.json
	@.venv/bin/python tools/run_tests.py $(CORE) $(addprefix --ignore=,$(MEASURED))

# Bottlenecks are named by what the CPUs do, so these tests run alone; they take 80 s.
slow: .venv/.check
	@echo "== slow tests"
	@.venv/bin/python tools/run_tests.py -q -m slow -n $(TEST_PROCESSES) --dist worksteal --ignore=tests/interop --ignore=tests/observe/test_scenarios.py
	@.venv/bin/python tools/run_tests.py -q -m slow tests/observe/test_scenarios.py

# TensorFlow, PyTorch and the others choose releases of NumPy and protobuf; so they have an environment of their own. Where JAX is loaded
# no process may fork, so its tests have a process of their own; those of Ray share one cluster.
interop: .venv-interop/.interop
	@echo "== with TensorFlow, PyTorch, webdataset, datasets, grain"
	@.venv-interop/bin/python tools/run_tests.py -q tests/interop --ignore=tests/interop/test_finalized_step.py --ignore=tests/interop/test_jax_output.py --ignore=tests/interop/test_ray.py $(WITH_TORCH) -n auto
	@.venv-interop/bin/python tools/run_tests.py -q tests/interop/test_finalized_step.py tests/interop/test_jax_output.py
	@echo "== on a Ray cluster of two nodes"
	@.venv-interop/bin/python tools/run_tests.py -q tests/interop/test_ray.py

sanitize: .venv/.check
	@echo "== C kernels under AddressSanitizer"
	@.venv/bin/python tools/fuzz_kernels.py

pythons: .venv/.check
	@own=$$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); missing=""; \
	for version in $(CHECKED_PYTHONS); do \
		if [ "$$version" = "$$own" ]; then echo "== Python $$version: that of .venv"; \
		elif tools/find_python "$$version" >/dev/null; then $(MAKE) --no-print-directory "test-$$version"; \
		else missing="$$missing $$version"; fi; \
	done; \
	if [ -n "$$missing" ]; then echo "== NOT RUN, no such Python was found here:$$missing"; fi

test-%: .venv-%/.test
	@echo "== core suite on Python $*, without what hardly depends on it: $(ANY_PYTHON)"
	@.venv-$*/bin/python tools/run_tests.py $(CORE) $(addprefix --ignore=tests/,$(ANY_PYTHON))

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
	@.venv/bin/python $(PIP_INSTALL) -e '.[demo,test,lint,wheels]'
	@touch $@

.venv/.wheels: $(RECIPE) | .venv/bin/python
	@.venv/bin/python $(PIP_INSTALL) -e '.[wheels]'
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
	@command -v chromium >/dev/null || { echo "installing Chromium"; \
		DEBIAN_FRONTEND=noninteractive timeout 300 sh -c 'apt-get update -qq && apt-get install -y -qq chromium' >/dev/null 2>&1; } \
		|| echo "Chromium could not be installed: the tests that need it say so and are skipped"
	@touch $@

.venv-docs/bin/python:
	@echo "making .venv-docs"
	@"$(PYTHON)" -m venv .venv-docs

.venv-docs/.docs: $(RECIPE) | .venv-docs/bin/python
	@echo "installing Penstock and what makes the site into .venv-docs (the first time about half a minute)"
	@.venv-docs/bin/python $(PIP_INSTALL) -e '.[docs]'
	@touch $@

.PRECIOUS: .venv-%/bin/python .venv-%/.test
.venv-%/bin/python:
	@echo "making .venv-$*"
	@"$$(tools/find_python $*)" -m venv .venv-$*

.venv-%/.test: $(RECIPE) | .venv-%/bin/python
	@echo "installing Penstock and what its tests need into .venv-$*"
	@.venv-$*/bin/python $(PIP_INSTALL) -e '.[test]'
	@touch $@
