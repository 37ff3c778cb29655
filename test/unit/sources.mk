# What runs without a server: the two libraries, and the kinds of sink that come with outbox, without the files that make libraries of
# these. test/unit, test/calls and test/fuzz have them in one program.
OWN_KINDS = $(filter-out sinks/kafka/outbox_% sinks/webhook/outbox_% sinks/webhook/trusted_%,$(wildcard sinks/kafka/*.cpp sinks/webhook/*.cpp))
DELIVERY = $(sort $(shell find src/delivery -name '*.cpp') $(OWN_KINDS) test/unit/kinds/own_kinds.cpp)
DISPATCH = $(sort $(shell find src/dispatch -name '*.cpp'))
