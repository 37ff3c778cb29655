/* pem.cpp: broken PEM is refused, and no refusal holds any of the text. OpenSSL itself is not instrumented. */
#include "test/fuzz/fuzz.h"

#include <openssl/err.h>

#include "delivery/options/pem.h"

using namespace outbox;

namespace {

/* True when accepted. */
template <class Body> bool keeps_secret(const std::string &text, Body body) {
  try {
    body();
  } catch (const BadInput &bad) {
    std::string said = std::string(bad.what()) + bad.detail + bad.hint;
    for (size_t at = 0; at + 40 <= text.size(); at += 20) /* libFuzzer copies what it was compared with: words */
      if (std::string part = text.substr(at, 40); part.find(' ') == std::string::npos)
        HOLDS(said.find(part) == std::string::npos);
    HOLDS(ERR_peek_error() == 0);
    return false;
  }
  HOLDS(ERR_peek_error() == 0);
  return true;
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  std::string text = without_nul(std::string(data));
  bool certificates = keeps_secret(text, [&] { check_certificates_pem("ssl_ca_pem", text); });
  bool key = keeps_secret(text, [&] { check_key_pem("ssl_key_pem", text); });
  HOLDS(!certificates || text.find("CERTIFICATE-----") != std::string::npos);
  HOLDS(!key || text.find("PRIVATE KEY-----") != std::string::npos);
  auto facts = certificate_facts(text);
  HOLDS(facts || !certificates);
  HOLDS(ERR_peek_error() == 0);
  (void)certificate_facts(data.data(), data.size());
  HOLDS(ERR_peek_error() == 0);
  keeps_secret(text, [&] { check_key_pair(text, text); });
}
