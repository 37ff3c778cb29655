/* grpc_config.h: the parsed options of a gRPC sink, and the call that they make of an event. */
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "delivery/engine/sink.h"
#include "delivery/http/http_sender.h"
#include "delivery/options/template.h"
#include "grpc_options.h"
#include "grpc_status.h"

namespace outbox::grpc {

class GrpcConfig final : public SinkConfig, public GrpcOptions, public HttpProtocol {
public:
  GrpcConfig(const Options &server, const Options *mapping); /* throws BadInput */

  void check_event(const ob_event &event) const override;
  size_t max_payload() const override { return max_message; }
  std::chrono::milliseconds longest_delay() const override { return max_pause; }
  Preview preview(const ob_event &event, int64_t now) const override;

  const std::string &url() const override { return url_; }
  HttpMessage render(const ob_event &event) const override;
  HttpCall call(const HttpContent &content) const override;
  HttpVerdict classify_response(const HttpTransfer &answer, CURLcode code, const HttpContent &content) const override;
  std::vector<std::string> acknowledgements(const HttpTransfer &answer,
                                            const HttpContent & /*content*/) const override {
    return {acknowledgement_of(answer, secrets)};
  }
  std::string without_secrets(std::string_view text, const HttpContent & /*content*/, bool cut) const override {
    return secrets.masked(text, cut);
  }

  /* The metadata that does not depend on the event. */
  HttpHeaders fixed_metadata() const;
  /* The metadata that does. Throws BadInput for a value that cannot be sent. */
  HttpHeaders event_metadata(const ob_event &event) const;

private:
  std::string url_;
  HttpHeaders headers_, secret_headers_;
  std::vector<std::pair<std::string, Template>> event_headers_; /* of option headers, those with variables */
  bool knows_mapping_ = false;
  const std::unique_ptr<MessageSizes> sizes_ = std::make_unique<MessageSizes>(); /* the HTTP loop's thread */
};

}  // namespace outbox::grpc
