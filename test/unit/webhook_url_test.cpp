/* URLs with variables: what users may write, and what events can do to them. */
#include "sinks/webhook/webhook_url.h"

#include <gtest/gtest.h>

#include "delivery/options/options.h"
#include "delivery/http/url_parts.h"
#include "bad_input.h"
#include "door.h"

using namespace outbox;

/* For trusted_url_parts_test.cpp. */
std::vector<std::string> parts_by_libcurl(const std::string &url) {
  EXPECT_EQ(origin_fault(url), OriginFault::None) << url;
  const UrlParts parts(url);
  return {parts.scheme, parts.host, parts.port, parts.path, parts.query};
}

namespace {

/* Detail and hint of the error; empty if the URL is accepted. */
std::string refusal(const std::string &url) {
  BadInput bad = bad_input_of([&] { return WebhookUrl::parse("url", url); });
  if (bad.kind == OB_OK)
    return "";
  EXPECT_EQ(bad.subject, "url");
  EXPECT_STREQ(bad.what(), bad.detail.empty() ? bad.what() : "invalid value for option \"url\"") << url;
  EXPECT_FALSE(bad.hint.empty()) << url;
  return bad.detail + " " + bad.hint;
}

std::string rendered(const std::string &url, door::Event &event) {
  return WebhookUrl::parse("url", url).render(event.raw());
}

/* The message of a refused URL. */
std::string unsendable(const std::string &url, door::Event &event) {
  try {
    return "sent to " + rendered(url, event);
  } catch (const BadInput &bad) {
    EXPECT_EQ(bad.subject, "url");
    EXPECT_FALSE(bad.hint.empty());
    return bad.what();
  }
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

}  // namespace

TEST(WebhookUrl, VariablesStandInPathAndQuery) {
  door::Event event;
  event.aggregate_id = "42";
  event.headers = {{"tenant", "acme"}};
  WebhookUrl url =
      WebhookUrl::parse("url", "https://example.com:8443/${header.tenant}/orders/${aggregate_id}?type=${event_type}");
  EXPECT_TRUE(url.has_variables());
  EXPECT_TRUE(url.is_https());
  EXPECT_EQ(url.origin(), "https://example.com:8443");
  EXPECT_EQ(url.render(event.raw()), "https://example.com:8443/acme/orders/42?type=order.created");
  EXPECT_EQ(rendered("https://example.com?id=${aggregate_id}", event), "https://example.com?id=42");
}

TEST(WebhookUrl, AVariableStaysInItsPlace) {
  door::Event event;
  event.aggregate_id = "a/b?c=d&e#f%2e \xc3\xa9\r\n\"+;\\";
  std::string encoded = "a%2Fb%3Fc%3Dd%26e%23f%252e%20%C3%A9%0D%0A%22%2B%3B%5C";
  EXPECT_EQ(rendered("https://h/x/${aggregate_id}?q=${aggregate_id}", event),
            "https://h/x/" + encoded + "?q=" + encoded);
}

TEST(WebhookUrl, AVariableNeverChangesThePath) {
  door::Event event;
  for (const char *dots : {".", ".."}) {
    event.aggregate_id = dots;
    EXPECT_EQ(unsendable("https://h/x/${aggregate_id}/y", event), "event would change the path of the sink's url");
    EXPECT_EQ(unsendable("https://h/x/${aggregate_id}", event), "event would change the path of the sink's url");
    EXPECT_EQ(rendered("https://h/x/a${aggregate_id}?b=${aggregate_id}", event),
              std::string("https://h/x/a") + dots + "?b=" + dots);
  }
  event.aggregate_id = ".";
  EXPECT_EQ(unsendable("https://h/%2e${aggregate_id}/y", event), "event would change the path of the sink's url");
  EXPECT_EQ(unsendable("https://h/${aggregate_id}%2E/y", event), "event would change the path of the sink's url");
  event.aggregate_id = "";
  EXPECT_EQ(unsendable("https://h/orders/${aggregate_id}", event), "event has no value for ${aggregate_id}");
  EXPECT_EQ(rendered("https://h/orders?id=${aggregate_id}", event), "https://h/orders?id=");
  EXPECT_EQ(unsendable("https://h/orders?tenant=${header.tenant}", event), "event has no value for ${header.tenant}");
  event.aggregate_id = std::string(8000, 'x');
  EXPECT_EQ(unsendable("https://h/${aggregate_id}", event), "event makes the sink's url too long");
}

TEST(WebhookUrl, WhatIsWrongIsSaid) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> wrong = {
      {"Expected an https URL",
       {"",
        "example.com/hook",
        "https:/example.com",
        "ftp://example.com/",
        "https://",
        "https://exa mple.com/",
        "https://[::1/",
        "https:///x",
        "https:///${aggregate_id}/x",
        "https:///example.com/${aggregate_id}",
        "https:////example.com/",
        "https:\\\\example.com/",
        "https://\\example.com/",
        "https://?${aggregate_id}",
        "https://#${aggregate_id}",
        "https://:8443/",
        "https://exa\tmple.com/",
        "https://example.com\n/",
        " https://example.com/",
        "https://ex%2fample.com/",
        "https://example.com%00/",
        "https://example.com/a b",
        "https://example.com/\r\nX: 1"}},
      {"path and the query only",
       {"https:/${aggregate_id}://x", "https://example.com\\${aggregate_id}/", "https://${aggregate_id}@example.com/",
        "https://example.com@${aggregate_id}/", "https://example.com%40${aggregate_id}/", "https://${header.host}/",
        "${header.base}/hook", "https://example.com:${header.port}/", "https://example.com${aggregate_id}/",
        "${header.scheme}://example.com/"}},
      {"user name or a password",
       {"https://example.com\\@evil.example/", "https://@example.com/", "https://:@example.com/",
        "https://user:pass@example.com/", "https://user@example.com/"}},
      {"punycode",
       {"https://b\xc3\xbc"
        "cher.example/",
        "https://b%C3%BCcher.example/", "https://\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.0.0.1/"}},
      {"from 1 to 65535", {"https://example.com:99999/", "https://example.com:0/", "https://example.com:port/"}},
      {"write # as %23", {"https://example.com/#top", "https://example.com/#"}},
      {"write %C3", {"https://example.com/caf\xc3\xa9"}},
      {"write %7C", {"https://example.com/a|b"}},
      {"write %3C", {"https://example.com/<id>"}},
      {"as %25", {"https://example.com/100%", "https://example.com/%zz", "https://example.com/%${aggregate_id}4"}},
      {"Variables are written like ${aggregate_id}",
       {"https://example.com/{aggregate_id}", "https://example.com/$aggregate_id}"}},
      {"segment \".\" or \"..\"",
       {"https://example.com/a/../b", "https://example.com/%2E%2e/b", "https://example.com/."}},
      {"does not end", {"https://example.com/${aggregate_id"}},
      {"${aggregate_id}", {"https://example.com/${agregate_id}"}},
      {"Known variables", {"https://example.com/${payload}"}},
      {"at most 8000", {"https://example.com/" + std::string(8000, 'x')}},
  };
  for (auto &[part, urls] : wrong)
    for (const std::string &url : urls)
      EXPECT_SAYS(refusal(url), part) << url.substr(0, 60);
  for (const char *url :
       {"https://example.com", "https://example.com/", "https://EXAMPLE.com:8443/a.b/.well-known/..a?x[]=1&y=%20",
        "https://[2001:db8::1]:443/x", "https://xn--bcher-kva.example/", "http://10.0.0.1/$1"})
    EXPECT_EQ(refusal(url), "") << url;
}

