/*
 * failing_port.h: what the three ports of this server (dispatch/round) share: the places at which tests let a round
 * fail.
 */
#pragma once

#include "server/base/fault_point.h"

template <typename Port> class FailingPort : public Port {
public:
  void at(const char *place) final {
    OUTBOX_FAULT_POINT(place);
    (void)place;
  }
};
