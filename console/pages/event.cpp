/* event.cpp: the story of one event, what it waits for, and what is sent for it. */
#include "console/pages/page.h"

namespace console {

static void story(Page &page, std::string_view id) {
  const Rows lines =
      page.ask(Sql("SELECT at::timestamptz(3) AS at, sink, what, detail FROM outbox.story({}::uuid)", id));
  Html list;
  for (int i = 0; i < lines.size(); i++)
    list += html(R"(<li><time>{}</time> {} <b>{}</b> {}</li>)", value(lines, i, "at"),
                 lines.is_null(i, "sink") ? Html()
                                          : html(R"(<a href="{}">{}</a>)",
                                                 Link("/sink", {{"name", lines.at(i, "sink")}}), lines.at(i, "sink")),
                 lines.at(i, "what"), cut(lines.at(i, "detail"), 2000));
  std::vector<std::string> sent;
  for (int i = 0; i < lines.size(); i++)
    if (const std::string sink(lines.at(i, "sink"));
        lines.at(i, "what") == "delivered" && std::find(sent.begin(), sent.end(), sink) == sent.end())
      sent.push_back(sink);
  page.body += list.empty()
                   ? html("<p>Nothing is known of it: it was delivered and not kept, or never committed.</p>")
                   : html(R"(<ol class="story">{}</ol>)", list);
  Html again;
  for (const std::string &sink : sent)
    if (rights_of(page).replay)
      again += button(page.session, Link("/replay"), "Send again to " + sink, {{"id", id}, {"sink", sink}});
  if (!again.empty())
    page.body += html(R"(<div class="actions">{}</div>)", again);
}

/* A blocked row waits for the event at that position. */
static void blocker(Page &page, std::string_view position) {
  const Rows found = page.ask(
      Sql("SELECT id, event_type FROM outbox.events WHERE status IN ('PENDING', 'FAILED') AND position = {}::bigint",
          position));
  if (!found.empty())
    page.body += html(R"(<p>It waits for <a href="{}">{}</a>, an earlier event of its key.</p>)",
                      Link("/event", {{"id", found.at(0, "id")}}), found.at(0, "event_type"));
}

static void rows_of(Page &page, std::string_view id) {
  const Rows rows = page.ask(Sql(R"(
SELECT status, sink, partition_key AS key, aggregate_type, event_type, created_at::timestamptz(0) AS enqueued,
       available_at::timestamptz(0) AS due, attempts, last_attempt_at::timestamptz(0) AS failed, last_error, blocked_by, overtaken_by
FROM outbox.events WHERE id = {}::uuid AND status IN ('PENDING', 'FAILED') ORDER BY sink LIMIT 20)",
                                 id));
  for (int i = 0; i < rows.size(); i++) {
    const std::string_view sink = rows.at(i, "sink");
    const bool is_dead = rows.at(i, "status") == "FAILED";
    page.body +=
        html(R"(<h2>For {}: {}</h2><p>Key {}, {} attempts{}.</p>)",
             rows.is_null(i, "sink") ? html("no sink yet") : html("{}", sink), is_dead ? "a dead letter" : "it waits",
             cut(rows.at(i, "key"), 200), rows.at(i, "attempts"),
             rows.is_null(i, "overtaken_by") ? html("") : html("; later events of its key have been delivered"));
    if (!rows.is_null(i, "last_error"))
      page.body += html(R"(<pre tabindex="0" class="error">{}</pre>)", rows.at(i, "last_error"));
    if (!rows.is_null(i, "blocked_by"))
      blocker(page, rows.at(i, "blocked_by"));
    const Rights &rights = rights_of(page);
    Html actions;
    if (is_dead && rights.redrive)
      actions += button(page.session, Link("/redrive"), "Redrive", {{"id", id}, {"sink", sink}});
    if (is_dead && rights.redrive && !rows.is_null(i, "overtaken_by"))
      actions += button(page.session, Link("/redrive"), "Redrive late",
                        {{"id", id}, {"sink", sink}, {"force", "yes"}}, true);
    if (is_dead && rights.discard)
      actions += button(page.session, Link("/discard"), "Discard", {{"id", id}, {"sink", sink}}, true);
    if (!actions.empty())
      page.body += html(R"(<div class="actions">{}</div>)", actions);
  }
}

static void message(Page &page, std::string_view id) {
  page.body += html("<h2>What is sent</h2>");
  part(page, [&] {
    page.body += plain_table(page.ask(Sql(
        "SELECT sink, part, name, left(value, 20000) AS value, length(bytes) AS bytes FROM outbox.preview({}::uuid)",
        id)));
  });
}

/* The server cuts it: a payload may have a gigabyte. */
static void payload(Page &page, std::string_view id) {
  const Rows rows = page.ask(Sql(R"(
SELECT coalesce(pg_column_size(payload), length(payload_bytes)) AS stored, coalesce(left(payload::text, 100000), left(encode(substr(payload_bytes, 1, 50000), 'hex'), 100000)) AS text,
       left(headers::text, 20000) AS headers
FROM outbox.events WHERE id = {}::uuid AND status IN ('PENDING', 'FAILED') LIMIT 1)",
                                 id));
  if (rows.empty())
    page.body += html("<p>The event is neither waiting nor a dead letter.</p>");
  else
    page.body += html(
        "<h2>Payload</h2><p>{} bytes in the table; the first 100 000 characters are shown.</p><pre tabindex=\"0\">{}</pre><h2>Headers</h2><pre tabindex=\"0\">{}</pre>",
        value(rows, 0, "stored"), value(rows, 0, "text"), value(rows, 0, "headers"));
}

void show_event(Page &page) {
  const std::string_view id = page.parameter("id"), wanted = page.parameter("part");
  const Rights &rights = rights_of(page);
  page.title = "Event " + std::string(id);
  Html tabs = html(R"(<a href="{}">Story</a>)", Link("/event", {{"id", id}}));
  if (rights.preview)
    tabs += html(R"(<a href="{}">What is sent</a>)", Link("/event", {{"id", id}, {"part", "message"}}));
  if (rights.payload)
    tabs += html(R"(<a href="{}">Payload</a>)", Link("/event", {{"id", id}, {"part", "payload"}}));
  page.body += html(R"(<nav class="tabs">{}</nav>)", tabs);
  if (wanted == "message" && rights.preview)
    return message(page, id);
  if (wanted == "payload" && rights.payload)
    return payload(page, id);
  /* Not by itself again: where delivered events are kept, the story reads all of their days. */
  if (rights.story)
    part(page, [&] { story(page, id); });
  part(page, [&] { rows_of(page, id); });
}

}  // namespace console
