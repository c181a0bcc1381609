# Everything a person types here: make demo, make demo-full, make test, make check, make format, make setup.
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

.PHONY: help demo demo-full setup test bench check format clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY)  ## The paper's experiments in ten minutes: runs/demo/report.html
	@$(RUN) bash recipes/demo.sh

demo-full: $(READY)  ## All nine cells of the paper's table, an hour: runs/demo-full/report.html
	@$(RUN) FULL=1 bash recipes/demo.sh

setup: $(READY)  ## Create the environment and install everything into it

# torch comes before fairseq-fixed, which imports it while it is built, and after fairseq 0.12.2,
# whose sources lack the files that it would build if it found torch. Without build isolation no
# package pulls a second torch, gigabytes of it, into a build environment of its own. The flags halve
# the time to compile extensions of fairseq that translation does not use.
$(READY): setup.py constraints.txt
	@command -v "$(PYTHON)" >/dev/null || { echo "make: no Python at '$(PYTHON)': set PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else "shape-fairseq needs Python 3.10 or newer, this is %d.%d" % sys.version_info[:2])'
	@command -v c++ >/dev/null || { echo "make: fairseq and fastBPE need a C++ compiler (Debian: apt-get install g++)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q -c constraints.txt pip
	$(VENV)/bin/pip install -q -c constraints.txt cython numpy setuptools wheel "torch; python_version >= '3.11'"
	CFLAGS='-g0 -O1' $(VENV)/bin/pip install -q -c constraints.txt --no-build-isolation -e '.[analysis,ctranslate2,dev,fastbpe]'
	@touch $@

test: $(READY)  ## Run all tests
	$(RUN) $(VENV)/bin/python -m pytest -n 2

bench: $(READY)  ## Speed and memory of APE, SHAPE and RPE by length (BENCH="--lengths 27" for less)
	$(RUN) $(VENV)/bin/python -m benchmarks.speed $(BENCH)

check: $(READY)  ## Check style and format, change nothing
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

format: $(READY)  ## Fix style and format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:  ## Remove the environments
	rm -rf .venv .venv-*
