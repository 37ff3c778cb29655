# outbox: make, make install, make installcheck, for a server of your own (PG_CONFIG chooses it);
# make check: unit tests and pg_regress, in minutes; make test: what a change must pass; make gate: the same on a clean clone, before main moves;
# make test-all: everything that this machine has the means for; make nightly: the same, one suite after the other, with fresh seeds;
# make test-assert: on a PostgreSQL that checks itself; make test-memory: on one that Valgrind watches; make test-faults: broken at every edge;
# make sinks builds the kinds of sink in sinks/, for the outbox that is installed;
# make demo, make bench, make bench-peers, make chaos, each by itself on a fresh machine (they install what they need);
# make examples tries the stacks of examples/;
# make deb, make rpm, make dist (for PGXN): packages in build/; make test-packages, make test-upgrade, make test-patroni, make test-compose try them, and what docs/ says;
# make lint, make format, make docs, make diagrams, make plots, make dashboard for those who change it.

EXTENSION = outbox
OUTBOX_VERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" outbox.control)
MODULE_big = outbox
# An upgrade script is before.sql, all parts of the install script, and after.sql: src/extension/README.md.
UPGRADES = $(notdir $(wildcard src/extension/upgrade/*--$(OUTBOX_VERSION)))
DATA = $(sort $(wildcard src/extension/versions/*.sql src/extension/versions/*.control))
DATA_built = outbox--$(OUTBOX_VERSION).sql $(UPGRADES:%=outbox--%.sql) outbox_inbox.sql

SERVER_SOURCES = $(sort $(shell find src/server -name '*.cpp'))
DISPATCH_SOURCES = $(sort $(shell find src/dispatch -name '*.cpp'))
DELIVERY_SOURCES = $(sort $(shell find src/delivery -name '*.cpp'))
OBJS = $(patsubst %.cpp,%.o,$(SERVER_SOURCES) $(DISPATCH_SOURCES) $(DELIVERY_SOURCES))
SCRIPT_PARTS = $(sort $(wildcard src/extension/*.sql))

REGRESS = $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
REGRESS_OPTS = --encoding=UTF8 --outputdir=$(or $(REGRESS_OUTPUT),build/regress)
ISOLATION = $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --encoding=UTF8 --inputdir=test/isolation --outputdir=$(or $(ISOLATION_OUTPUT),build/isolation)

EXTRA_CLEAN = $(patsubst %.cpp,%.d,$(SERVER_SOURCES) $(DISPATCH_SOURCES) $(DELIVERY_SOURCES)) outbox.so liboutbox_sink.a

# The loadable module is C++: no LLVM bitcode, and only the entry points that PostgreSQL looks up are visible.
override with_llvm = no
SHLIB_LINK = -lrdkafka -lcurl -lssl -lcrypto -lstdc++ -lpthread -Wl,--version-script=src/server/exports.map -Wl,--no-undefined -Wl,--unresolved-symbols=ignore-all -Wl,-soname,outbox.so \
  -Wl,-Bsymbolic

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
else
all install installcheck:
	@echo "PostgreSQL's server headers are missing: install postgresql-server-dev-NN (Debian), or set PG_CONFIG=/path/to/pg_config" >&2
	@exit 1
endif

# assert() in the two libraries goes with the server's own: a failed one ends all sessions of a cluster.
NO_ASSERTS := $(if $(findstring --enable-cassert,$(shell $(PG_CONFIG) --configure 2>/dev/null)),,-DNDEBUG)

OUTBOX_CXXFLAGS = -std=c++20 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra -Werror -Isrc -MMD -MP $(EXTRA_CXXFLAGS)

# Three libraries: only the server side sees PostgreSQL's headers, and it neither throws nor catches.
src/server/%.o: src/server/%.cpp
	$(CXX) $(OUTBOX_CXXFLAGS) -fno-exceptions -fno-rtti -Wno-register -Wno-unused-parameter \
	  -isystem $(shell $(PG_CONFIG) --includedir-server) -D_GNU_SOURCE -DOUTBOX_VERSION=\"$(OUTBOX_VERSION)\" -c -o $@ $<
src/dispatch/%.o: src/dispatch/%.cpp
	$(CXX) $(OUTBOX_CXXFLAGS) $(NO_ASSERTS) -c -o $@ $<
src/delivery/%.o: src/delivery/%.cpp
	$(CXX) $(OUTBOX_CXXFLAGS) $(NO_ASSERTS) -c -o $@ $<
-include $(OBJS:.o=.d)
src/server/base/library_version.o: outbox.control

# Not to be run by hand: psql leaves at the first line. A script that was begun and not finished is not left behind.
make_script = { printf '\\echo Use "%s" to load this file. \\quit\n' '$(1)'; sed 's/@VERSION@/$(OUTBOX_VERSION)/g' $^; } > $@.part && mv $@.part $@
outbox--$(OUTBOX_VERSION).sql: $(SCRIPT_PARTS)
	@$(call make_script,CREATE EXTENSION outbox)
.SECONDEXPANSION:
$(UPGRADES:%=outbox--%.sql): outbox--%.sql: src/extension/upgrade/$$*/before.sql $(SCRIPT_PARTS) src/extension/upgrade/$$*/after.sql
	@$(call make_script,ALTER EXTENSION outbox UPDATE)

# pg_regress writes where it is told, and does not make the folders.
installcheck: | build/regress build/isolation
build/regress build/isolation:
	mkdir -p $@

# The consumer's part alone, as plain SQL.
INBOX_PARTS = src/extension/inbox/before.sql src/extension/41_days.sql src/extension/60_inbox.sql src/extension/inbox/after.sql
outbox_inbox.sql: $(INBOX_PARTS)
	@cat $^ > $@.part && mv $@.part $@

# For kinds of sink in libraries of their own (docs/new-sink.md): the delivery library without its sinks as headers and a static archive, a
# Makefile, and a test, which is left out where only src was copied to.
KIT = src/kit/kind.mk src/kit/kind_module.c src/kit/exports.map $(sort $(shell find src/delivery -name '*.h' -not -path '*/sinks/*'))
KIT_TEST = $(wildcard test/sink/*.py $(addprefix test/chaos/,checker.py history.py plan.py writers.py schema.sql))
KIT_ARCHIVE = liboutbox_sink.a
all: $(KIT_ARCHIVE)
$(KIT_ARCHIVE): $(patsubst %.cpp,%.o,$(filter-out src/delivery/delivery.cpp src/delivery/sinks/%,$(DELIVERY_SOURCES)))
	rm -f $@ && $(AR) $(AROPT) $@ $^ && strip --strip-debug $@
KIT_FOLDER = $(DESTDIR)$(includedir_server)/extension/outbox
kit_place = $(patsubst kit/%,%,$(1:src/%=%))
install: install-kit
install-kit: $(KIT_ARCHIVE)
	$(INSTALL_DATA) -D $(KIT_ARCHIVE) $(DESTDIR)$(pkglibdir)/$(KIT_ARCHIVE)
	$(foreach file,$(KIT),$(INSTALL_DATA) -D $(file) $(KIT_FOLDER)/$(call kit_place,$(file)) &&) true
	$(foreach file,$(KIT_TEST),$(INSTALL_DATA) -D $(file) $(KIT_FOLDER)/sink-test/$(notdir $(file)) &&) true
uninstall: uninstall-kit
uninstall-kit:
	rm -rf $(KIT_FOLDER) $(DESTDIR)$(pkglibdir)/$(KIT_ARCHIVE)

# The kinds of sink in sinks/ whose client library is there. Each is an extension of its own, built against the outbox that is installed.
SINKS = $(or $(KINDS),$(patsubst sinks/%/Makefile,%,$(wildcard sinks/*/Makefile)))
sinks:
	@for kind in $(SINKS); do \
	  if $(MAKE) --no-print-directory -s -C sinks/$$kind has-library >/dev/null 2>&1; then $(MAKE) -C sinks/$$kind all || exit 1; \
	  else echo "sinks/$$kind is left out: its client library is not installed (make -C sinks/$$kind install-peer)"; fi; \
	done

