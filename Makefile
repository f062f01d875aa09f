# Every command that a user or developer of Isthmus needs; `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Without bytecode every process would compile again what it imports: a second of each start, and for the cloud tier
# thousands of modules in each of its processes.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help up demo demo-heat install check test test-cloud test-helm test-console test-compat test-docs test-slow \
	bench bench-cloud bench-edge bench-router chaos docs clean

# Tiers beside the router: `make up TIERS=edge` leaves the cloud, and with it Ray and PyTorch, out.
TIERS ?= edge,cloud
# Settings file for up and demo.
CONFIG ?=
# Length of `make chaos`.
MINUTES ?= 10
# Further arguments, such as `make demo ARGS=--json` or `make test ARGS=tests/router`.
ARGS ?=
# `make bench QUICK=1` cuts every benchmark short: that shows that they run, not what they find.
QUICK ?=

VENV := .venv
TEST_VENV := .venv-test
# Clients that others made, some of which need other releases of libraries than this project does.
COMPAT_VENV := .venv-compat
BIN := $(VENV)/bin
LISTS := edge-router $(if $(findstring cloud,$(TIERS)),cloud-cpu)
WITH_CONFIG := $(if $(CONFIG),--config $(CONFIG))
EDGE_BENCHES := edge_overhead engine_changes stall speculation prediction
ROUTER_BENCHES := router decide scanner audit
INSTALL := VENV=$(VENV) requirements/install.sh
# Tests that share the cores with each other: their engines have one thread each. The others start whole stacks or a
# cluster, and run one by one.
SIDE_BY_SIDE := architecture contracts helm loadtests router shared \
	$(addprefix edge/,devices memory packages runtime scheduling service) \
	$(addprefix cloud/,adapters direct scaling sizing)
# What has a target of its own is no part of `make test`.
SUITE := not slow and not console and not compat and not pages
# The suite runs against the built wheel. -P keeps this folder, whose packages have the same names, off the path.
PYTEST := PATH="$(CURDIR)/$(BIN):$$PATH" ../$(TEST_VENV)/bin/python -P -m pytest -c ../pyproject.toml

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## Install what is missing, start the tiers and follow them until Ctrl-C (TIERS=edge: without the cloud)
	@$(INSTALL) $(LISTS)
	@exec $(BIN)/isthmus up --tiers $(TIERS) $(WITH_CONFIG) $(ARGS)

demo: ## Send real prompts through the stack and show where each one went (ARGS=--json)
	@[ -x $(BIN)/isthmus ] || $(INSTALL) $(LISTS)
	@exec $(BIN)/isthmus demo $(ARGS)

demo-heat: ## Let a simulated device grow hot under real load and show what happens (ARGS=--scenario=hot-day)
	@$(INSTALL) $(LISTS)
	@exec $(BIN)/isthmus demo heat $(WITH_CONFIG) $(ARGS)

install: ## Install all tiers and the tools for development into .venv
	@$(INSTALL) edge-router cloud-cpu dev

check: ## Format, lint, types, import contracts, layout
	@$(INSTALL) edge-router dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check
	$(BIN)/python -m pytest -q tests/architecture/test_style.py tests/architecture/test_contracts.py

test: check $(TEST_VENV)/.wheel ## Everything that check does, and the whole suite against the built wheel
	@$(INSTALL) edge-router cloud-cpu dev
	@command -v redis-server >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get install -y -q redis-server >/dev/null; } \
		|| { echo "error: the suite needs redis-server. On Debian: apt install redis-server" >&2; exit 1; }
	cd tests && $(if $(ARGS),$(PYTEST) -m "$(SUITE)" $(ARGS:tests/%=%),code=0; \
		$(PYTEST) -m "$(SUITE)" -n logical --dist loadfile $(SIDE_BY_SIDE) || code=1; \
		$(PYTEST) -m "$(SUITE)" $(addprefix --ignore=,$(SIDE_BY_SIDE)) . || code=1; exit $$code)

docs: ## Build the documentation into build/site; a broken link or a page that nothing names fails
	@$(INSTALL) docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "The documentation is in build/site; begin with build/site/index.html."

test-docs: docs $(TEST_VENV)/.wheel ## Follow the tutorial and the how-tos, each command of them, on a real stack
	cd tests && $(PYTEST) -m "not slow" docs $(ARGS:tests/%=%)

test-helm: ## Tests of the Helm chart alone, with the real helm, kubectl, Redis and router
	@$(INSTALL) edge-router cloud-cpu dev
	@$(BIN)/python helm/generate.py --check
	$(BIN)/python -m pytest -n logical tests/helm $(ARGS)

