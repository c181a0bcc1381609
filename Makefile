# Everything a person types here: make demo, make demo-full, make test, make check,
# make format, make setup, make release.
# Another interpreter, in an environment of its own: make test PYTHON=python3.10

ifeq ($(origin PYTHON), undefined)
PYTHON := $(shell command -v python3.11 || command -v python3 || echo python3)
VENV := .venv
else
VENV := .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
endif

READY := $(VENV)/.ready
# Recipes find fairseq-train and the other commands through PATH.
RUN := PATH="$(CURDIR)/$(VENV)/bin:$$PATH"

.PHONY: help demo demo-full setup test test-quick bench check format release clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY)  ## The paper's experiments in ten minutes: runs/demo/report.html
	@$(RUN) bash recipes/demo.sh

demo-full: $(READY)  ## All nine cells of the paper's table, an hour: runs/demo-full/report.html
	@$(RUN) shape-fairseq experiment recipes/demo-full.toml

setup: $(READY)  ## Create the environment and install everything into it

$(READY): setup.py setup.sh constraints.txt
	@bash setup.sh $(VENV) "$(PYTHON)"
	@touch $@

test: $(READY)  ## Run all tests
	$(RUN) $(VENV)/bin/python -m pytest -n 2 --dist loadgroup

test-quick: $(READY)  ## Run all tests but the slow ones, in two minutes
	$(RUN) $(VENV)/bin/python -m pytest -n 2 --dist loadgroup -m 'not slow'

bench: $(READY)  ## Speed and memory of APE, SHAPE and RPE by length (BENCH="--lengths 27" for less)
	$(RUN) $(VENV)/bin/python -m benchmarks $(BENCH)

check: $(READY)  ## Check style and format, change nothing
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

release: $(READY)  ## Build the packages to publish, dist/*.whl and *.tar.gz, from a clean tree
	@test -z "$$(git status --porcelain)" || { echo "make: commit or stash your changes first: git status" >&2; exit 1; }
	rm -rf dist build
	$(VENV)/bin/pip install -q -c constraints.txt build twine
	$(VENV)/bin/python -m build --no-isolation
	$(VENV)/bin/twine check --strict dist/*

format: $(READY)  ## Fix style and format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:  ## Remove the environments
	rm -rf .venv .venv-*
