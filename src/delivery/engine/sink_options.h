/* sink_options.h: the checks that all kinds of sink share, from a list of options to a parsed configuration. */
#pragma once

#include <memory>

#include "delivery/engine/sink.h"
#include "delivery/options/options.h"

namespace outbox {

/* Throws BadInput when there is no such kind. */
const SinkKind &sink_kind(std::string_view name);

Options to_options(const ob_option *options, size_t n);

/* Checks which options are given: known, in the right place, allowed; and the values of those that all kinds have.
 * Throws BadInput. */
void check_options(const SinkKind &kind, ob_scope scope, const Options &options, bool superuser);

/* Checks a user mapping's options, each and together, for CREATE USER MAPPING. Throws BadInput. */
void check_mapping(const SinkKind &kind, const Options &mapping, bool superuser);

/* Checks what a server's owner who is not a superuser may override in the user mapping. Throws BadInput. */
void check_owner(const SinkKind &kind, const Options &server, const Options &mapping);

/* Checks the options (an older version may have accepted more) and parses them. `mapping` may be null. */
std::shared_ptr<const SinkConfig> parse_options(const SinkKind &kind, const Options &server, const Options *mapping,
                                                Owner owner = Owner::User);

/* Errors that several kinds raise with the same text. */
[[noreturn]] void throw_secret_in_server(const std::string &name);
[[noreturn]] void throw_not_for_mapping(const std::string &name);
[[noreturn]] void throw_superuser_only(const std::string &name, const std::string &detail);

}  // namespace outbox
