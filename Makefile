# Muster. `make` alone lists the targets.

SHELL    := /bin/bash
GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X muster.dev/muster/internal/obs.Version=$(VERSION) -X muster.dev/muster/internal/obs.built=$(shell git log -1 --format=%cI 2>/dev/null)
# The embedded Cortex reads labels in the form that this tag gives them. muster-edge is
# built without it: its own form takes less memory.
TAGS     := slicelabels
UI       := dashboards/console/ui
# Grafana's SDK wants a newer gRPC than Cortex takes, so the plugin is a module of its own.
GRAFANA  := dashboards/grafana/plugin
GOLANGCI := v2.15.0
GOTESTSUM := v1.13.0
SUDO     := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
export GOFLAGS := -buildvcs=false
# No -trimpath: tests and builds then share every compiled package, which halves the
# time from a fresh clone to a running demo.

.DEFAULT_GOAL := help
.PHONY: help build ui lint-ui plugin grafana-plugin image demo demo-k8s test test-go test-grafana test-ui test-e2e test-neighbour test-demo-k8s test-scenarios test-calibration test-kill test-kubectl test-objects test-buckets test-senders loadtest quiet check tidy-check lint generate fmt-check generated-check bench clean tools-chromium tools-elasticsearch tools-golangci tools-os tools-protoc

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ui ## Build muster and muster-edge into bin/ (a cold build takes about 7 minutes on two cores)
	@echo "== building bin/muster-edge"
	@$(GO) build -ldflags '$(LDFLAGS)' -o bin/muster-edge ./cmd/muster-edge
	@echo "== building bin/muster (the first time it compiles a Kubernetes API server and Cortex: several minutes; then seconds)"
	@deploy/progress.sh $(GO) build -tags $(TAGS),console -ldflags '$(LDFLAGS)' -o bin/muster ./cmd/muster
	@ls -lh bin | awk 'NR>1 {print "   " $$9, $$5}'

ui: $(UI)/dist/index.html ## Build the console's web page

$(UI)/node_modules/.package-lock.json: $(UI)/package-lock.json
	@echo "== installing the console's packages"
	@cd $(UI) && npm ci --no-audit --no-fund --loglevel=error

$(UI)/tools/node_modules/.package-lock.json: $(UI)/tools/package-lock.json
	@echo "== installing the console's linter and generator"
	@cd $(UI)/tools && npm ci --no-audit --no-fund --loglevel=error

$(UI)/dist/index.html: $(UI)/node_modules/.package-lock.json $(UI)/package.json $(UI)/vite.config.ts $(shell find $(UI)/src $(UI)/public $(UI)/index.html -type f 2>/dev/null)
	@echo "== building the console"
	@cd $(UI) && npm run build --silent

plugin: ## Build Fluent Bit's output plugin, bin/out_muster.so (needs a C compiler)
	@mkdir -p bin
	@CGO_ENABLED=1 $(GO) build -buildmode=c-shared -ldflags '$(LDFLAGS)' -o bin/out_muster.so ./collector/fluentbit/plugin
	@rm -f bin/out_muster.h
	@ls -lh bin/out_muster.so | awk '{print "   " $$9, $$5}'

$(GRAFANA)/node_modules/.package-lock.json: $(GRAFANA)/package-lock.json
	@echo "== installing the packages of Grafana's plugin"
	@cd $(GRAFANA) && npm ci --no-audit --no-fund --loglevel=error

# SIGN is the URL of the Grafana that the signature is for; see docs/grafana.md.
grafana-plugin: $(GRAFANA)/node_modules/.package-lock.json ## Build Grafana's plugin, bin/muster-grafana.zip: SIGN=https://grafana.example.com/ to sign it
	@mkdir -p bin
	@cd $(GRAFANA) && SOURCE_DATE=$(shell git log -1 --format=%cI 2>/dev/null) npm run build --silent
	@cd $(GRAFANA) && for arch in amd64 arm64; do CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -ldflags '-s -w' -o dist/gpx_muster_fleet_linux_$$arch ./pkg || exit 1; done
	@$(if $(SIGN),cd $(GRAFANA) && npx --yes @grafana/sign-plugin@3.3.3 --rootUrls $(SIGN))
	@cd $(GRAFANA) && $(GO) run ./pkg/pack dist $(CURDIR)/bin/muster-grafana.zip
	@ls -lh bin/muster-grafana.zip | awk '{print "   " $$9, $$5}'

