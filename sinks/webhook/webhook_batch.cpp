/* webhook_batch.cpp: makes one request of several events. */
#include "webhook_batch.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include <openssl/evp.h>

#include "delivery/base/text.h"
#include "delivery/base/uuid.h"
#include "delivery/options/options.h"

namespace outbox {

static constexpr size_t most_events = 10'000, least_bytes = 1 << 10, most_bytes = 16 << 20;
static constexpr std::chrono::milliseconds longest_wait{5000};

Batch Batch::parse(const std::string &option, const std::string &text) {
  try {
    std::vector<std::string_view> bounds = split(text, ',');
    const bool lines = bounds.size() > 1 && bounds.back() == "ndjson";
    if (lines)
      bounds.pop_back();
    if (bounds.size() > 3)
      throw_bad_value(option, text, "It has more than three bounds.");
    Batch batch{.events = static_cast<size_t>(parse_int(option, std::string(bounds[0]), 1, most_events)),
                .format = lines ? BatchFormat::Lines : BatchFormat::Array};
    if (bounds.size() > 1)
      batch.bytes = parse_size(option, std::string(bounds[1]), least_bytes, most_bytes);
    if (bounds.size() > 2)
      batch.wait = parse_duration(option, std::string(bounds[2]), std::chrono::milliseconds(0), longest_wait);
    return batch;
  } catch (BadInput &bad) { /* the error is about one bound: add the whole syntax */
    bad.hint =
        "Write the most events of a request, and perhaps its most bytes, and how long its first event waits for "
        "others: '100', '100, 1MB' or '100, 1MB, 20ms'. For an event in each line add ndjson: '100, ndjson'.";
    throw;
  }
}

std::string batch_body(BatchFormat format, const std::vector<HttpMessage> &messages) {
  size_t bytes = 2;
  for (const HttpMessage &message : messages)
    bytes += message.body.size() + 1;
  std::string body;
  body.reserve(bytes);
  for (const HttpMessage &message : messages) {
    if (format == BatchFormat::Array) {
      body += body.empty() ? '[' : ',';
      body += message.body;
      continue;
    }
    const size_t begin = body.size();
    body += message.body;
    /* Only between the values of a template: within JSON's texts a line break is escaped. */
    std::replace_if(
        body.begin() + static_cast<ptrdiff_t>(begin), body.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    body += '\n';
  }
  if (format == BatchFormat::Array)
    body += ']';
  return body;
}

std::string batch_id(const std::vector<HttpMessage> &messages) {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  unsigned char digest[EVP_MAX_MD_SIZE];
  bool ok = hash && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1;
  for (const HttpMessage &message : messages)
    ok = ok && EVP_DigestUpdate(hash.get(), message.parts.at(0).data(), message.parts.at(0).size()) == 1;
  if (!ok || EVP_DigestFinal_ex(hash.get(), digest, nullptr) != 1)
    throw std::runtime_error("could not name the request: SHA-256 is not available");
  digest[6] = static_cast<unsigned char>(0x80 | (digest[6] & 0x0f)); /* version 8: of one's own making */
  digest[8] = static_cast<unsigned char>(0x80 | (digest[8] & 0x3f));
  return uuid_text(digest);
}

}  // namespace outbox