# What test/rig/build compares with what is installed, and its version.
kit:
	@echo $(foreach file,$(KIT),$(file):$(call kit_place,$(file))) $(foreach file,$(KIT_TEST),$(file):sink-test/$(notdir $(file)))
scripts:
	@echo $(DATA) $(DATA_built)

version:
	@echo $(OUTBOX_VERSION)

.PHONY: sinks scripts version conformance demo test test-all nightly gate test-assert unit bench bench-peers chaos models simulate fuzz docs lint format deb rpm dist test-packages test-patroni test-compose test-model test-upgrade examples diagrams plots dashboard test-faults deb-sinks install-kit uninstall-kit kit disks test-calls test-memory test-races chaos-night
demo:
	demo/run
test:
	test/run test
test-all:
	test/run all
nightly: # the report is build/nightly.txt; SEED=1: instead of a fresh one
	test/run --nightly all
gate: # COMMIT=main: instead of the one that is checked out
	.ci/gate $(COMMIT)
test-assert: # on a PostgreSQL with --enable-cassert; CYCLES=20: of chaos
	test/run assert
test-faults: # breaks the server at each fault point in each way; POINTS="claim. Sink" WAYS="kill wait" SEED=1: which
	test/faults/run
test-memory: # on a server under Valgrind, half an hour; PYTEST_ARGS="-k test_retry" chooses the tests of e2e
	test/run memory