IMAGE ?= muster-edge:$(VERSION)
image: ## Build the container image of muster-edge: IMAGE=muster-edge:dev, GOARCH=arm64 for other nodes (needs docker, or DOCKER=podman)
	@CGO_ENABLED=0 GOOS=linux $(GO) build -ldflags '$(LDFLAGS)' -o bin/muster-edge-linux ./cmd/muster-edge
	$(or $(DOCKER),docker) build --platform linux/$(shell $(GO) env GOARCH) -t $(IMAGE) -f deploy/Dockerfile .

demo: build ## Start a fleet of 60 sites on this machine and print the link to its map
	@bin/muster demo

bin/demo-k8s: build
	@$(GO) build -o bin/demo-k8s ./internal/testkit/kubesite/demo

demo-k8s: bin/demo-k8s ## The demo, with two Kubernetes clusters among its sites (the first time it compiles them for several minutes)
	@bin/demo-k8s

test: test-grafana test-ui test-go test-e2e ## Run every test, the quick ones first: Grafana, console, Go, and the whole fleet in Chromium

# A test that depends on luck must not stop everybody's changes, nor hide: up to three that fail
# run once more, and are named at the end.
FLAKES := bin/flakes.txt
SUMMED := $(GO) run gotest.tools/gotestsum@$(GOTESTSUM) --hide-summary skipped --rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test --rerun-fails-report=$(FLAKES)
FLAKY  := if [ -s $(FLAKES) ]; then echo "== passed at the second try only, so each is a bug to mend (in the test or in what it tests):"; cat $(FLAKES); fi
# Twice as many packages at once as there are cores: half of their time they wait for clocks and processes.
# Nor are they vetted again, which make check does.
AT_ONCE ?= $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN))
test-go: build tools-elasticsearch tools-os ## Run the Go tests (the first time several minutes of compiling)
	@echo "== go test (the first time it compiles a Kubernetes API server and Cortex: several minutes)"
	@mkdir -p bin && rm -f $(FLAKES)
	@MUSTER=$(abspath bin/muster) $(SUMMED) --format pkgname --packages ./... -- -vet=off -tags $(TAGS) -timeout 30m -p $(AT_ONCE)
	@$(FLAKY)

# Not from the cache: what is tested is a binary that the test builds.
test-grafana: $(GRAFANA)/node_modules/.package-lock.json ## Test Grafana's plugin: its binary by Grafana's protocol, and its editors
	cd $(GRAFANA) && $(GO) test -count=1 ./...
	@cd $(GRAFANA) && npm test --silent

test-ui: $(UI)/node_modules/.package-lock.json tools-chromium ## Run the console's own tests, in Chromium against a mock of the API
	@cd $(UI) && npm test --silent && npm run e2e --silent

# A test that fails has a second try, on a fleet of its own; the others have passed.
test-e2e: build tools-chromium ## Start the demo and drive it: health, faults, kill -9, the page
	@echo "== the whole fleet"
	@mkdir -p bin && rm -f $(FLAKES)
	@MUSTER_E2E=1 $(SUMMED) --format standard-verbose --rerun-fails-max-failures=8 --packages ./e2e -- -count=1 -timeout 45m
	@$(FLAKY)

test-neighbour: build ## Five minutes of a hostile tenant and a hostile site, with what their neighbour sees meanwhile
	MUSTER_E2E=1 MUSTER_NEIGHBOUR=5m $(GO) test -count=1 -timeout 25m -run 'TestNeighbour$$' -v ./e2e

test-demo-k8s: bin/demo-k8s ## Start the demo with two Kubernetes clusters, deploy onto them with kubectl, and end it: minutes
	MUSTER_DEMO_K8S=1 $(GO) test -count=1 -timeout 60m -run 'TestDemoOnClusters$$' -v ./e2e

