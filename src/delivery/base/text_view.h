/* text_view.h: a text of the delivery API as C++ reads it. */
#pragma once

#include <string_view>

#include "delivery/delivery.h"

namespace outbox {

inline std::string_view view(const ob_text &text) {
  return {text.data ? text.data : "", text.len};
}

}  // namespace outbox
