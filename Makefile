# make run      runs the built-in drill on an embedded node (needs nothing else, not even root)
# make test     runs the tests; as root on Debian also those on a real containerd (CONTAINERD=/path/containerd: another
#               than Debian's). make test-newest: on the newest Python
# make broken-rules breaks each guard and rule on purpose, and says which test notices;
#               make mutants: 300 random small mistakes instead
# make install  installs program, units and manual on this node and starts the service (DESTDIR=: below another root). Run
#               it again to upgrade. make uninstall removes them (PURGE=1: configuration and state too)
# make bundle   makes an archive in dist/ that installs without a network; make wheel: wheel and source distribution, there
#               (SOURCE=https://…/: where links and pictures of the page of a package index lead to)
# make coverage shows what the tests of pure code, the simulation and the sockets do not reach (report/coverage)
# make check    checks format, lint, types, import contracts and generated files; prints how many lines each package has
# make fuzz     gives 2 000 inputs to every property of the pure tests (PROPERTY_EXAMPLES=n for another number)
# make soak     runs what takes hours: races, kills, full disks, leaks and all drills, by the hundred; prints its figures
# make bench    measures, side by side in one run (RECLAIMD_BENCH=short: a little of each, to see that it works)
# make kubelet  runs the tests beside a real kubelet, and a few fills of a node. KUBELET=, KUBE_APISERVER= and ETCD= name the
#               programs if they are not on the PATH, KUBE_CONTROLLER_MANAGER= one that only some tests need, CRIO= a CRI-O
#               in place of containerd (pinns beside it)
# make picture  redraws the README's pictures: of a drill, which it runs, and of the stored fills beside a kubelet
# make site     makes a site of docs/, in dist/site, that loads nothing from elsewhere (SITE_URL=https://…/: where it will be)
# make manual   regenerates man page and shell completions from the parsers
# make manifests renders them anew with kubectl
# make schema   regenerates the JSON Schemas from the types
# make proto    regenerates the message code from the .proto files

# If it were set, each worker would recompile all tests and their assertions: 7 s of processor time.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
NEWEST := .venv-newest
BIN := $(VENV)/bin
MADE := $(VENV)/made
PROTOS := $(foreach name,cri leases stores,reclaim/cri/$(name).proto) reclaim/kubelet/pods.proto
PACKAGES := containerd runc busybox-static e2fsprogs xfsprogs btrfs-progs mount util-linux openssl strace \
  systemd jq prometheus prometheus-alertmanager buildah python3-pip python3-venv iproute2 man-db zsh fish $(if $(shell command -v kubectl),,kubernetes-client)

.PHONY: run test test-newest broken-rules mutants coverage install install-program install-files uninstall bundle wheel check fuzz soak bench kubelet picture site manual manifests schema proto clean environment development newest

run: environment
	@$(BIN)/reclaimd drill

environment:
	@.ci/venv $(VENV) $(PYTHON) drill

development:
	@.ci/venv $(VENV) $(PYTHON) dev

# Most tests wait half of the time, so there are eight workers on two cores. Slow files first, each file in one worker
# (tests/conftest.py has the exceptions).
SIDE_BY_SIDE := -n 8 --dist loadfile --no-loadscope-reorder

# If a test blocks the interpreter, so that its own timeout cannot act, its worker is ended and the test named.
ENDED := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

