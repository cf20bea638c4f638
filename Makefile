.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LINT := go tool -modfile=scripts/tools/go.mod golangci-lint

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: ## install what is missing: PostgreSQL server programs, git (and a C compiler for the race detector)
	@scripts/setup

build: ## build bin/orch
	go build -trimpath -ldflags "-X orch/internal/app.Version=$(VERSION)" -o bin/orch ./cmd/orch

demo: ## watch a scripted agent's change go through its gate and land, on a repository made for it
	@scripts/setup demo
	@$(MAKE) --no-print-directory build
	@bin/orch demo

# In the order of their start: packages that take long aren't left for the end, where one would run alone.
FIRST := ./cmd/orch ./internal/agent/... ./internal/app ./internal/merge ./internal/worker ./internal/queue

test: ## run every test with the race detector, in random order
	@scripts/setup
	PATH="$${ORCH_POSTGRES_BIN:+$$ORCH_POSTGRES_BIN:}$$PATH" GORACE="atexit_sleep_ms=0 $${GORACE:-}" go test -race -shuffle=on -parallel=4 -timeout=20m $(FIRST) ./...

lint: ## run the linters
	$(LINT) run ./...

format: ## format the code
	$(LINT) fmt ./...

generate: ## make the generated code again from api/openapi.yaml
	go generate ./api

# The linters vet everything but generated code and the module of the bench.
check: ## format, go.mod, generated code, lint, test: what CI runs
	@scripts/setup
	$(LINT) fmt --diff ./...
	go mod tidy -diff
	@scripts/check-generated
	@scripts/check-docs
	$(LINT) run ./...
	go vet ./api && go -C bench vet ./...
	@$(MAKE) --no-print-directory test

bench: ## measure the queue on this machine: against River, and as its table grows (about 20 minutes)
	@scripts/setup
	go -C bench run .

stress: ## kill, stop and restart worker processes and their database for two minutes, with right and with wrong clocks
	@scripts/setup
	ORCH_STRESS_SECONDS=120 ORCH_STRESS_JOBS=20000 go test -v -timeout 20m -run Stress ./internal/worker

chaos: ## let 100 agents misbehave while orch, their shims and they themselves are killed for three minutes
	@scripts/setup
	ORCH_CHAOS_TASKS=100 ORCH_CHAOS_SECONDS=180 go test -v -timeout 30m -run 'Chaos|ExitStatuses|ManyLiving|IdleAgents' ./cmd/orch

oracle: ## land random branches by gates that are frozen and killed, 500 times, and ask git what came of it
	@scripts/setup
	ORCH_ORACLE_RUNS=$${ORCH_ORACLE_RUNS:-500} go test -v -timeout 60m -run Oracle ./internal/merge

sweep: ## kill and stop orch at each step of every kind of landing, and at each run of git (about 20 minutes)
	@scripts/setup
	ORCH_SWEEP=all go test -v -timeout 60m -run 'EachPointOfALanding|EachRunOfGit' ./internal/app

night: ## let a fault happen every few seconds for ten minutes, nobody watching, and measure how soon the dead are noticed
	@scripts/setup
	ORCH_NIGHT_SECONDS=$${ORCH_NIGHT_SECONDS:-600} ORCH_NIGHT_TICKS=1000 ORCH_NIGHT_TRIALS=50 \
		go test -v -parallel 1 -timeout 60m -run 'NightOfFaults|LivingAgent|JobOfADeadAgent|JobsOfAKilledOrch' ./internal/app

.PHONY: help setup build demo test lint format generate check bench stress chaos oracle sweep night
