/* actions.cpp: pause, resume, redrive, discard, replay. */
#include "actions.h"

namespace console {

/* Digits differ from event to event: errors that differ in nothing else are one group. Its name is a hash, because a
 * form changes line breaks. */
Sql error_group() {
  return Sql("md5(left(regexp_replace(last_error, '[0-9]+', '#', 'g'), 200))");
}

Sql dead_letters(std::string_view sink) {
  return Sql(R"(SELECT id, sink, position, last_attempt_at, left(last_error, 400) AS last_error FROM outbox.events
  WHERE status = 'FAILED' AND sink = {} ORDER BY sink, last_attempt_at DESC LIMIT 2000)",
             sink);
}

/* In the order in which they were enqueued. */
static Sql first_of_group(std::string_view sink, std::string_view group) {
  Sql rows("SELECT id, sink FROM (");
  rows += dead_letters(sink);
  rows += Sql(") AS l WHERE ");
  rows += error_group();
  rows += Sql(" = {} ORDER BY position LIMIT 500", group);
  return rows;
}

Sql redrive_group(std::string_view sink, std::string_view group) {
  Sql statement("SELECT count(*) FILTER (WHERE outbox.redrive(e.id, e.sink)) AS done, count(*) AS tried\nFROM (");
  statement += first_of_group(sink, group);
  statement += Sql(") AS e");
  return statement;
}

Sql discard_group(std::string_view sink, std::string_view group) {
  Sql statement("WITH gone AS (DELETE FROM outbox.events AS d USING (");
  statement += first_of_group(sink, group);
  statement += Sql(") AS e\n  WHERE d.status = 'FAILED' AND d.id = e.id AND d.sink = e.sink RETURNING 1)\n"
                   "SELECT count(*) AS done, count(*) AS tried FROM gone");
  return statement;
}

static std::string to_sink(const Page &page) {
  return Link("/sink", {{"name", page.request.posts("sink")}}).text();
}
static std::string to_event(const Page &page) {
  return Link("/event", {{"id", page.request.posts("id")}}).text();
}

/* The function's own notice says why it has done nothing. */
static void tell(Page &page, bool done, std::string_view what) {
  const std::string notices = page.session.connection->notices();
  page.session.told = done              ? std::string(what) + (notices.empty() ? "" : " " + notices)
                      : notices.empty() ? "Nothing was done."
                                        : notices;
  page.session.told_is_error = !done;
}

static bool call(Page &page, const Sql &statement) {
  return page.ask(statement, Connection::action_limit).at(0, 0) == "t";
}

std::string act(Page &page) {
  const Request &request = page.request;
  const std::string_view path = request.path, sink = request.posts("sink"), id = request.posts("id");
  if (path == "/pause") {
    tell(page, call(page, Sql("SELECT outbox.pause({})", sink)),
         "The sink is paused: its events wait until you resume it.");
    return to_sink(page);
  }
  if (path == "/resume") {
    tell(page, call(page, Sql("SELECT outbox.resume({})", sink)), "The sink is resumed.");
    return to_sink(page);
  }
  if (path == "/redrive") {
    const bool force = request.posts("force") == "yes";
    tell(page,
         call(page, Sql("SELECT outbox.redrive({}::uuid, {}, {}::boolean)", id, sink, force ? "true" : "false")),
         "The event is sent again.");
    return to_event(page);
  }
  if (path == "/discard") {
    tell(
        page,
        !page.ask(Sql("DELETE FROM outbox.events WHERE status = 'FAILED' AND id = {}::uuid AND sink = {} RETURNING 1",
                      id, sink),
                  Connection::action_limit)
             .empty(),
        "The dead letter is deleted.");
    return to_event(page);
  }
  if (path == "/replay") {
    const Rows sent =
        page.ask(Sql("SELECT outbox.replay({}, event => {}::uuid)", sink, id), Connection::action_limit);
    tell(page, sent.at(0, 0) != "0", "The event is sent again.");
    return to_event(page);
  }
  if (path == "/group") {
    const std::string_view group = request.posts("group");
    const bool discards = request.posts("do") == "Discard";
    const Rows done =
        page.ask(discards ? discard_group(sink, group) : redrive_group(sink, group), Connection::action_limit);
    page.session.told = std::string(done.at(0, "done")) + " of " + std::string(done.at(0, "tried")) +
                        (discards ? " dead letters are deleted." : " dead letters are sent again.");
    page.session.told_is_error = done.at(0, "done") != done.at(0, "tried");
    return to_sink(page);
  }
  return {};
}

}  // namespace console
