# The extensions outbox, outbox_inbox and outbox_manual, by PGXS; then the targets of those who change it. make help lists what one runs.

EXTENSION = outbox outbox_inbox outbox_manual
OUTBOX_VERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" outbox.control)
INBOX_VERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" outbox_inbox.control)
MANUAL_VERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" outbox_manual.control)
MODULE_big = outbox
# An upgrade script is before.sql, all parts of the install script, and after.sql: src/extension/README.md.
UPGRADES = $(notdir $(wildcard src/extension/upgrade/*--$(OUTBOX_VERSION)))
DATA = $(sort $(wildcard src/extension/versions/*.sql src/extension/versions/*.control))
DATA_built = outbox--$(OUTBOX_VERSION).sql $(UPGRADES:%=outbox--%.sql) outbox_inbox--$(INBOX_VERSION).sql outbox_inbox.sql outbox_manual--$(MANUAL_VERSION).sql

SERVER_SOURCES = $(sort $(shell find src/server -name '*.cpp'))
DISPATCH_SOURCES = $(sort $(shell find src/dispatch -name '*.cpp'))
DELIVERY_SOURCES = $(sort $(shell find src/delivery -name '*.cpp'))
# The library is the server side, the decisions, and of the delivery library what is called; DELIVERY_ARCHIVE has that.
# KIT_ARCHIVE is the same without debugging information.
OUTBOX_SOURCES = $(SERVER_SOURCES) $(DISPATCH_SOURCES) $(wildcard src/delivery/*.cpp)
KIT_ARCHIVE = liboutbox_sink.a
DELIVERY_ARCHIVE = src/delivery/delivery.a
KIT_SOURCES = $(filter-out src/delivery/delivery.cpp src/delivery/manual.cpp,$(DELIVERY_SOURCES))
OBJS = $(patsubst %.cpp,%.o,$(filter-out $(KIT_SOURCES),$(OUTBOX_SOURCES)))

# The kinds of sink that come with it, in libraries of their own beside it: sinks/kafka is outbox_kafka.so, and
# outbox_kafka_messages.so for sessions, which need no client library (src/delivery/kind.h).
OWN_KINDS = kafka webhook
kafka_LIBRARIES = -lrdkafka -lcurl
webhook_LIBRARIES = -lcurl
OWN_KIND_SOURCES = $(sort $(wildcard $(OWN_KINDS:%=sinks/%/*.cpp)))
OWN_KIND_FILES = $(foreach kind,$(OWN_KINDS),outbox_$(kind).so outbox_$(kind)_messages.so)
SCRIPT_PARTS = $(sort $(wildcard src/extension/*.sql))

REGRESS = $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
REGRESS_OPTS = --encoding=UTF8 --outputdir=$(or $(REGRESS_OUTPUT),build/regress)
ISOLATION = $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --encoding=UTF8 --inputdir=test/isolation --outputdir=$(or $(ISOLATION_OUTPUT),build/isolation)

COMPILED = $(SERVER_SOURCES) $(DISPATCH_SOURCES) $(DELIVERY_SOURCES) $(OWN_KIND_SOURCES)
EXTRA_CLEAN = $(COMPILED:.cpp=.d) $(COMPILED:.cpp=.o) outbox.so $(KIT_ARCHIVE) $(DELIVERY_ARCHIVE) $(OWN_KIND_FILES) $(OWN_KINDS:%=sinks/%/kind.a) src/kit/kind_module.o

# The loadable module is C++: no LLVM bitcode, and only the entry points that PostgreSQL looks up are visible.
override with_llvm = no
SHLIB_LINK = $(DELIVERY_ARCHIVE) -lssl -lcrypto -lstdc++ -lpthread -Wl,--version-script=src/server/exports.map -Wl,-soname,outbox.so -Wl,-Bsymbolic

PG_CONFIG ?= pg_config
ifneq ($(shell command -v $(PG_CONFIG)),)
ifneq ($(wildcard $(shell $(PG_CONFIG) --pgxs)),)
PGXS := $(shell $(PG_CONFIG) --pgxs)
endif
endif

# PGXS has a rule of that name as well, which says that it cannot.
ifeq ($(MAKECMDGOALS),check)
.PHONY: check
check:
	test/run check
else ifdef PGXS
include $(PGXS)
# install(1) removes a file before it creates it: without the lock, two installations at once would fail with "File exists".
INSTALL := $(shell command -v flock >/dev/null && echo flock $$($(PG_CONFIG) --pkglibdir)) $(INSTALL)
else
all install installcheck:
	@echo "PostgreSQL's server headers are missing: install postgresql-server-dev-NN (Debian), or set PG_CONFIG=/path/to/pg_config" >&2
	@exit 1
endif

# assert() in the two libraries goes with the server's own: a failed one ends all sessions of a cluster.
NO_ASSERTS := $(if $(findstring --enable-cassert,$(shell $(PG_CONFIG) --configure 2>/dev/null)),,-DNDEBUG)

# Else g++ makes statics of templates one for all libraries of a process, and kinds contain the archive. Clang neither knows nor needs it.
NO_UNIQUE := $(shell $(CXX) -fno-gnu-unique -fsyntax-only -x c++ /dev/null 2>/dev/null && echo -fno-gnu-unique)

# In a clone. Elsewhere, as in an image, the new warning of a newer compiler stops no build.
ERRORS := $(if $(wildcard .git),-Werror)

OUTBOX_CXXFLAGS = -std=c++20 -O2 -g -fPIC -fvisibility=hidden $(NO_UNIQUE) -Wall -Wextra $(ERRORS) -Isrc -MMD -MP $(EXTRA_CXXFLAGS)

# Three libraries: only the server side sees PostgreSQL's headers, and it neither throws nor catches.
src/server/%.o: src/server/%.cpp
	$(CXX) $(OUTBOX_CXXFLAGS) -fno-exceptions -fno-rtti -Wno-register -Wno-unused-parameter \
	  -isystem $(shell $(PG_CONFIG) --includedir-server) -D_GNU_SOURCE -DOUTBOX_VERSION=\"$(OUTBOX_VERSION)\" -c -o $@ $<
src/dispatch/%.o: src/dispatch/%.cpp
	$(CXX) $(OUTBOX_CXXFLAGS) $(NO_ASSERTS) -c -o $@ $<
src/delivery/%.o: src/delivery/%.cpp
	$(CXX) $(OUTBOX_CXXFLAGS) $(NO_ASSERTS) -c -o $@ $<
$(OWN_KIND_SOURCES:.cpp=.o): %.o: %.cpp
	$(CXX) $(OUTBOX_CXXFLAGS) $(NO_ASSERTS) -c -o $@ $<
-include $(COMPILED:.cpp=.d)

$(DELIVERY_ARCHIVE): $(KIT_SOURCES:.cpp=.o)
	rm -f $@ && $(AR) $(AROPT) $@ $^
$(KIT_ARCHIVE): $(DELIVERY_ARCHIVE)
	cp $< $@ && strip --strip-debug $@
outbox.so: $(DELIVERY_ARCHIVE)

.SECONDEXPANSION:
# From the archives comes what the library's own file needs, so that of messages has no client library.
all: $(OWN_KIND_FILES)
src/kit/kind_module.o: src/kit/kind_module.c src/delivery/kind.h outbox.control
	$(CC) $(CFLAGS) $(CFLAGS_SL) $(CPPFLAGS) -Isrc -DOUTBOX_KIND_VERSION='"$(OUTBOX_VERSION)"' -c -o $@ $<
$(OWN_KINDS:%=sinks/%/kind.a): sinks/%/kind.a: $(OWN_KIND_SOURCES:.cpp=.o)
	rm -f $@ && $(AR) $(AROPT) $@ $(filter-out sinks/$*/outbox_% sinks/$*/trusted_%,$(filter sinks/$*/%,$^))
link_kind = $(CC) $(CFLAGS) $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS) $(LDFLAGS_SL) -shared -o $@ $(1) -lssl -lcrypto -lstdc++ -lpthread \
  -Wl,--version-script=src/kit/exports.map -Wl,-soname,$@ -Wl,-Bsymbolic -Wl,--as-needed
