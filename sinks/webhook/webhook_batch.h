/*
 * webhook_batch.h: the option `batch`: several events in one request. Which events those are is
 * the HTTP sender's decision (http_sender.h).
 */
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "delivery/http/http_sender.h"
#include "delivery/options/options.h"

namespace outbox {

enum class BatchFormat { Array, Lines };

/* The bounds of a request, and how its events are joined. */
struct Batch {
  static constexpr OptionForm form = OptionForm::List;
  size_t events;
  size_t bytes = 1 << 20;            /* of the body; one event may be larger */
  std::chrono::milliseconds wait{0}; /* of the first event for others */
  BatchFormat format = BatchFormat::Array;

  /* Of option `batch`: '100', '100, 256kB', '100, 256kB, 20ms', each also with ', ndjson'. Throws BadInput. */
  static Batch parse(const std::string &option, const std::string &text);
};

/* A body of the JSON texts that are the bodies of these messages. */
std::string batch_body(BatchFormat format, const std::vector<HttpMessage> &messages);

/* Names a request by its events: the same events in the same order have the same name, others another. A receiver may
 * drop a request whose name it has seen; with the name of one of its events, it would drop the others with it. Each
 * message has its event's id in parts[0]. The text is a UUID (version 8). */
std::string batch_id(const std::vector<HttpMessage> &messages);

}  // namespace outbox
