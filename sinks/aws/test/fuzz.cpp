/*
 * fuzz.cpp: answers of AWS, in JSON and XML, with each status and error type: only a message that the answer names is
 * delivered.
 */
#include "test/fuzz/stream.h"

#include "sinks/aws/classify_response.h"
#include "sinks/aws/xml_reader.h"

using namespace outbox;
using namespace outbox::aws_sink;

namespace {

void classify_elements(const std::string &document) {
  size_t depth = 0, begun = 0;
  const bool valid = read_xml(document, [&](const XmlPath &path, const std::string &text, bool ends) {
    HOLDS(path.size() == (ends ? depth : depth + 1) && !path.back().empty() && (ends || text.empty()));
    HOLDS(text.size() <= document.size());
    depth += ends ? -1 : 1;
    begun += !ends;
  });
  HOLDS(!valid || (depth == 0 && begun > 0));
  HOLDS(begun <= document.size());
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data);
  constexpr long statuses[] = {200, 201, 300, 400, 403, 413, 429, 500, 503, 0};
  Target target;
  target.service = static_cast<Service>(input.digit() % 3);
  target.name = "queue \"q\"";
  const size_t n = 1 + input.digit() % 10;
  HttpReply http{.status = statuses[input.digit() % 10], .body = {}};
  const std::string type = input.line(), body = input.rest();
  const HttpReply reply{http.status, body, type};

  const BatchOutcome classified = classify_response(target, n, reply);
  const std::vector<std::string> names = names_given(target, n, body);
  HOLDS(classified.verdicts.size() == n && names.size() == n);
  for (size_t i = 0; i < n; i++) {
    const Verdict &verdict = classified.verdicts[i];
    const bool sent = verdict.outcome == Outcome::Sent;
    HOLDS(sent == verdict.error.empty() && sent == (verdict.reason == OB_REASON_NONE));
    HOLDS(!sent || (http.status / 100 == 2 && !names[i].empty() && !classified.whole));
    HOLDS(sent || shown(verdict.error).size() <= 2000);
    shown(names[i]);
  }
  HOLDS(!classified.all_sent() || !classified.whole);
  shown(fact_of(fault_of(target, reply), target));
  if (target.service == Service::Sns)
    classify_elements(body);
}