$(OWN_KINDS:%=outbox_%.so): outbox_%.so: sinks/$$*/outbox_$$*.o src/kit/kind_module.o sinks/$$*/kind.a $(DELIVERY_ARCHIVE)
	$(call link_kind,$($*_LIBRARIES))
$(OWN_KINDS:%=outbox_%_messages.so): outbox_%_messages.so: sinks/$$*/outbox_$$*_messages.o src/kit/kind_module.o sinks/$$*/kind.a $(DELIVERY_ARCHIVE)
	$(call link_kind)
outbox_webhook_messages.so: sinks/webhook/trusted_url_parts.o
install: install-kinds
install-kinds: $(OWN_KIND_FILES)
	$(INSTALL_SHLIB) $(OWN_KIND_FILES) '$(DESTDIR)$(pkglibdir)/'
uninstall: uninstall-kinds
uninstall-kinds:
	rm -f $(OWN_KIND_FILES:%='$(DESTDIR)$(pkglibdir)/%')
src/server/base/library_version.o: outbox.control

# Not to be run by hand: psql leaves at the first line. A script that was begun and not finished is not left behind.
# @READS_BY_INDEX@ becomes the planner's settings of PLANS, as clauses of CREATE FUNCTION.
PLANS = src/server/storage/plan_settings.h
reads_by_index = sed -n 's/^ *X(\([a-z_]*\), [a-z_]*, \([a-z0-9_]*\), .*/SET \1 = \2/p' $(PLANS) | paste -s -d ' '
make_script = { printf '\\echo Use "%s" to load this file. \\quit\n' '$(1)'; \
  sed -e 's/@VERSION@/$(OUTBOX_VERSION)/g' -e "s/@READS_BY_INDEX@/`$(reads_by_index)`/" $(filter %.sql,$^); } > $@.part && mv $@.part $@
