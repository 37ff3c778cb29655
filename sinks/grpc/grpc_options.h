/* grpc_options.h: the options of servers and user mappings, and the checks of their values. */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/base/secret_mask.h"
#include "delivery/http/http_headers.h"
#include "delivery/options/options.h"

namespace outbox::grpc {

inline constexpr OptionName METHOD{"method"}, MESSAGE{"message"}, MAX_MESSAGE_BYTES{"max_message_bytes"};

const std::vector<OptionSpec> &grpc_options();
/* Checks combinations of a user mapping's options. Throws BadInput. */
void check_user_mapping(const Options &mapping);

/* Everything of a user mapping that no text may show. */
SecretMask secrets_of(const Options &mapping);

size_t parse_max_message_bytes(const std::string &name, const std::string &value);
/* Metadata as HTTP headers. Throws BadInput. */
HttpHeaders parse_metadata(const std::string &name, const std::string &value);

}  // namespace outbox::grpc
