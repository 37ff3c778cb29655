#include "delivery/http_answer.h"

#include <nlohmann/json.hpp>

#include "delivery/text.h"

namespace outbox {

std::string clean_text(std::string_view text) {
  using json = nlohmann::json;
  // A round through JSON turns every invalid byte into U+FFFD.
  std::string valid =
      json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get_ref<const std::string &>();
  std::string clean;
  for (char c : valid) {
    if (static_cast<unsigned char>(c) > 0x20 && c != 0x7f)
      clean += c;
    else if (!clean.empty() && clean.back() != ' ')
      clean += ' ';
  }
  return std::string(trim(clean));
}

static Result result_of(long status) {
  if (status >= 200 && status < 300)
    return Result::Sent;
  if (status == 410)
    return Result::Released;
  if (status == 408 || status == 425 || status == 429 || status >= 500 || status < 200)
    return Result::RetryBlameSink;
  return Result::Retry;
}

Verdict judge_answer(long status, std::string_view body) {
  Verdict verdict;
  verdict.result = result_of(status);
  if (verdict.result == Result::Sent)
    return verdict;
  verdict.gone = status == 410;
  verdict.error = "HTTP " + std::to_string(status);
  if (status >= 300 && status < 400) {
    verdict.error += ": redirect not followed";  // its target may carry the URL's own token: not shown
    return verdict;
  }
  if (std::string text = clean_text(body); !text.empty())
    verdict.error += ": " + text;
  return verdict;
}

}  // namespace outbox