/* However the host is spelled: libcurl reads the same host in the template and in each event's URL. */
TEST(WebhookUrl, NoEventChangesTheHost) {
  const std::vector<std::pair<std::string, std::string>> hosts = {
      {"h", "h"},
      {"H.example:8443", "H.example"},
      {"h.example.", "h.example."},
      {"%68.example", "h.example"},
      {"0x7f.1", "127.0.0.1"},
      {"2130706433:80", "127.0.0.1"},
      {"[::1]:8443", "[::1]"},
      {"[fe80::1%25eth0]", "[fe80::1]"},
  };
  door::Event event;
  for (auto &[host, meant] : hosts)
    for (const char *rest : {"/${aggregate_id}", "/x/${aggregate_id}?${aggregate_id}", "?${aggregate_id}"})
      for (const char *value : {"evil.example", "/evil.example", "//evil.example/", "\\\\evil.example",
                                "@evil.example/", ":@evil.example", ":1@evil.example", "?@evil.example",
                                "#@evil.example", "\t//evil.example", "\r\nHost: evil.example", "%40evil.example",
                                "]@evil.example", "https://evil.example/", "\xef\xbc\x8f\xef\xbc\xa0"}) {
        event.aggregate_id = value;
        std::string url = rendered("https://" + host + rest, event);
        EXPECT_EQ(UrlParts(url).host, meant) << url;
        EXPECT_EQ(url.substr(0, 8 + host.size()), "https://" + host);
      }
}
