/* Which of an event's headers a request carries: those that the owner of the sink lists, and never those that servers
 * trust. */
#include "bad_input.h"
#include "webhook_fixture.h"

#include "delivery/base/text.h"
#include "sinks/webhook/webhook_config.h"

using namespace outbox;

namespace {

const SinkKind &webhook() {
  return *SinkKind::find("webhook");
}

/* The event's headers that the request carries: those with the value "the event's". */
std::vector<std::string> sent(const Options &more, const std::vector<std::string> &names) {
  Options server = {{"url", "https://example.com/"}};
  server.insert(more.begin(), more.end());
  Options mapping = {{"headers", R"({"X-Secret-Of-Sink": "s3cr3t"})"}};
  auto config = std::dynamic_pointer_cast<const WebhookConfig>(webhook().parse(server, &mapping));
  TestEvent event(1);
  for (const std::string &name : names)
    event.headers.emplace_back(name, "the event's");
  std::vector<std::string> found;
  for (auto &[name, value] : config->render(event.get()).headers)
    if (value == "the event's")
      found.push_back(name);
  return found;
}

using Names = std::vector<std::string>;
const Names tracing = {"traceparent", "tracestate", "baggage", "X-Request-ID", "x-correlation-id"};

/* In each spelling that CGI, WSGI, PHP or Rack map to the same variable. */
const Names never = [] {
  Names all;
  for (std::string_view name :
       split("Authorization authorization Proxy-Authorization Proxy Proxy-Connection Client-Cert "
             "Client-Cert-Chain X-Client-Cert X-ARR-ClientCert X-Amzn-Mtls-Clientcert-Leaf "
             "Content-Encoding Outbox-Probe Cookie Set-Cookie Host Content-Type Content_Type "
             "Content-Length Transfer-Encoding Connection Keep-Alive TE Trailer Upgrade Expect "
             "User-Agent webhook-id webhook_id Webhook.Id WEBHOOK_SIGNATURE svix_id Forwarded "
             "X-Forwarded-For X_Forwarded_Host X-Real-IP Via X-HTTP-Method-Override "
             "x_http_method_override X-HTTP-Method X-Method-Override X-Original-URL X-Rewrite-URL "
             "X-Api-Key X-Auth-Token x-secret-of-sink X_Secret_Of_Sink",
             ' '))
    all.emplace_back(name);
  return all;
}();

}  // namespace

TEST(WebhookForward, TracingAndCorrelationByDefault) {
  Names all = tracing;
  all.insert(all.end(), {"tenant", "X-Tenant", "X-HTTP-Method-Override", "webhook_id", "Accept", "Range"});
  EXPECT_EQ(sent({}, all), tracing);
  for (const Names &names : {never, tracing})
    EXPECT_EQ(sent({{"forward_headers", ""}}, names), Names());
}

TEST(WebhookForward, WhatIsListed) {
  EXPECT_EQ(sent({{"forward_headers", " x-tenant ,TRACE-*,region"}},
                 {"X-Tenant", "x-tenant2", "x_tenant", "trace-id", "Trace-", "trace", "Region", "traceparent"}),
            (Names{"X-Tenant", "trace-id", "Trace-", "Region"}));
}

TEST(WebhookForward, NeverWhatOthersBelieve) {
  Names all = never;
  all.insert(all.begin(), "tenant");
  for (const char *list : {"*", "*,tenant", "a*, c*, e*, f*, h*, k*, p*, s*, t*, u*, v*, w*, x*"})
    EXPECT_EQ(sent({{"forward_headers", list}}, all), Names{"tenant"}) << list;
}

/* Also if the sink's own header has no value for this event. */
TEST(WebhookForward, NotWhatTheSinkWrites) {
  ob_set_origin("shop", 3); /* of the source of a CloudEvent */
  Options server = {{"forward_headers", "*"},
                    {"idempotency_key", "true"},
                    {"headers", R"({"X-Fixed": "1", "X-Tenant": "${header.tenant}"})"}};
  EXPECT_EQ(
      sent(server, {"X-Fixed", "x_fixed", "X-Tenant", "x_tenant", "Idempotency-Key", "idempotency_key", "x-other"}),
      Names{"x-other"});
  server = {{"forward_headers", "*"}, {"format", "cloudevents"}};
  EXPECT_EQ(sent(server, {"CE-Id", "x-other"}), Names{"x-other"});
}

TEST(WebhookForward, WhatIsWrongIsSaid) {
  for (const std::string &name : never)
    if (!same_variable(name, "x-secret-of-sink")) {
      Options options = {{"url", "https://example.com/"}, {"forward_headers", "traceparent, " + name}};
      BadInput bad = bad_input_of([&] { return webhook().parse(options, nullptr); });
      EXPECT_EQ(bad.subject, "forward_headers");
      EXPECT_EQ(bad.detail, "Header \"" + name + "\" is never taken from an event.");
      EXPECT_NE(bad.hint.find("option \"headers\" can make it"), std::string::npos);
    }
  for (const char *list : {",", "a,,b", "a,", "a b", "a:b", "*a", "a*b", "a**", "caf\xc3\xa9", "a\r\nb"})
    EXPECT_THROW(webhook().parse({{"url", "https://example.com/"}, {"forward_headers", list}}, nullptr), BadInput)
        << list;
}
