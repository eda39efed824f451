# Two commands matter: `make demo` and `make test`. `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Another build of torch: make demo TORCH_INDEX=<the package index of that build>
TORCH_INDEX ?=
# without what torch needs itself, which such an index has in few versions; the next step installs that from the usual one
TORCH_FROM := $(if $(TORCH_INDEX),--no-deps --index-url $(TORCH_INDEX),)
PIP := $(BIN)/python -m pip --disable-pip-version-check
WHEELS := $(VENV)/wheels
FETCH := $(PIP) download --quiet --dest $(WHEELS) --constraint constraints.txt
INSTALL := $(PIP) install --quiet --no-compile --constraint constraints.txt
SCALE ?= laptop

# Whatever the machine says: every process that a test starts imports hundreds of modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test quick nightly oracle oracle-fast test-gpu test-engines lint types style format notebooks tables check docs findings benchmark benchmark-gpu clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

# seconds of a step, beside its name
timed = start=$$(date +%s) && $(2) && echo "$(1): $$(($$(date +%s) - start)) s"

# What a demo needs. torch first and from its own index, so that no later requirement replaces the build that was asked
# for; downloaded apart, so that what the network takes can be told from the rest. Modules are compiled when imported.
$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is needed, this is " + sys.version.split()[0] + ": make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(call timed,download,$(FETCH) $(TORCH_FROM) torch && $(FETCH) --find-links $(WHEELS) . hatchling editables)
	@$(call timed,unpacking,$(INSTALL) --no-index --find-links $(WHEELS) --editable .)
	rm -rf $(WHEELS)
	touch $@

# What the other targets need besides.
$(VENV)/.installed: $(VENV)/.demo
	$(INSTALL) --editable '.[dev]'
	touch $@

demo: $(VENV)/.demo ## from clone to an ablation on real text: train, table, figure, verdict
	@$(call timed,training and pages,$(BIN)/ablations run masking_ratio --scale demo --notebook quickstart)

# on the CPU wherever it runs: trainings resume to the bit there
test: $(VENV)/.installed ## the whole suite
	CUDA_VISIBLE_DEVICES= $(BIN)/python -m pytest -n 2 --dist worksteal

quick: $(VENV)/.installed ## the tests that neither train, nor start processes, nor publish, in two minutes
	CUDA_VISIBLE_DEVICES= $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

nightly: $(VENV)/.installed ## the whole suite with many more cases, other ones each time
	ABLATIONS_NIGHTLY=$$(date +%s) CUDA_VISIBLE_DEVICES= $(BIN)/python -m pytest -n 2 --dist worksteal

oracle: $(VENV)/.installed ## what is to stay when code changes: pages, records, ids, parity; PARENT=HEAD^ where pages are to move
	CUDA_VISIBLE_DEVICES= PARENT=$(PARENT) $(BIN)/python -m tests.oracle

oracle-fast: $(VENV)/.installed ## a part of it in a minute, for each commit
	CUDA_VISIBLE_DEVICES= PARENT=$(PARENT) $(BIN)/python -m tests.oracle --fast

test-gpu: $(VENV)/.installed ## the tests that need a CUDA device; where there is none they are skipped and say so
	$(BIN)/python -m pytest tests/gpu -m gpu -n 0 -rs

test-engines: $(VENV)/.engines ## the executors slurm and ray: on submitit's stand-in and a cluster of two nodes on this machine
	CUDA_VISIBLE_DEVICES= $(BIN)/python -m pytest tests/engines -m engines -n 2 --dist loadfile -rs --durations=12

$(VENV)/.engines: $(VENV)/.installed
	$(PIP) install --quiet --constraint constraints.txt --editable '.[slurm,ray]'
	touch $@

lint: types style ## style, imports between packages, notebooks, English of the guides, size, types

types: $(VENV)/.installed ## the types alone
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

style: $(VENV)/.installed ## all of `lint` but the types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python docs/english.py
	$(BIN)/python docs/budget.py

format: $(VENV)/.installed ## put everything in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: $(VENV)/.installed ## read every grid and report all problems
	$(BIN)/ablations check

notebooks: $(VENV)/.installed ## execute every ablation notebook at SCALE (default laptop)
	for grid in $$($(BIN)/ablations list --format names); do $(BIN)/ablations run $$grid --scale $(SCALE) || exit 1; done

tables: $(VENV)/.installed ## rebuild every table and figure under results/ from the records, without training
	$(BIN)/ablations tables

docs: $(VENV)/.docs ## build the documentation site: build/site/index.html
	$(BIN)/python -m sphinx -b html -c docs -d build/doctrees -W --keep-going . build/site

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

findings: ## surprises about other packages, each shown by a script without this project's code; needs an index of packages
	for script in findings/*.sh; do bash $$script || exit 1; done

benchmark: $(VENV)/.installed ## speed against Hugging Face's Trainer, interleaved in one run
	$(PIP) install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/pretrain_vs_transformers.py

benchmark-gpu: $(VENV)/.installed ## the same on a GPU, with a grid of small runs, in four minutes: build/gpu.json
	$(PIP) install --quiet --constraint constraints.txt --editable '.[bench]'
	mkdir -p build
	$(BIN)/python benchmarks/gpu.py full --output build/gpu.json

clean: ## remove caches and unfinished runs; results stay
	rm -rf .cache .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache build dist docs/generated
