#include "delivery/engine/completion_queue.h"

#include <gtest/gtest.h>

using namespace outbox;

/* A table refuses invalid UTF-8, a client of another encoding cannot read it, and a control character forges lines of
 * the log. */
TEST(CompletionQueue, TextsAreOneLineOfValidUtf8WithoutSecrets) {
  auto queue = std::make_shared<CompletionQueue>();
  SecretMask secrets;
  secrets.add("s3cret");
  auto reporter = make_reporter(queue, 1, "crm", std::move(secrets));
  const std::string dirty = "SASL:\x1b[31m no\nsuch \xff user s3cret", clean = "SASL: [31m no such \ufffd user ***";
  Completion completion{};
  completion.error = dirty;

  reporter->down(dirty, OB_REASON_CONNECTION);
  reporter->degraded(dirty);
  reporter->resumed(dirty);
  reporter->disabled(dirty);
  reporter->complete(completion);
  reporter->complete(std::vector<Completion>{completion, completion});
  reporter->log(OB_LOG_WARNING, dirty);

  std::list<CompletionQueue::Report> reports;
  queue->begin();
  queue->finish(reports);
  EXPECT_EQ(reports.size(), 6U);
  for (const CompletionQueue::Report &report : reports) {
    EXPECT_EQ(report.text, report.completions.empty() ? clean : "");
    for (const Completion &each : report.completions)
      EXPECT_EQ(each.error, clean);
  }
  ob_log_line line;
  ASSERT_TRUE(queue->take_log(line));
  EXPECT_EQ(std::string(line.text), clean);
}

TEST(CompletionQueue, AnErrorHasAtMost8KbAndIsMarkedWhereItIsCut) {
  auto queue = std::make_shared<CompletionQueue>();
  auto reporter = make_reporter(queue, 1, "crm", {});
  std::vector<Completion> completions(2);
  completions[0].error = std::string(OB_ERROR_MAX, 'x');
  completions[1].error = std::string(OB_ERROR_MAX - 6, '\xff'); /* each becomes U+FFFD, of three bytes */

  reporter->complete(completions);
  std::list<CompletionQueue::Report> reports;
  queue->begin();
  queue->finish(reports);
  ASSERT_EQ(reports.front().completions.size(), 2U);
  EXPECT_EQ(reports.front().completions[0].error, completions[0].error);
  const std::string &cut = reports.front().completions[1].error;
  EXPECT_EQ(cut.size(), 8190U) << "whole characters";
  EXPECT_TRUE(cut.ends_with("\ufffd\ufffd [cut]"));
}

/* A broker can say in a loop that it blocks and unblocks: what was not looked at yet is replaced. */
TEST(CompletionQueue, AStateTakesThePlaceOfTheOneBefore) {
  using What = CompletionQueue::Report::What;
  auto queue = std::make_shared<CompletionQueue>();
  auto reporter = make_reporter(queue, 1, "crm", {}), other = make_reporter(queue, 2, "other", {});
  other->down("also", OB_REASON_BROKER);
  for (int i = 0; i < 1000; i++) {
    reporter->down("blocked", OB_REASON_BROKER);
    reporter->degraded("topic " + std::to_string(i));
    reporter->up();
  }
  reporter->sent({1});
  reporter->down("blocked again", OB_REASON_BROKER);

  std::list<CompletionQueue::Report> reports;
  queue->begin();
  queue->finish(reports);
  std::vector<std::pair<What, std::string>> seen;
  for (const CompletionQueue::Report &report : reports)
    seen.emplace_back(report.what, report.text);
  const std::vector<std::pair<What, std::string>> expected{{What::Down, "also"},
                                                           {What::Degraded, "topic 999"},
                                                           {What::Up, ""},
                                                           {What::Sent, ""},
                                                           {What::Down, "blocked again"}};
  EXPECT_EQ(seen, expected);
}
