/* dispatch.cpp: makes the object that owns all parts, and passes a round's begin and end to those that have a say. */
#include "dispatch/dispatch.h"

namespace dispatch {

Dispatch *create() noexcept {
  try {
    return new Dispatch();
  } catch (...) {
    return nullptr;
  }
}

void Dispatch::begin_round(Moment now) noexcept {
  locked_rows.begin_round(now);
}

void Dispatch::commit_round() noexcept {
  locked_rows.commit_round();
}

void Dispatch::roll_back_round() noexcept {
  locked_rows.roll_back_round();
}

}  // namespace dispatch
