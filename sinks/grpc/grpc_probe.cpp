/*
 * grpc_probe.cpp: connects as a delivery does. Whether the peer speaks gRPC shows only in the answer to a call:
 * without a test event the probe calls the standard health service, and any gRPC status of it will do, because many
 * servers do not have that service.
 */
#include "grpc_probe.h"

#include "delivery/http/http_loop.h"
#include "delivery/http/http_probe.h"
#include "grpc_message.h"
#include "grpc_status.h"

namespace outbox::grpc {
namespace {

constexpr const char *health_method = "/grpc.health.v1.Health/Check";

const char *hint_of(const HttpTransfer &answer) {
  return !answer.is_http2() || answer.header("content-type").starts_with("application/grpc")
             ? ""
             : "Is this the port of a gRPC server? A proxy in front of it must pass HTTP/2 and trailers on.";
}

/* Returns the call's status, or records why there is none. If the answer was lost because it came before the message,
 * the call is made without one: its request is complete with its head. */
std::optional<Status> called(HttpTransfer &transfer, HttpContent content, const HttpCall &call, const char *step,
                             Probe &probe) {
  prepare(transfer, content, call);
  CURLcode code = HttpProbe::run(transfer, probe);
  if (transfer.answer_lost(code)) {
    content.messages.at(0).body.clear();
    prepare(transfer, content, call);
    code = HttpProbe::run(transfer, probe);
  }
  if (auto failure = transfer.no_answer(code)) {
    probe.failed(step, failure->error, "The peer must speak HTTP/2, without TLS from the first byte on.");
    return {};
  }
  if (!transfer.is_http2()) {
    probe.failed(step, "the server does not speak HTTP/2, which gRPC needs");
    return {};
  }
  return status_of(transfer, code);
}

/* curl #15943 removed the field, #17128 sends it again. */
void name_libcurl_without_te(Probe &probe) {
  constexpr unsigned first = 0x080c00, first_fixed = 0x080e00;
  const curl_version_info_data *libcurl = curl_version_info(CURLVERSION_NOW);
  if (libcurl->version_num >= first && libcurl->version_num < first_fixed)
    probe.failed(
        "libcurl",
        std::string("libcurl ") + libcurl->version + " removes \"te: trailers\" from calls, which gRPC requires",
        "Install libcurl 8.14.0 or later, or one before 8.12.0, and restart PostgreSQL. Until then many servers "
        "and proxies refuse calls.");
}

bool speaks_grpc(const std::shared_ptr<const GrpcConfig> &config, Probe &probe) {
  HttpTransfer transfer(config, probe.sink(), config->url());
  const HttpContent content{{{.url = config->origin + health_method, .body = framed({})}}};
  auto status = called(transfer, content, config->call(content), "HTTP/2", probe);
  if (!status)
    return false;
  if (status->http != 200 || !transfer.header("content-type").starts_with("application/grpc")) {
    probe.failed("gRPC", status->text, hint_of(transfer));
    return false;
  }
  const Verdict end = verdict_of(*status, says_too_large(*status), config->secrets);
  if (end.outcome == Outcome::Refused && status->code != Code::Unimplemented) {
    probe.failed("gRPC", end.error, remedy(status->code));
    return false;
  }
  probe.passed("gRPC", status->code == Code::Unimplemented ? "the server speaks gRPC"
                       : status->code == Code::Ok
                           ? "the server speaks gRPC, and its health service answers"
                           : "the server speaks gRPC; its health service answers " + end.error);
  return true;
}

}  // namespace

void probe_grpc(const std::shared_ptr<const GrpcConfig> &config, Probe &probe) {
  init_libcurl();
  name_libcurl_without_te(probe);
  HttpProbe connection(config, config->url(), probe);
  if (connection.connects() && speaks_grpc(config, probe))
    probe.can_deliver();
}

}  // namespace outbox::grpc
