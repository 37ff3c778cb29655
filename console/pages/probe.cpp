/* probe.cpp: outbox.probe() tells each step when it has ended (debug1), and returns all of them at its end. */
#include "probe.h"

#include "console/pages/page.h"

namespace console {

namespace {

class ProbePage {
public:
  ProbePage(std::shared_ptr<Session> session, std::unique_lock<std::mutex> held, const Request &request)
      : session_(std::move(session)), held_(std::move(held)), request_(request), page_(*session_, request_),
        sink_(request_.posts("sink")) {
    constexpr std::chrono::minutes longest{5};
    const Sql statement(
        "SELECT step, ok, round(milliseconds::numeric, 1) AS milliseconds, message, hint FROM outbox.probe({})",
        sink_);
    page_.title = "Probe of " + sink_;
    page_.show(session_->connection->text(statement));
    session_->connection->begin(statement, longest);
  }
  ~ProbePage() { session_->connection->finish(); }
  ProbePage(const ProbePage &) = delete;
  ProbePage &operator=(const ProbePage &) = delete;

  Html head() const {
    Html made = document_head(page_);
    made += html(R"(<p>The steps appear as they happen.</p><ol class="findings">)");
    return made;
  }

  /* What has happened since the last call. */
  bool more(std::string &text) {
    bool goes_on = false;
    Html made;
    try {
      std::optional<Rows> rows = session_->connection->wait(std::chrono::seconds(1));
      for (const Notice &notice : session_->connection->take_notices())
        if (notice.message.starts_with("probe step "))
          made += told(notice);
      if (rows)
        made += rest(*rows);
      goes_on = !rows;
    } catch (const DatabaseError &error) {
      made += html(R"(<li><span class="badge bad">failed</span> {}{}</li>)", error.what(), hint(error.hint));
    }
    if (!goes_on) {
      made += html(R"(</ol><p><a href="{}">Back to the sink</a></p>)", Link("/sink", {{"name", sink_}}));
      made += document_foot(page_);
    }
    text += made.empty() ? "\n" : made.text(); /* only by writing is it seen that the reader has left */
    return goes_on;
  }

private:
  Html told(const Notice &notice) {
    n_told_++;
    const bool passed = notice.message.find("\" passed ") != std::string::npos;
    return html(R"(<li><span class="badge {}">{}</span> {}: {}{}</li>)", passed ? "good" : "bad",
                passed ? "ok" : "failed", std::string_view(notice.message).substr(6), notice.detail,
                hint(notice.hint));
  }

  /* Those that were not told: what could not be looked at. */
  Html rest(const Rows &steps) const {
    Html list;
    for (int i = n_told_; i < steps.size(); i++) {
      const bool unseen = steps.is_null(i, "ok"), ok = steps.at(i, "ok") == "t";
      list += html(R"(<li><span class="badge {}">{}</span> step "{}": {}{}</li>)",
                   unseen ? "warn"
                   : ok   ? "good"
                          : "bad",
                   unseen ? "not seen"
                   : ok   ? "ok"
                          : "failed",
                   steps.at(i, "step"), steps.at(i, "message"), hint(steps.at(i, "hint")));
    }
    return list;
  }

  const std::shared_ptr<Session> session_;
  const std::unique_lock<std::mutex> held_;
  const Request request_;
  Page page_;
  const std::string sink_;
  int n_told_ = 0;
};

}  // namespace

Response probe(std::shared_ptr<Session> session, std::unique_lock<std::mutex> held, const Request &request) {
  const auto page = std::make_shared<ProbePage>(std::move(session), std::move(held), request);
  return {.body = page->head().text(), .more = [page](std::string &text) { return page->more(text); }};
}

}  // namespace console
