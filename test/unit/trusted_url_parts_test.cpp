/* A session's parts of a URL (trusted_url_parts.cpp) are those that libcurl finds, for every URL that CREATE SERVER
 * accepts. */
#define UrlParts TrustedUrlParts
#include "sinks/webhook/trusted_url_parts.cpp"

#include <gtest/gtest.h>

#include <vector>

/* webhook_url_test.cpp: scheme, host, port, path and query as libcurl finds them. */
std::vector<std::string> parts_by_libcurl(const std::string &url);

TEST(TrustedUrlParts, AreThoseOfLibcurl) {
  for (const char *url :
       {"https://example.com", "http://localhost:8080/hooks", "HTTPS://Example.com/a/b?x=1&y=/z:@",
        "https://example.com?x=1", "https://example.com:443/", "https://[::1]:8443/a:b", "https://[::1]/",
        "https://192.0.2.1/a%20b/", "https://xn--bcher-kva.example/x?${aggregate_id}"}) {
    const outbox::TrustedUrlParts parts(url);
    EXPECT_EQ((std::vector{parts.scheme, parts.host, parts.port, parts.path, parts.query}), parts_by_libcurl(url))
        << url;
    EXPECT_TRUE(parts.is_valid && !parts.has_bad_port && parts.user.empty() && parts.fragment.empty()) << url;
  }
  EXPECT_FALSE(outbox::TrustedUrlParts("example.com").is_valid);
}
