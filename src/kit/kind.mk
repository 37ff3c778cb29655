# kind.mk: the Makefile of a kind of sink includes it after MODULE_big, OBJS, EXTENSION and DATA (sinks/new-sink.md).
# SHLIB_LINK: the libraries that the kind needs. PG_CONFIG: which server.
# make sink-test PEER=peer.py CYCLES=20 SEED=1: runs outbox-sink-test, which checks what arrives while the installed kind's peer and the server are broken.
PG_CONFIG ?= pg_config
OUTBOX_KIT := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
OBJS += outbox_kind_module.o
# The kit is a static archive, so a kind shares no C++ with outbox.so: only its entry points are visible (delivery/kind.h).
# -fno-gnu-unique, which clang does not know and does not need: else g++ makes statics of templates one for all libraries of a process.
override PG_CXXFLAGS += -std=c++20 -fvisibility=hidden $(shell $(CXX) -fno-gnu-unique -fsyntax-only -x c++ /dev/null 2>/dev/null && echo -fno-gnu-unique) -I$(OUTBOX_KIT)
override SHLIB_LINK := $(shell $(PG_CONFIG) --pkglibdir)/liboutbox_sink.a $(SHLIB_LINK) -lstdc++ -lpthread -Wl,--version-script=$(OUTBOX_KIT)/exports.map
override with_llvm = no

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
# install(1) removes a file before it creates it: without the lock, two installations at once would fail with "File exists".
INSTALL := $(shell command -v flock >/dev/null && echo flock $$($(PG_CONFIG) --pkglibdir)) $(INSTALL)

$(OBJS): $(OUTBOX_KIT)/kind.mk # a kit that was installed anew may have other headers, and its archive must fit them
outbox_kind_module.o: $(OUTBOX_KIT)/kind_module.c
	$(COMPILE.c) -I$(OUTBOX_KIT) -DOUTBOX_KIND_VERSION='"$(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(EXTENSION).control)"' -o $@ $<

PEER ?= peer.py
.PHONY: sink-test
sink-test:
	$(OUTBOX_KIT)/sink-test/outbox-sink-test --pg-config $(PG_CONFIG) $(CYCLES:%=--cycles %) $(SEED:%=--seed %) $(PEER)
