/* dispatch.cpp: makes the object that owns all parts. A part may allocate, so making it can fail. */
#include "dispatch/dispatch.h"

namespace dispatch {

Dispatch *create() noexcept {
  try {
    return new Dispatch();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace dispatch
