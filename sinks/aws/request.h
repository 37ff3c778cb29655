/* request.h: one request for a batch of entries, as the target's service wants it; the signature is not part of it.
 */
#pragma once

#include <string>
#include <vector>

#include "delivery/identity/aws_signature.h"
#include "message.h"
#include "target.h"

namespace outbox::aws_sink {

constexpr size_t most_entries = 10; /* of all three services */

struct Content {
  std::string body;
  aws::Headers headers;
};

/* The entries are numbered from 0 in the request. */
Content batch_request(const Target &target, const std::vector<const Fields *> &entries);
/* Asks whether the target is there; needs one more right than sending does. */
Content question(const Target &target);
/* Whether this is the body of a question to EventBridge. */
bool asks_for_bus(std::string_view body);

}  // namespace outbox::aws_sink