outbox--$(OUTBOX_VERSION).sql: $(SCRIPT_PARTS) $(PLANS)
	@$(call make_script,CREATE EXTENSION outbox)
outbox_manual--$(MANUAL_VERSION).sql: $(sort $(wildcard src/extension/manual/*.sql)) $(PLANS)
	@$(call make_script,CREATE EXTENSION outbox_manual)
$(UPGRADES:%=outbox--%.sql): outbox--%.sql: src/extension/upgrade/$$*/before.sql $(SCRIPT_PARTS) src/extension/upgrade/$$*/after.sql $(PLANS)
	@$(call make_script,ALTER EXTENSION outbox UPDATE)

# pg_regress writes where it is told, and does not make the folders.
installcheck: | build/regress build/isolation
build/regress build/isolation:
	mkdir -p $@

# The consumer's half, in plain SQL: an extension, and the same as a file for databases in which no extension can be installed.
INBOX_PARTS = src/extension/inbox/schema.sql src/extension/41_days.sql src/extension/inbox/inbox.sql
INBOX_RIGHTS = src/extension/inbox/rights.sql
make_inbox = { $(1) sed 's/\boutbox\(_internal\)\?\./outbox_inbox./g' $^; } > $@.part && mv $@.part $@
outbox_inbox--$(INBOX_VERSION).sql: $(INBOX_PARTS) src/extension/inbox/owner.sql $(INBOX_RIGHTS)
	@$(call make_inbox,printf '\\echo Use "CREATE EXTENSION outbox_inbox" to load this file. \\quit\n';)
outbox_inbox.sql: src/extension/inbox/plain.sql $(INBOX_PARTS) $(INBOX_RIGHTS)
	@$(call make_inbox)

# For kinds of sink in libraries of their own (sinks/new-sink.md): the delivery library without its sinks as headers and a static archive, a
# Makefile, and the program outbox-sink-test, which is left out where only src was copied to.
KIT = src/kit/kind.mk src/kit/kind_module.c src/kit/exports.map $(sort $(shell find src/delivery -name '*.h'))
KIT_TEST = $(wildcard test/sink/*.py $(addprefix test/chaos/,checker.py history.py plan.py writers.py schema.sql))
KIT_PROGRAM = $(wildcard test/sink/outbox-sink-test)
all: $(KIT_ARCHIVE)
KIT_FOLDER = $(DESTDIR)$(includedir_server)/extension/outbox
kit_place = $(patsubst kit/%,%,$(1:src/%=%))
install: install-kit
install-kit: $(KIT_ARCHIVE)
	$(INSTALL_DATA) -D $(KIT_ARCHIVE) $(DESTDIR)$(pkglibdir)/$(KIT_ARCHIVE)
	@echo "installing $(words $(KIT) $(KIT_TEST) $(KIT_PROGRAM)) files in $(KIT_FOLDER)"
	@$(foreach file,$(KIT),$(INSTALL_DATA) -D $(file) $(KIT_FOLDER)/$(call kit_place,$(file)) &&) true
	@$(foreach file,$(KIT_TEST),$(INSTALL_DATA) -D $(file) $(KIT_FOLDER)/sink-test/$(notdir $(file)) &&) true
	@$(foreach file,$(KIT_PROGRAM),$(INSTALL_SCRIPT) -D $(file) $(KIT_FOLDER)/sink-test/$(notdir $(file)) &&) true
uninstall: uninstall-kit
uninstall-kit:
	rm -rf $(KIT_FOLDER) $(DESTDIR)$(pkglibdir)/$(KIT_ARCHIVE)

# The kinds of sink in sinks/ whose libraries are there, with their headers. Each is an extension of its own, built against the outbox that is installed.
SINKS = $(or $(KINDS),$(patsubst sinks/%/Makefile,%,$(wildcard sinks/*/Makefile)))
sinks:
	@test -e $(includedir_server)/extension/outbox/kind.mk || { echo "outbox is not installed for this server: run make install first (PG_CONFIG chooses the server)" >&2; exit 1; }
	@for kind in $(SINKS); do \
	  if $(MAKE) --no-print-directory -s -C sinks/$$kind has-library >/dev/null 2>&1; then $(MAKE) -C sinks/$$kind all || exit 1; \
	  else echo "sinks/$$kind is left out: it needs $$(sed -n 's/^BUILD_PACKAGES = //p' sinks/$$kind/Makefile)"; fi; \
	done