test-scenarios: build ## A tenth of the health scenarios through real processes, in real time: 17 minutes
	MUSTER_SCENARIOS=1 $(GO) test -count=1 -timeout 40m -run 'TestScenarios$$' -v ./e2e

test-calibration: ## What health says of all scenarios through collectors, and what gates say of 100 releases: ten minutes (make test has a third of them)
	$(GO) test -count=1 -tags $(TAGS) -timeout 60m -v -run TestScenarios ./loadtest/scenarios -every 1
	$(GO) test -count=1 -tags $(TAGS) -timeout 60m -v ./loadtest/releases -releases 50

test-senders: ## Sites that a stock OpenTelemetry Collector and a stock Prometheus agent push, both built from the module proxy: twenty minutes the first time, then five
	MUSTER_SENDERS=1 $(GO) test -count=1 -tags $(TAGS) -timeout 60m -v ./e2e/senders

# Those of Kubernetes' conformance suite that need neither pods nor more than a namespace has.
CONFORMANCE := (Watchers should|should validate PreferredVersion|server version|Table transformation|due to empty secret key|should patch a secret|ConfigMap with empty key|be immutable if|Ingress API|CronJob API|collection of services|service status lifecycle|update a ServiceAccount|lifecycle of a ServiceAccount|kube-root-ca|delete RS created).*\[Conformance\]
test-conformance: ## Cases of Kubernetes' conformance suite through a virtual Kubernetes without objects: KC=FILE, of muster vk8s kubeconfig (the first time it compiles for half an hour)
	@test -n "$(KC)" || { echo "want KC=FILE, of a virtual Kubernetes without objects: muster vk8s kubeconfig NAMESPACE/NAME > FILE"; exit 1; }
	cd e2e/conformance && $(GO) test -vet=off -count=1 -timeout 20m . -kubeconfig $(abspath $(KC)) -provider skeleton -ginkgo.no-color -ginkgo.v '-ginkgo.focus=$(CONFORMANCE)'

KILLS ?= 100
test-kill: build ## Kill control -9 at 100 random moments of one rollout, and of one that is aborted: half an hour; KILLS=10 for a short look
	$(GO) test -count=1 -timeout 3h -v ./e2e/centre -run TestControlKilledAtAnyPoint -kills $(KILLS) $(if $(SEED),-kill-seed $(SEED))

test-kubectl: ## What people do with kubectl, by upstream's kubectl 1.33 to 1.36, which pip fetches the first time
	MUSTER_KUBECTL=1 $(GO) test -count=1 -tags $(TAGS) -run 'TestKubectl$$' -v ./control/vk8s

test-objects: build ## Ten thousand objects on one site, through real processes onto a real cluster: ten minutes (make test-e2e has a thousand)
	MUSTER_E2E=1 $(GO) test -count=1 -timeout 60m -v -run 'TestManyObjects$$' ./e2e -objects 10000

test-buckets: ## What the centre keeps in a bucket, against servers of S3, Google and Azure, which are built the first time: minutes
	MUSTER_BUCKETS=1 $(GO) test -count=1 -tags $(TAGS) -timeout 40m -v -run 'Bucket|Keeps|ReleaseWithoutOnlineKeys' ./control/software/bucket ./control/software/repository ./control/desired/content

# What `make loadtest` runs; MUSTER names a binary that is built already.
SITES  ?= 1000
SERIES ?= 500
STEADY ?= 3m
MUSTER ?= bin/muster
loadtest: $(if $(filter bin/muster,$(MUSTER)),build) ## Measure what a fleet costs: SITES=1000 SERIES=500 STEADY=3m FLAGS="--help"
	@$(GO) build -tags $(TAGS) -o bin/loadtest ./loadtest/cmd/loadtest
	@bin/loadtest --muster $(MUSTER) --sites $(SITES) --series $(SERIES) --steady $(STEADY) $(FLAGS)

QUIET_SITES ?= 300
QUIET_FOR   ?= 24h
quiet: ## Play normal sites in accelerated time and count false alarms: QUIET_SITES=300 QUIET_FOR=24h (0.4 s of CPU for each site and hour; bin/quiet.txt says how far it is)
	$(GO) test -count=1 -tags $(TAGS) -timeout 0 -v -run TestQuietSites ./loadtest/scenarios -quiet.collectors=false -quiet.at.once 150 -quiet.sites $(QUIET_SITES) -quiet.for $(QUIET_FOR) -quiet.notes $(CURDIR)/bin/quiet.txt

