/*
 * failing_port.h: what the three ports of this server (dispatch/round) share: the places at which tests let a round
 * fail, and the error when memory is missing.
 */
#pragma once

#include "server/base/fault_point.h"
#include "server/sinks/dispatcher.h"

template <typename Port> class FailingPort : public Port {
public:
  void at(const char *place) final {
    OUTBOX_FAULT_POINT(place);
    (void)place;
  }
  [[noreturn]] void out_of_memory() final {
    require_memory(false);
    pg_unreachable();
  }
};
