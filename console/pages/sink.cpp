/* sink.cpp: one sink: how it is, what its options are, which keys and errors hold it up; pause, resume, probe. */
#include "console/pages/page.h"

namespace console {

static Html facts(const Rows &rows, int row) {
  Html list;
  for (int column = 0; column < rows.columns(); column++)
    if (!rows.is_null(row, column))
      list += html("<dt>{}</dt><dd>{}</dd>", rows.name(column), cut(rows.at(row, column), 1000));
  return html("<dl>{}</dl>", list);
}

static Html buttons(Page &page, std::string_view name, bool is_stopped) {
  const Rights &rights = rights_of(page);
  Html made;
  if (rights.resume && is_stopped)
    made += button(page.session, Link("/resume"), "Resume", {{"sink", name}});
  if (rights.pause && !is_stopped)
    made += button(page.session, Link("/pause"), "Pause", {{"sink", name}});
  if (rights.probe)
    made += button(page.session, Link("/probe"), "Probe", {{"sink", name}});
  return made.empty() ? made : html(R"(<div class="actions">{}</div>)", made);
}

/* The index over due events has the failing ones, whatever else waits. */
static Html failing_keys(Page &page, std::string_view name) {
  const Rows keys = page.ask(Sql(R"(
SELECT e.partition_key AS key, e.id, e.event_type AS type, e.attempts, e.available_at::timestamptz(0) AS next_attempt,
       left(e.last_error, 200) AS error
FROM (SELECT id, partition_key, event_type, attempts, available_at, last_error, last_attempt_at FROM outbox.events AS p
      WHERE p.status = 'PENDING' AND p.sink = {} AND p.available_at IS NOT NULL AND p.blocked_by IS NULL
      ORDER BY p.sink, p.available_at, p.position LIMIT 1000) AS e
WHERE e.last_attempt_at IS NOT NULL ORDER BY e.available_at LIMIT 20)",
                                 name));
  if (keys.empty())
    return html("<p>No key waits for a failing event.</p>");
  Html body;
  for (int i = 0; i < keys.size(); i++)
    body += html(R"(<tr><td>{}</td><td><a href="{}">{}</a></td><td class="n">{}</td><td>{}</td><td>{}</td></tr>)",
                 cut(keys.at(i, "key"), 60), Link("/event", {{"id", keys.at(i, "id")}}), keys.at(i, "type"),
                 keys.at(i, "attempts"), value(keys, i, "next_attempt"), cut(keys.at(i, "error"), 160));
  return html(
      R"(<h2>Keys that wait for a failing event</h2><div class="wide"><table><thead><tr><th>Key</th><th>Event</th><th class="n">Attempts</th>
<th>Next attempt</th><th>Error</th></tr></thead><tbody>{}</tbody></table></div>)",
      body);
}

static Html dead_groups(Page &page, std::string_view name) {
  Sql statement("SELECT count(*) AS n, min(last_error) AS error, min(last_attempt_at)::timestamptz(0) AS first,\n"
                "       max(last_attempt_at)::timestamptz(0) AS last, ");
  statement += error_group();
  statement += Sql(" AS error_group\nFROM (");
  statement += dead_letters(name);
  statement += Sql(") AS e GROUP BY error_group ORDER BY n DESC, error LIMIT 20");
  const Rows groups = page.ask(statement);
  if (groups.empty())
    return html("<p>No dead letters.</p>");
  const Rights &rights = rights_of(page);
  Html body;
  for (int i = 0; i < groups.size(); i++) {
    const std::string_view group = groups.at(i, "error_group");
    body += html(
        R"(<tr><td class="n">{}</td><td>{}</td><td>{}</td><td>{}</td><td><a href="{}">show</a></td><td>{}</td></tr>)",
        number(groups, i, "n"), cut(groups.at(i, "error"), 200), value(groups, i, "first"), value(groups, i, "last"),
        Link("/events", {{"show", "dead"}, {"sink", name}, {"group", group}}),
        rights.redrive || rights.discard
            ? html(R"(<a href="{}">redrive or discard</a>)", Link("/group", {{"sink", name}, {"group", group}}))
            : Html());
  }
  return html(
      R"(<h2>Dead letters, by error</h2><p>Of the last 2 000. Errors that differ in numbers only are one group.</p><div class="wide"><table><thead><tr><th class="n">Events</th><th>An error</th><th>First</th><th>Last</th><th></th><th></th></tr></thead><tbody>{}</tbody></table></div>)",
      body);
}

void show_sink(Page &page) {
  const std::string_view name = page.parameter("name");
  page.title = "Sink " + std::string(name);
  page.refreshes = true;
  const Rows sink = page.ask(Sql(R"(
SELECT state, kind, target, pending, due, scheduled, failing, blocked, in_flight, date_trunc('second', oldest_due_age) AS oldest_due_age,
       date_trunc('second', oldest_pending_age) AS oldest_pending_age, dead, round(rate::numeric, 1) AS rate, round(latency_p50::numeric, 1) AS latency_p50,
       round(latency_p99::numeric, 1) AS latency_p99, last_error, last_error_at::timestamptz(0) AS last_error_at,
       paused_until::timestamptz(0) AS paused_until, delivered, retried, dead_total, redriven_late, unanswered,
       stats_since::timestamptz(0) AS stats_since
FROM outbox.sinks WHERE name = {})",
                                 name));
  if (sink.empty()) {
    page.body += html("<p>There is no sink of that name.</p>");
    return;
  }
  const std::string_view state = sink.at(0, "state");
  const Rows stopped = page.ask(Sql(
      "SELECT state, reason, error, since::timestamptz(0) AS since, stopped_by FROM outbox.stopped_sinks WHERE sink = {}",
      name));
  page.body +=
      html("<p>{}</p>{}", state_badge(state), buttons(page, name, !stopped.empty() || state == "paused by endpoint"));
  if (!stopped.empty())
    page.body += plain_table(stopped);
  for (const Findings::Row &row : findings_of(page, std::chrono::seconds(15)).rows)
    if (row.status != "ok" && row.check == "sink " + std::string(name))
      page.body += html(R"(<p class="verdict warn">{}</p>{})", row.detail, hint(row.hint));
  page.body += failing_keys(page, name);
  page.body += dead_groups(page, name);
  page.body += html(R"(<p>Events: <a href="{}">waiting</a>, <a href="{}">failing</a>, <a href="{}">dead</a></p>)",
                    Link("/events", {{"show", "waiting"}, {"sink", name}}),
                    Link("/events", {{"show", "failing"}, {"sink", name}}),
                    Link("/events", {{"show", "dead"}, {"sink", name}}));
  page.body += html("<h2>Figures</h2>{}", facts(sink, 0));
  const Rows reasons = page.ask(Sql(
      "SELECT reason, publish_failures_total AS failures FROM outbox.failure_metrics WHERE sink = {} ORDER BY 2 DESC",
      name));
  if (!reasons.empty())
    page.body += html("<h2>Failed attempts, by reason</h2>{}", plain_table(reasons));
  const Rows options = page.ask(Sql(R"(
SELECT o.option_name AS option, left(o.option_value, 1000) AS value FROM pg_foreign_server AS s, pg_options_to_table(s.srvoptions) AS o
WHERE s.srvname = {} ORDER BY 1)",
                                    name));
  page.body += html(R"(<h2>Options</h2>{}<p>Secrets are in the user mapping, which only its owner reads.</p>)",
                    plain_table(options));
}

}  // namespace console