# What test/rig/build compares with what is installed, and its version.
kit:
	@echo $(foreach file,$(KIT),$(file):$(call kit_place,$(file))) $(foreach file,$(KIT_TEST) $(KIT_PROGRAM),$(file):sink-test/$(notdir $(file)))
scripts:
	@echo $(DATA) $(DATA_built)

version:
	@echo $(OUTBOX_VERSION)

# What one runs: "name: ## text" or "## name: text" below a heading "##@" is a line of make help.
.PHONY: help sinks scripts version kit install-kit uninstall-kit install-kinds uninstall-kinds
help:
	@sed -nE -e 's/^##@ /\n/p' -e 's/^## ([a-z-]+): /  make \1\t/p' -e 's/^([a-z-]+):.* ## /  make \1\t/p' Makefile | expand -t 24

##@ Try it: on a fresh machine, each installs what it needs
.PHONY: demo examples bench bench-peers conformance
demo: ## an outage and what arrives after it, in minutes; as root
	demo/run
examples: ## the stacks of examples/, each with its own toolchain
	test/run examples
bench: ## throughput and latency
	bench/run
bench-peers: ## the same for Debezium, to compare
	bench/run --peers
conformance: ## what outbox and other relays lose when a transaction commits late
	conformance/run

##@ Build, for a server of your own: PG_CONFIG=/path/to/pg_config chooses it
## all: the extension (without a target)
## install: as root
## installcheck: pg_regress and isolation tests on the running server
## uninstall: the files that install has placed
## sinks: the kinds of sink in sinks/, for the outbox that is installed; KINDS="redis nats"
## clean: what was built here

##@ Test: CONTRIBUTING.md tells when
.PHONY: test test-all nightly gate unit
## check: unit tests and pg_regress, in minutes
test: ## what a change must pass
	test/run test
gate: ## the same on a clean clone, before main moves; COMMIT=main: instead of the one that is checked out
	.ci/gate $(COMMIT)
test-all: ## everything that this machine has the means for
	test/run all
nightly: ## the same, one suite after the other, with fresh seeds; the report is build/nightly.txt; SEED=1
	test/run --nightly all
unit: ## unit tests alone; FILTER='Webhook*'
	$(MAKE) -f test/unit/Makefile run

##@ Test one property
.PHONY: chaos chaos-night attacks disks simulate models test-model fuzz test-faults test-calls test-assert test-memory test-races test-upgrade test-packages test-patroni test-compose test-console
chaos: ## random faults, and what arrived; CYCLES=20 SEED=1
	test/chaos/run
