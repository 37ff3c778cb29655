/*
 * guarded.h: converts every exception into a return value. An exception that left a function of a C API would
 * terminate the process.
 */
#pragma once

#include <new>
#include <string_view>

#include "delivery/base/out_of_memory.h"
#include "delivery/base/text.h"
#include "delivery/kind.h"
#include "delivery/options/options.h"

namespace outbox {

inline void fill(ob_error *error, ob_error_kind kind, std::string_view subject, std::string_view message,
                 std::string_view detail, std::string_view hint) noexcept {
  if (!error)
    return;
  error->kind = kind;
  copy_text(error->subject, subject);
  copy_text(error->message, message);
  copy_text(error->detail, detail);
  copy_text(error->hint, hint);
}

/* Runs `body`. An exception fills *error, and the result is `failed`. */
template <class Value, class Body> Value guarded(ob_error *error, Value failed, Body body) noexcept {
  try {
    Value value = body();
    fill(error, OB_OK, {}, {}, {}, {});
    return value;
  } catch (const BadInput &bad) {
    fill(error, bad.kind, bad.subject, bad.what(), bad.detail, bad.hint);
  } catch (const std::bad_alloc &) {
    fill(error, OB_OUT_OF_MEMORY, {}, "out of memory", {}, {});
    out_of_memory();
  } catch (const std::exception &other) {
    fill(error, OB_INTERNAL, {}, other.what(), {}, {});
  } catch (...) {
    fill(error, OB_INTERNAL, {}, "unexpected failure in the delivery library", {}, {});
  }
  return failed;
}

}  // namespace outbox