test-races: # the unit tests, librdkafka and libcurl under ThreadSanitizer
	test/run races
unit:
	$(MAKE) -f test/unit/Makefile run
bench:
	bench/run
bench-peers:
	bench/run --peers
chaos:
	test/chaos/run
conformance: # what outbox and other relays lose when a transaction commits late
	conformance/run
disks: # CYCLES=20 SEED=1: power cuts and disk errors, and what arrived
	test/power/run
chaos-night: # one seed after the other until it is stopped; HOURS=8 CYCLES=20 (of each seed); keeps those that failed in build/chaos/failed
	test/chaos/run --night
models:
	test/run models
simulate: # SEEDS=1000 SEED=1: which worlds, else fresh ones for three minutes
	test/rig/install check
	test/simulate/run
fuzz: # SECONDS=600: for each target; TARGETS="url match": these alone
	test/fuzz/run --seconds $(or $(SECONDS),60) $(TARGETS)
test-model: # EXAMPLES=200 SEED=1 STEPS=20: how many, from which seed (else a fresh one), how long
	EXAMPLES=$(or $(EXAMPLES),200) SEED=$(SEED) test/run model
test-calls: # each allocation and call of src/delivery and src/dispatch fails once; SCENARIO=webhook N=call:17: this one, with its stack
	test/rig/install check
	test/calls/run
test-upgrade: # pg_upgrade from 15, in a release that has a newer one as well; UPGRADE_TO=18 chooses it
	PYTEST_ARGS="-k pg_upgrade -rs" test/rig/chroot $(or $(UPGRADE_TO),17) test/run operate
examples:
	test/run examples
docs:
	test/docs/generate
.PHONY: docs-site
docs-site: # docs/ as a site with search, in build/site; a broken link fails
	packaging/site/build
diagrams: # of README.md, src/README.md and docs, from src/diagrams/*.dot
	test/rig/install diagrams
	src/diagrams/draw
plots: # of docs/performance.md, from its table
	test/rig/install bench
	build/venv/bin/python bench/plots.py
dashboard: # of docs/monitoring.md, from five minutes of a server with Prometheus; what it measured is in build/dashboard.json
	test/rig/install bench +prometheus +prometheus-postgres-exporter
	bash -c '. test/rig/env.sh && test/rig/build && exec "$$PYTHON" -u docker/grafana/picture.py'
lint:
	test/lint
format:
	git ls-files '*.cpp' '*.h' | xargs clang-format -i
deb:
	packaging/deb
deb-sinks: # of the kinds of sink in sinks/, for the outbox that is installed
	packaging/deb-sinks
rpm:
	packaging/rpm
test-packages:
	test/run packages packages-17 packages-18
test-patroni test-compose: test-%:
	test/run $*
dist:
	packaging/source zip build/dist/outbox-$(OUTBOX_VERSION).zip
