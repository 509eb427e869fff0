# Everything happens in $(VENV); nothing is installed outside of it.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)

# Tests that start no ranks share the cores. Of those that do, one process runs the launches that
# many tests share, one at a time, and the other what mostly waits: see tests/conftest.py.
TOGETHER := --numprocesses auto --maxprocesses 4 --dist worksteal
BESIDE := --numprocesses 2 --dist loadscope

.PHONY: help run test test-cuda all lint types unit bundle clean

help: ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

run: $(VENV)/.run ## Install, and run suites/halo.yaml on 4 ranks of the embedded MPI
	$(BIN)/spbench run suites/halo.yaml

test: $(VENV)/.test ## Install what tests need; lint, types, arrows and the tests that this machine can run
	$(MAKE) --jobs 2 lint types
	$(BIN)/python -m pytest -m "not (mpi or cluster or alone or long)" $(TOGETHER)
	$(BIN)/python -m pytest -m "(mpi or cluster) and not alone and not long" $(BESIDE)

all: test ## All tests: each command of the docs, each line of the reference scripts, each MPI library
	$(BIN)/python -m pytest -m "long and not alone" $(BESIDE)
	$(BIN)/python -m pytest -m alone

# The torch of GPU machines without a package registry; it needs no GPU.
test-cuda: .venv-cuda/constraints.txt ## The same tests with torch 2.11.0 for CUDA 13.0, in .venv-cuda
	$(MAKE) VENV=.venv-cuda CONSTRAINTS=$< test

unit: $(VENV)/.test ## The fast tests only
	$(BIN)/python -m pytest tests/unit -m "not (mpi or cluster or screen or slow)" --hypothesis-profile quick $(TOGETHER)

lint: $(VENV)/.test ## Style and the arrows between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.test ## mypy: strict, but for the tests
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks console/build_hooks docs/images/draw.py

bundle: ## Wheels for a GPU machine without a network: see docs/gpu.md
	docs/examples/bundle.sh

clean: ## Remove the environment and the caches; recorded runs stay
	rm -rf $(VENV) .venv-cuda .whl .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.run: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	$(INSTALL) --editable '.[workers,mpi]'
	touch $@

$(VENV)/.test: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	$(INSTALL) --editable '.[workers,mpi,serve,networks,test,dev]'
	touch $@ $(VENV)/.run

.venv-cuda/constraints.txt: constraints.txt
	mkdir -p .venv-cuda
	sed -E 's/^torch==.*/torch==2.11.0/; s/^torchvision==.*/torchvision==0.26.0/' $< >$@