check: fmt-check tidy-check lint lint-ui generated-check test ## What has to pass before a change lands

fmt-check:
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "not gofmt-ed:"; echo "$$bad"; exit 1; }
	$(GO) vet -tags $(TAGS) ./...
	cd $(GRAFANA) && $(GO) vet ./...

tidy-check:
	$(GO) mod tidy -diff
	cd $(GRAFANA) && $(GO) mod tidy -diff

lint: tools-golangci ## Lint the Go code (.golangci.yml says with what)
	@"$$($(GO) env GOPATH)/bin/golangci-lint" run ./...
	@cd $(GRAFANA) && "$$($(GO) env GOPATH)/bin/golangci-lint" run ./...

lint-ui: $(UI)/node_modules/.package-lock.json $(UI)/tools/node_modules/.package-lock.json ## Lint the console's page
	@cd $(UI) && npm run lint --silent

generate: tools-protoc $(UI)/tools/node_modules/.package-lock.json ## Regenerate CRDs, deep copies, protobuf, the page's API types, Grafana dashboards and reference docs
	@export PATH="$$($(GO) env GOPATH)/bin:$$PATH"; $(GO) generate ./internal/wire ./cmd/internal/logruletypes ./control/api/v1alpha1 ./cmd/internal/docsgen ./dashboards/grafana/dashboards
	@cd $(UI) && npm run generate --silent

generated-check: generate ## Fail if generated files differ from what is checked in
	@git diff --exit-code --stat -- internal/wire control/api alerting/logrules docs/reference dashboards/grafana/dashboards $(UI)/src/api/openapi.ts || { echo "generated files are out of date; commit what 'make generate' made"; exit 1; }

bench: ## Run the benchmarks of docs/benchmarks.md
	$(GO) test -tags $(TAGS) -run '^$$' -bench . -benchtime 3x ./collector/... ./control/desired ./regional/... ./health/... ./internal/spool ./internal/remotewrite ./internal/software/delta ./cmd/internal/regional ./alerting/...

clean: ## Remove what was built (not the data directory)
	rm -rf bin $(GRAFANA)/dist $(GRAFANA)/node_modules $(UI)/dist $(UI)/node_modules $(UI)/tools/node_modules

tools-chromium:
	@command -v chromium >/dev/null || { echo "== installing Debian's chromium"; $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq chromium >/dev/null; }

tools-elasticsearch:
	@command -v mvn >/dev/null && command -v java >/dev/null || { echo "== installing Debian's Java runtime and Maven, for a real Elasticsearch in the tests"; $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq default-jre-headless maven >/dev/null; }

# What replaces a host's operating system is tested with loop devices, which need root, and
# the bootloaders' and updaters' own programs; without them those tests are skipped, as that of
# a pipeline's sample is without jq.
tools-os:
	@for c in grub-emu grub-script-check sfdisk mkfs.ext4 rauc mksquashfs dbus-daemon openssl jq; do command -v $$c >/dev/null || missing=1; done; [ -z "$$missing" ] || { echo "== installing Debian's GRUB and RAUC, for the tests of operating systems' updates, and jq for a sample"; $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends grub-common grub-emu fdisk e2fsprogs rauc rauc-service squashfs-tools dbus-daemon openssl jq >/dev/null; }

tools-golangci:
	@"$$($(GO) env GOPATH)/bin/golangci-lint" version 2>/dev/null | grep -q 'version $(GOLANGCI:v%=%) ' || { echo "== building golangci-lint"; cd / && $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI); }

tools-protoc:
	@command -v protoc >/dev/null || { echo "== installing Debian's protobuf-compiler"; $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq protobuf-compiler >/dev/null; }
	@[ -x "$$($(GO) env GOPATH)/bin/protoc-gen-go" ] || $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11
	@[ -x "$$($(GO) env GOPATH)/bin/protoc-gen-go-grpc" ] || $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
