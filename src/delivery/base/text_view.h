/* text_view.h: an ob_text as a std::string_view, and the reverse; an event's headers as a std::span. */
#pragma once

#include <span>
#include <string_view>

#include "delivery/kind.h"

namespace outbox {

inline std::string_view view(const ob_text &text) {
  return {text.data ? text.data : "", text.len};
}

inline ob_text as_text(std::string_view text) {
  return {text.data(), text.size()};
}

inline std::span<const ob_header> headers_of(const ob_event &event) {
  return {event.headers, event.n_headers};
}

}  // namespace outbox