test-console: ## The router's console in a real Chromium; screenshots are kept in build/console
	@$(INSTALL) edge-router dev console
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get install -y -q chromium >/dev/null; } \
		|| { echo "error: the console's tests need Chromium. On Debian: apt install chromium" >&2; exit 1; }
	$(BIN)/python -m pytest -m console tests/router/admin $(ARGS)

test-compat: $(TEST_VENV)/.wheel ## The OpenAI client, LangChain, LlamaIndex, curl and Ollama's habits against router and agent
	@$(INSTALL) edge-router dev
	@VENV=$(COMPAT_VENV) requirements/install.sh compat
	cd tests && ISTHMUS_COMPAT_PYTHON="$(CURDIR)/$(COMPAT_VENV)/bin/python" $(PYTEST) -m compat compat $(ARGS:tests/%=%)

test-cloud: $(TEST_VENV)/.wheel ## Tests of the cloud tier alone, on one real cluster (ARGS="-m slow": those that kill it)
	@$(INSTALL) edge-router cloud-cpu dev
	cd tests && $(PYTEST) -m "not slow" cloud $(ARGS:tests/%=%)

test-slow: $(TEST_VENV)/.wheel ## Tests that take too long for the suite
	@$(INSTALL) edge-router cloud-cpu dev
	cd tests && $(PYTEST) -m slow --timeout 3600 $(ARGS:tests/%=%)

bench: ## Run all benchmarks and write docs/benchmarks.md with machine, dates and ratios (QUICK=1, ARGS="--only decide")
	@$(INSTALL) $(LISTS) dev
	@$(BIN)/isthmus edge pull smollm2-135m-instruct
	@$(BIN)/isthmus edge schedule smollm2-135m-instruct --calibrate >/dev/null  # as an agent does that was idle once
	@$(BIN)/python -m loadtests.bench.everything $(if $(QUICK),--quick) $(ARGS)

bench-cloud: ## The cloud tier against the bare vLLM server; how the scaling policy follows load, simulated
	@$(INSTALL) edge-router cloud-cpu dev
	@$(BIN)/isthmus edge pull smollm2-135m-instruct
	@for name in autoscale cloud; do echo "== $$name"; $(BIN)/python -m "loadtests.bench.$$name" || exit 1; done

bench-edge: ## What agent, crash, swap, long prompt and speculation cost; what plan and schedule predict against what is measured
	@$(INSTALL) edge-router dev
	@$(BIN)/isthmus edge pull smollm2-135m-instruct
	@$(BIN)/isthmus edge schedule smollm2-135m-instruct --calibrate >/dev/null  # as an agent does that was idle once
	@for name in $(EDGE_BENCHES); do echo "== $$name"; $(BIN)/python -m "loadtests.bench.$$name" || exit 1; done

bench-router: ## What the router costs beside a bare proxy; its decisions, scanner and audit log alone
	@$(INSTALL) edge-router dev
	@for name in $(ROUTER_BENCHES); do echo "== $$name"; $(BIN)/python -m "loadtests.bench.$$name" || exit 1; done

chaos: ## Break all ways between clients, agents, routers, Redis and backends under locust (MINUTES=10)
	@$(INSTALL) edge-router dev
	@command -v redis-server >/dev/null || { echo "error: the chaos suite needs redis-server. On Debian: apt install redis-server" >&2; exit 1; }
	$(BIN)/python -m pytest -s tests/simulation -m "slow or not slow" --timeout 14400 --chaos-minutes $(MINUTES) $(ARGS)

# An environment of its own that holds only the wheel, and finds the dependencies in .venv: what is missing from the
# wheel is missing here, and the editable installation for development stays as it is.
$(TEST_VENV)/.wheel: $(shell find shared edge router cloud loadtests -type f -not -name '*.pyc' 2>/dev/null) pyproject.toml README.md LICENSE
	@$(INSTALL) edge-router dev
	@rm -rf $(TEST_VENV) dist build
	@$(BIN)/python -m build --wheel --no-isolation . >/tmp/isthmus-build.$$$$ 2>&1 \
		|| { tail -n 3 /tmp/isthmus-build.$$$$ >&2; echo "error: the wheel cannot be built" >&2; exit 1; }; \
		rm -f /tmp/isthmus-build.$$$$
	@$(BIN)/python -m venv --without-pip $(TEST_VENV)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(TEST_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
	@$(BIN)/python -m pip --python $(TEST_VENV)/bin/python install -q --disable-pip-version-check --no-deps \
		--force-reinstall dist/isthmus-*.whl
	@touch $@

clean: ## Remove what builds and tests made; .venv and the models stay
	rm -rf $(TEST_VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
