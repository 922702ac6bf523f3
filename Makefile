# make run     the built-in drill on an embedded node (nothing else is needed, not even root)
# make test    the tests; as root on Debian also those on a real containerd
# make check   format, lint, types, import contracts, generated code
# make fuzz    100 000 inputs for everything that reads text (FUZZ_INPUTS=n for another number)
# make soak    what takes an hour: races, kills, full disks, leaks, by the hundred; prints its figures
# make bench   measures, side by side in one run (RECLAIMD_BENCH=short: a little of each, to see that it runs)
# make manual  writes man page and shell completions anew from the parsers
# make proto   writes the CRI code anew from reclaim/cri/cri.proto

PYTHON ?= python3
VENV := .venv
NEWEST := .venv-newest
BIN := $(VENV)/bin
PACKAGES := containerd runc busybox-static e2fsprogs xfsprogs btrfs-progs mount util-linux openssl strace \
  systemd prometheus buildah python3-pip man-db zsh fish $(if $(shell command -v kubectl),,kubernetes-client)

.PHONY: run test check fuzz soak bench manual proto clean environment development

run: environment
	@$(BIN)/reclaimd drill

environment:
	@.ci/venv $(VENV) $(PYTHON)

development:
	@.ci/venv $(VENV) $(PYTHON) dev

# The newest Python first, on the product alone; then everything on the default one, so that the last line is the
# summary of the complete run.
test: development
	@.ci/debian-packages $(PACKAGES)
	@newest=$$(.ci/newest-python); \
	if [ "$$($$newest -V)" != "$$($(BIN)/python -V)" ]; then \
	  .ci/venv $(NEWEST) $$newest dev && $(NEWEST)/bin/python -m pytest -q tests/pure tests/sockets tests/budgets; \
	fi
	@$(BIN)/python -m pytest

check: development
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=$(VENV) --pyi_out=$(VENV) reclaim/cri/cri.proto
	@diff -r $(VENV)/reclaim/cri/cri_pb2.py reclaim/cri/cri_pb2.py && diff $(VENV)/reclaim/cri/cri_pb2.pyi reclaim/cri/cri_pb2.pyi

fuzz: development
	FUZZ_INPUTS=$${FUZZ_INPUTS:-100000} $(BIN)/python -m pytest -q --durations=6 tests/fuzz

# Everything that is marked so, at the lowest priority. SOAK=expression chooses among it: SOAK=races.
soak: development
	@.ci/debian-packages $(PACKAGES)
	nice $(BIN)/python -m pytest -m soak -k "$(SOAK)" -rAP --durations=0

bench: development
	@.ci/debian-packages $(PACKAGES)
	@$(BIN)/python -m tests.bench

manual: development
	$(BIN)/python -m eviction.manual config

proto: development
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. reclaim/cri/cri.proto

clean:
	rm -rf $(VENV) $(NEWEST) report .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
