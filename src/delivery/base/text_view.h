/* text_view.h: an ob_text as a std::string_view. */
#pragma once

#include <string_view>

#include "delivery/delivery.h"

namespace outbox {

inline std::string_view view(const ob_text &text) {
  return {text.data ? text.data : "", text.len};
}

}  // namespace outbox