# What another Python could break: pure code, imports, the command line, sockets, TLS, threads and watches. Tests that
# wait come first.
ON_THE_NEWEST := $(foreach part,manager control watcher http_server kubelet_client channel bad_input,\
  $(wildcard tests/sockets/*/test_$(part).py)) tests/budgets tests/pure

# An environment of the newest Python, if that is not the default one.
newest: development
	@newest=$$(.ci/newest-python); \
	if [ "$$($$newest -V)" = "$$($(BIN)/python -V)" ]; then rm -rf $(NEWEST); else .ci/venv $(NEWEST) $$newest test; fi

# Leaves out the tests of packaging, pages, examples and the lab if none of their files has changed. HOUSE=1 runs them,
# and fails where a test is skipped that may not be (tests/skips.py).
test: development
	@.ci/debian-packages $(PACKAGES)
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(ENDED) --durations=12

test-newest: newest
	@if [ -d $(NEWEST) ]; then \
	  PROPERTY_EXAMPLES=10 $(NEWEST)/bin/python -m pytest $(SIDE_BY_SIDE) $(ENDED) -q $(ON_THE_NEWEST); \
	fi

# Takes hours.
broken-rules: development
	@$(BIN)/python -m tests.broken_rules

# Takes hours, too, and goes on where it was interrupted.
mutants: development
	@mkdir -p report
	@$(BIN)/python -m tests.mutants --to report/mutants.json

coverage: development
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) -q --cov --cov-report=term --cov-report=html:report/coverage \
	  tests/sockets tests/simulation tests/pure

# EXTRAS=[drill] for drills on an embedded node. PYTHON is passed on only if it was set: the scripts have their own default.
SETTINGS := DESTDIR='$(DESTDIR)' PURGE='$(PURGE)' PYTHON='$(if $(filter file,$(origin PYTHON)),,$(PYTHON))'

install:
	@$(SETTINGS) EXTRAS='$(EXTRAS)' config/install/bundle.sh install

install-program:
	@$(SETTINGS) EXTRAS='$(EXTRAS)' config/install/bundle.sh install program

install-files:
	@$(SETTINGS) config/install/install.sh files

uninstall:
	@$(SETTINGS) config/install/install.sh uninstall

bundle:
	@$(SETTINGS) EXTRAS='$(or $(EXTRAS),[drill])' config/install/bundle.sh

# The time in both is that of the last commit, so that the same sources make the same files.
wheel: development
	@rm -f dist/*.whl
	@RECLAIMD_SOURCE='$(SOURCE)' SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct)" \
	  $(BIN)/python -m hatchling build --directory dist

check: development
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy config/install/sbom.py
	$(BIN)/lint-imports
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=$(VENV) --pyi_out=$(VENV) $(PROTOS)
	@for made in $(PROTOS:.proto=_pb2.py) $(PROTOS:.proto=_pb2.pyi); do diff $(VENV)/$$made $$made || exit 1; done
	@rm -rf $(MADE); $(BIN)/python .ci/schemas.py $(MADE); $(BIN)/python .ci/manual.py $(MADE)
	@for made in schema man completions kubernetes/values.schema.json; do diff -r $(MADE)/$$made config/$$made || exit 1; done
	@.ci/lines

fuzz: development
	PROPERTY_EXAMPLES=$${PROPERTY_EXAMPLES:-2000} $(BIN)/python -m pytest -n auto -q --durations=6 -o timeout=3600 -m hypothesis tests/pure

# Every test marked soak, at low priority. SOAK=expression selects some of them: SOAK=races. SIMULATION_SECONDS=n: how long
# daemons are simulated (SOAK=simulation).
soak: development
	@.ci/debian-packages $(PACKAGES)
	nice $(BIN)/python -m pytest -m soak -k "$(SOAK)" -rAP --durations=0

bench: development
	@.ci/debian-packages $(PACKAGES)
	@$(BIN)/python -m tests.lab.bench

kubelet: development
	@.ci/debian-packages $(PACKAGES) etcd-server $(if $(CRIO),conmon skopeo)
	$(BIN)/python -m pytest -m "soak or not soak" -rA tests/kubelet
	@$(BIN)/python -m tests.lab.matrix --filesystem ext4 --filesystem xfs --runs 1 --into report/matrix

picture: development
	@$(BIN)/reclaimd drill tests/drill/filling-disk.yaml --report report
	$(BIN)/python -m tests.moving_picture report/drill-filling-disk.json
	$(BIN)/python -m tests.lab.matrix_page

site: development
	@$(BIN)/python -m mkdocs build --quiet --strict --config-file config/mkdocs.yml

manual: development
	$(BIN)/python .ci/manual.py config

manifests:
	@for made in config/kubernetes/base config/kubernetes/overlays/*; do \
	  kubectl kustomize $$made >config/manifests/$${made##*/}.yaml || exit 1; \
	done

schema: development
	$(BIN)/python .ci/schemas.py config

proto: development
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. $(PROTOS)

clean:
	rm -rf $(VENV) $(NEWEST) report dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
