# Every job has a virtual environment of its own, made once and again only when pyproject.toml
# has changed since: the stamp file inside it tells.
PYTHON ?= python3

# Python compiles what it imports, which is a small part of what is installed.
INSTALL = -m pip install --quiet --no-input --no-compile --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-oldest docs bench dist release clean python-version

help: ## Show this list
	@echo "Usage: make TARGET [PYTHON=python3.12]"
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(firstword $(MAKEFILE_LIST))

demo: .venv-demo/stamp ## Fit two small data sets; figures and reports go to demo/
	.venv-demo/bin/python -m pipelines.regression --data synth8d --n 8000 --kernel matern72 --out demo/synth8d
	.venv-demo/bin/python -m pipelines.regression --data diabetes --out demo/diabetes

test: .venv-test/stamp ## Check style, spelling, types and layers, then run the tests
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/codespell
	.venv-test/bin/mypy
	.venv-test/bin/lint-imports
	.venv-test/bin/python -m pytest -n auto --maxprocesses 2 --dist worksteal --durations=30

# Quick ones of what other libraries are asked: tables, files, stores, dask, scikit-learn, xarray.
OLDEST_TESTS = tests/rows/test_frames.py tests/rows/test_numbers.py tests/rows/test_sources.py \
	tests/terms/test_spec.py tests/estimators/test_contract.py tests/estimators/test_spline.py \
	tests/estimators/test_routing_and_frames.py tests/test_storage.py

test-oldest: .venv-oldest/stamp ## Run quick tests beside the oldest versions of all that dsgp needs, Python 3.11
	.venv-oldest/bin/python -m pytest -q $(OLDEST_TESTS)

docs: .venv-docs/stamp ## Build the site into site/; a warning is an error
	.venv-docs/bin/mkdocs build --strict

bench: .venv-bench/stamp ## Run every benchmark once on the checkout
	.venv-bench/bin/asv machine --yes --config benchmarks/asv.conf.json
	.venv-bench/bin/asv run --config benchmarks/asv.conf.json --python=same --quick --show-stderr

dist: .venv-dist/stamp ## Build wheel and sdist into dist/, and try the wheel in a new environment
	rm -rf dist .venv-wheel
	.venv-dist/bin/python -m build --outdir dist
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python $(INSTALL) dist/*.whl
	cd "$$(mktemp -d)" && $(CURDIR)/.venv-wheel/bin/python -I $(CURDIR)/.ci/try_wheel.py

release: ## Tag VERSION=1.2.3 and push the tag, whose workflow builds, tests and publishes
	.ci/release "$(VERSION)"

clean: ## Remove environments, caches and everything generated
	rm -rf .venv-demo .venv-test .venv-oldest .venv-docs .venv-bench .venv-dist .venv-wheel demo site dist build .asv
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -type d -name __pycache__ -prune -exec rm -rf {} +

.venv-demo/stamp: extras = pipelines
.venv-test/stamp: extras = dev
.venv-docs/stamp: extras = docs,plot
.venv-bench/stamp: extras = benchmark

.venv-%/stamp: pyproject.toml | python-version
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(INSTALL) -e ".[$(extras)]"
	@touch $@

# Only what builds, and not the library.
.venv-dist/stamp: | python-version
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(INSTALL) "build>=1.2"
	@touch $@

.venv-oldest/stamp: pyproject.toml .ci/oldest.py | python-version
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python .ci/oldest.py test > $(@D)/oldest.txt
	$(@D)/bin/python $(INSTALL) --constraint $(@D)/oldest.txt -e ".[test]"
	@touch $@

python-version:
	@command -v $(PYTHON) >/dev/null || { \
		echo "make: '$(PYTHON)' is not found; name a Python 3.11 to 3.14: make PYTHON=/path/to/python" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || { \
		echo "make: dsgp needs Python 3.11 to 3.14, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1);" \
			"name another: make PYTHON=python3.12" >&2; \
		exit 1; }
