/* doctor_causes.h: causes and cures of what outbox.doctor() finds, as docs/operations.md has them. */
#pragma once

#include <span>
#include <string_view>

namespace console {

struct DoctorCause {
  std::string_view check, says; /* a part of the finding's detail */
  std::string_view cause, cure;
};

std::span<const DoctorCause> doctor_causes();

}  // namespace console
