/* secret_mask.cpp: a secret between two texts, in each encoding that a peer may write it in: nothing of it is left.
 */
#include "test/fuzz/fuzz.h"

#include "delivery/base/secret_mask.h"
#include "test/unit/echoes.h"

using namespace outbox;

namespace {

/* What stands around a secret may complete an escape with it: then no reader of the text sees the secret there. */
bool is_neutral(char c) {
  return isalnum(static_cast<unsigned char>(c)) || std::string_view(" <>:.,-_").find(c) != std::string_view::npos;
}

bool blank(char c) {
  return static_cast<unsigned char>(c) <= ' ' || c == '+' || c == '*';
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data.substr(0, 8192)); /* of an answer's body 1 kB is searched */
  size_t which = input.digit();
  std::string secret = input.line(), before = input.line(), after = input.rest();
  SecretMask mask, nothing;
  mask.add(secret);
  HOLDS(nothing.masked(after) == after);

  std::string text = mask.masked(after);
  HOLDS(text.size() <= after.size() * 3 + 3);
  (void)mask.masked(after, true);
  SecretMask others;
  others.add_url(before);
  others.add_header(secret);
  others.add_basic(secret, before);
  (void)others.masked(after, true);

  std::erase_if(secret, blank);
  if (secret.size() < 8)
    return;
  SecretMask own;
  own.add(secret);
  /* As it is: nothing around it may hide it. */
  HOLDS(own.masked(before + secret + after).find(secret) == std::string::npos);
  std::string masked = own.masked(secret);
  HOLDS(masked == "***" && own.masked(masked) == masked);

  const echoes::Encoding &encoding = echoes::all()[which % echoes::all().size()];
  if (encoding.name == std::string_view("JSON") || encoding.name == std::string_view("JSON with slashes escaped") ||
      encoding.name == std::string_view("JSON in JSON"))
    if (nlohmann::json::parse(nlohmann::json(secret).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore)) !=
        secret)
      return; /* no JSON has it */
  std::erase_if(before, [](char c) { return !is_neutral(c); });
  std::erase_if(after, [](char c) { return !is_neutral(c); });
  std::string sent = encoding.encode(secret);
  text = own.masked(before + '<' + sent + '>' + after);
  HOLDS(text.find(sent.substr(encoding.others)) == std::string::npos);
  HOLDS(text.find("***") != std::string::npos);
  HOLDS(own.masked(text) == text);
  /* Cut within it: nothing of its beginning is left there. The text before may have the same characters by itself. */
  if (encoding.others == 0 && sent.size() > 12) {
    std::string beginning = sent.substr(0, sent.size() - 1 - which % 4);
    text = own.masked(before + '<' + beginning, true);
    HOLDS(text.ends_with("***"));
    HOLDS(text.find(sent.substr(0, 12)) == std::string::npos || before.find(sent.substr(0, 12)) != std::string::npos);
  }
}
