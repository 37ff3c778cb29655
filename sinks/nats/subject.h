/* subject.h: which subjects an event may be published to. */
#pragma once

#include <string>
#include <string_view>

#include "delivery/options/template.h"

namespace outbox::nats {

/* A line of the protocol, with an inbox and two numbers, must fit into the server's max_control_line of 4096. */
constexpr size_t longest_subject = 1024;

/* Why this is no subject for an event, as a sentence; empty if it is one. */
std::string subject_problem(std::string_view subject);

/* Of the option: what stands outside of variables must be legal. Throws BadInput. */
Template parse_subject(const std::string &name, const std::string &value);

}  // namespace outbox::nats