chaos-night: ## one seed after the other; HOURS=8 CYCLES=20 (of each seed); keeps those that failed in build/chaos/failed
	test/chaos/run --night
attacks: ## hostile peers of each kind of sink; ATTACKS="flood,drip": these alone
	test/run attacks
disks: ## power cuts and disk errors, and what arrived; CYCLES=20 SEED=1
	test/power/run
simulate: ## src/dispatch in simulated worlds; SEEDS=1000 SEED=1: which, else fresh ones for three minutes
	test/rig/install check
	test/simulate/run
models: ## protocols between processes, model-checked
	test/run protocols
test-model: ## random steps through the SQL surface; EXAMPLES=200 SEED=1 STEPS=20: how many, from which seed (else a fresh one), how long
	EXAMPLES=$(or $(EXAMPLES),200) SEED=$(SEED) test/run model
fuzz: ## parsers of foreign bytes; SECONDS=600: for each target; TARGETS="url match": these alone
	test/fuzz/run --seconds $(or $(SECONDS),60) $(TARGETS)
test-faults: ## breaks the server at each fault point in each way; POINTS="claim. Sink" WAYS="kill wait" SEED=1: which
	test/fault_points/run
test-calls: ## each allocation and call of src/delivery fails once; SCENARIO=webhook N=call:17: this one, with its stack
	test/rig/install check
	test/calls/run
test-assert: ## on a PostgreSQL with --enable-cassert; CYCLES=20: of chaos
	test/run assert
test-memory: ## on a server under Valgrind, half an hour; PYTEST_ARGS="-k test_retry" chooses the tests of e2e
	test/run memory
test-races: ## the unit tests, librdkafka and libcurl under ThreadSanitizer
	test/run races
test-upgrade: ## pg_upgrade from PostgreSQL 15 to 17, in a system of its own, as root; UPGRADE_TO=18: to 18
	PYTEST_ARGS="-k pg_upgrade -rs" test/rig/chroot $(or $(UPGRADE_TO),17) test/run operate
test-packages: ## packages and a release, built, installed and used
	test/run packages packages-17 packages-18
test-patroni: ## a Patroni cluster of two nodes
	test/run patroni
test-compose: ## docker/ without Docker
	test/run compose
test-console: ## the console: its pages, attacks on it, a browser; PICTURES=1: makes those of docs/console.md
	test/run console

##@ Package and release
.PHONY: deb deb-sinks deb-console rpm dist release
deb: ## Debian packages in build/deb, for the servers that are installed; PG_VERSIONS="16 17" CHECK=1
	packaging/deb
deb-sinks: ## those of the kinds of sink in build/deb-sinks, for the outbox that is installed; KINDS="redis nats"
	packaging/deb-sinks
deb-console: ## that of the console in build/deb-console
	packaging/deb-console
rpm: ## an RPM in build/rpm
	packaging/rpm
dist: ## the archive for PGXN in build/dist
	packaging/source zip build/dist/outbox-$(OUTBOX_VERSION).zip
release: ## all of a release in build/release, built in fresh systems, as root; publishes nothing; PG_VERSIONS="15 17"
	packaging/release

##@ Documentation and style
.PHONY: docs surface docs-site diagrams plots dashboard lint format
docs: ## docs/reference.md, and the tables of other pages, from the code
	test/docs/generate
surface: ## test/docs/surface.txt, the list of what stays: docs/compatibility.md
	test/docs/generate surface
docs-site: ## docs/ as a site with search, in build/site; a broken link fails
	packaging/site/build
diagrams: ## of README.md, src/README.md and docs, from src/diagrams/*.dot
	test/rig/install diagrams
	src/diagrams/draw
plots: ## of docs/performance.md, from its table
	test/rig/install bench
	build/venv/bin/python bench/plots.py
dashboard: ## of docs/monitoring.md, from five minutes of a server with Prometheus; what it measured is in build/dashboard.json
	test/rig/install bench +prometheus +prometheus-postgres-exporter
	bash -c '. test/rig/env.sh && test/rig/build && exec "$$PYTHON" -u docker/grafana/picture.py'
lint: ## what a change's style must pass
	test/lint
format: ## clang-format on all C++
	git ls-files '*.cpp' '*.h' | xargs clang-format -i
