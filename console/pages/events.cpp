/*
 * events.cpp: events that wait, fail or are dead, fifty at a time. A statement looks at 5,000 rows at most, in the
 * order of an index, and shows those that the filters let through: a filter without an index then costs no more than
 * one with. What it has not looked at is behind "Go on".
 */
#include "console/pages/page.h"

namespace console {

static std::string_view show_of(const Page &page) {
  const std::string_view show = page.parameter("show");
  return show == "failing" || show == "dead" ? show : "waiting";
}

static bool is_uuid(std::string_view text) {
  return text.size() == 36 && text.find_first_not_of("0123456789abcdefABCDEF-") == std::string_view::npos;
}

enum class Order { Position, SinkPosition, Id, Due, Failed };

static Order order_of(const Page &page) {
  const std::string_view show = show_of(page);
  if (show == "failing")
    return Order::Due;
  if (!page.parameter("since").empty())
    return Order::Id;
  if (page.parameter("sink").empty())
    return Order::Position;
  return show == "dead" ? Order::Failed : Order::SinkPosition;
}

/* Where the page begins: after the row with this place in the order, and this position. */
static Sql looked_at(const Page &page) {
  const std::string status(show_of(page) == "dead" ? "FAILED" : "PENDING"), sink(page.parameter("sink"));
  const std::string at(page.parameter("at"));
  const std::string after(page.parameter("after").empty() ? "0" : page.parameter("after"));
  Sql rows(R"(
WITH looked AS MATERIALIZED (
  SELECT id, sink, partition_key, aggregate_type, event_type, created_at, available_at, attempts, last_attempt_at,
         position, blocked_by, left(last_error, 400) AS last_error
  FROM outbox.events WHERE status = {})",
           status);
  switch (order_of(page)) {
  case Order::Position:
    rows += Sql(" AND position > {}::bigint\n  ORDER BY position LIMIT 5000)", after);
    break;
  case Order::SinkPosition:
    rows += Sql(R"( AND available_at IS NULL AND (sink, position) > ({}, {}::bigint)
    AND (sink, position) < ({}, 9223372036854775807)
  ORDER BY sink, position LIMIT 5000))",
                sink, after, sink);
    break;
  case Order::Id: /* of version 7: the time is its beginning */
    rows += Sql(R"( AND (id, position) > (coalesce(nullif({}, '')::uuid,
    (lpad(to_hex((extract(epoch FROM {}::timestamptz) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid), {}::bigint)
  ORDER BY id, position LIMIT 5000))",
                at, page.parameter("since"), after);
    break;
  case Order::Due:
    rows += Sql(R"( AND available_at IS NOT NULL AND blocked_by IS NULL AND sink = {}
    AND (available_at, position) > ({}::timestamptz, {}::bigint)
  ORDER BY sink, available_at, position LIMIT 5000))",
                sink, at.empty() ? "-infinity" : at, after);
    break;
  case Order::Failed: /* those that were never tried are the last ones */
    rows += Sql(R"( AND sink = {} AND last_attempt_at IS NOT NULL
      AND (last_attempt_at, position) > ({}::timestamptz, {}::bigint)
    ORDER BY sink, last_attempt_at, position LIMIT 5000))",
                sink, at.empty() ? "-infinity" : at, after);
    rows += Sql(R"(, untried AS MATERIALIZED (
  SELECT id, sink, partition_key, aggregate_type, event_type, created_at, available_at, attempts, last_attempt_at,
         position, blocked_by, left(last_error, 400) AS last_error
  FROM outbox.events WHERE status = 'FAILED' AND sink = {} AND last_attempt_at IS NULL AND position > {}::bigint
  ORDER BY position LIMIT 5000))",
                sink, at == "infinity" ? after : "0");
    break;
  }
  return rows;
}

/* The place of a row in the order, as text, and the order itself. */
static Sql place_of(Order order) {
  switch (order) {
  case Order::Id:
    return Sql("id::text");
  case Order::Due:
    return Sql("available_at::text");
  case Order::Failed:
    return Sql("coalesce(last_attempt_at, 'infinity')::text");
  default:
    return Sql("''");
  }
}

static Sql ordered(Order order, bool backwards) {
  switch (order) {
  case Order::Id:
    return backwards ? Sql(" ORDER BY id DESC, position DESC") : Sql(" ORDER BY id, position");
  case Order::Due:
    return backwards ? Sql(" ORDER BY available_at DESC, position DESC") : Sql(" ORDER BY available_at, position");
  case Order::Failed:
    return backwards ? Sql(" ORDER BY coalesce(last_attempt_at, 'infinity') DESC, position DESC")
                     : Sql(" ORDER BY coalesce(last_attempt_at, 'infinity'), position");
  default:
    return backwards ? Sql(" ORDER BY position DESC") : Sql(" ORDER BY position");
  }
}

static Sql filters(const Page &page) {
  Sql where(" WHERE true");
  const auto add = [&](std::string_view name, Sql::Literal condition) {
    if (const std::string_view text = page.parameter(name); !text.empty())
      where += Sql(condition, text);
  };
  add("sink", " AND sink = {}");
  add("key", " AND partition_key = {}");
  add("type", " AND event_type = {}");
  add("since", " AND created_at >= {}::timestamptz");
  add("error", " AND strpos(last_error, {}) > 0");
  if (const std::string_view group = page.parameter("group"); !group.empty()) {
    where += Sql(" AND ");
    where += error_group();
    where += Sql(" = {}", group);
  }
  return where;
}

static Rows ask_events(Page &page) {
  const Order order = order_of(page);
  const Sql from = order == Order::Failed ? Sql("(TABLE looked UNION ALL TABLE untried) AS looked") : Sql("looked");
  Sql statement = looked_at(page);
  statement +=
      Sql("\nSELECT seen.n AS looked, seen.place AS end_at, seen.position AS end_position, found.*\nFROM (SELECT "
          "count(*) OVER () AS n, position, ");
  statement += place_of(order);
  statement += Sql(" AS place FROM ");
  statement += from;
  statement += ordered(order, true);
  statement += Sql(R"( LIMIT 1) AS seen
LEFT JOIN LATERAL (
  SELECT id, sink, partition_key AS key, aggregate_type || ': ' || event_type AS type, created_at::timestamptz(0) AS created,
         available_at::timestamptz(0) AS due, attempts, last_error, last_attempt_at::timestamptz(0) AS failed, blocked_by,
         position, )");
  statement += place_of(order);
  statement += Sql(" AS place\n  FROM ");
  statement += from;
  statement += filters(page);
  statement += ordered(order, false);
  statement += Sql(" LIMIT 50) AS found ON true");
  return page.ask(statement);
}

static Link same_page(const Page &page, std::string_view at, std::string_view after) {
  Link link("/events");
  for (const char *name : {"show", "sink", "key", "type", "since", "error", "group"})
    link.add(name, page.parameter(name));
  return link.add("at", at).add("after", after);
}

static Html tabs(const Page &page) {
  const std::pair<const char *, const char *> all[] = {
      {"waiting", "Waiting"}, {"failing", "Failing or scheduled"}, {"dead", "Dead letters"}};
  Html made;
  for (const auto &[show, label] : all) {
    const Link link("/events", {{"show", show}, {"sink", page.parameter("sink")}});
    made += show_of(page) == show ? html(R"(<a href="{}" aria-current="true">{}</a>)", link, label)
                                  : html(R"(<a href="{}">{}</a>)", link, label);
  }
  return html(R"(<nav class="tabs" aria-label="Which events">{}</nav>)", made);
}

static Html filter_form(const Page &page) {
  const std::pair<const char *, const char *> fields[] = {
      {"sink", "Sink"},       {"key", "Key"},
      {"type", "Event type"}, {"since", "Enqueued since, by the time in the id"},
      {"error", "Error has"}, {"id", "Event id"}};
  Html inputs;
  for (const auto &[name, label] : fields)
    inputs +=
        html(R"(<label>{} <input name="{}" value="{}" maxlength="400"></label>)", label, name, page.parameter(name));
  return html(
      R"(<form method="get" action="{}" class="find"><input type="hidden" name="show" value="{}">{}<button>Find</button></form>)",
      Link("/events"), show_of(page), inputs);
}

static Html event_rows(const Rows &events, bool is_dead) {
  Html body;
  for (int i = 0; i < events.size(); i++) {
    if (events.is_null(i, "id"))
      continue;
    const Html waits = !events.is_null(i, "blocked_by") ? html("behind a failing event of its key")
                       : is_dead                        ? value(events, i, "failed")
                                                        : value(events, i, "due");
    body += html(
        R"(<tr><td><a href="{}">{}</a></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class="n">{}</td><td>{}</td></tr>)",
        Link("/event", {{"id", events.at(i, "id")}}), cut(events.at(i, "type"), 80), value(events, i, "sink"),
        cut(events.at(i, "key"), 40), value(events, i, "created"), waits, events.at(i, "attempts"),
        cut(events.at(i, "last_error"), 120));
  }
  return html(
      R"(<div class="wide"><table><thead><tr><th>Event</th><th>Sink</th><th>Key</th><th>Enqueued</th><th>{}</th><th class="n">Attempts</th><th>Last error</th>
</tr></thead><tbody>{}</tbody></table></div>)",
      is_dead ? "Failed" : "Due", body);
}

static void choose_sink(Page &page) {
  const Rows sinks = page.ask(
      Sql("SELECT name, failing, blocked FROM outbox.sinks WHERE failing > 0 ORDER BY failing DESC, name LIMIT 100"));
  if (sinks.empty()) {
    page.body += html("<p>No event is failing.</p>");
    return;
  }
  Html list;
  for (int i = 0; i < sinks.size(); i++)
    list += html(R"(<li><a href="{}">{}</a>: {} failing, {} behind them</li>)",
                 Link("/events", {{"show", "failing"}, {"sink", sinks.at(i, "name")}}), sinks.at(i, "name"),
                 number(sinks, i, "failing"), number(sinks, i, "blocked"));
  page.body += html("<p>Failing events of which sink?</p><ul>{}</ul>", list);
}

void show_events(Page &page) {
  page.title = "Events";
  if (const std::string_view id = page.parameter("id"); is_uuid(id)) {
    page.body += html(R"(<p><a href="{}">Event {}</a></p>)", Link("/event", {{"id", id}}), id);
  } else if (!id.empty()) {
    page.body += html(R"(<p class="told bad">An event's id is a UUID of 36 characters.</p>)");
  }
  page.body += tabs(page);
  page.body += filter_form(page);
  if (show_of(page) == "failing" && page.parameter("sink").empty()) {
    choose_sink(page);
    return;
  }
  const Rows events = ask_events(page);
  if (events.empty()) {
    page.body += html("<p>There are none{}.</p>", page.parameter("after").empty() ? "" : " further on");
    return;
  }
  const int last = events.size() - 1;
  const bool is_full = events.size() == 50, none = events.is_null(0, "id");
  if (none)
    page.body += html("<p>None of the {} events from here on is so.</p>", number(events, 0, "looked"));
  else
    page.body += event_rows(events, show_of(page) == "dead");
  if (is_full)
    page.body += html(R"(<p><a href="{}">Go on</a></p>)",
                      same_page(page, events.at(last, "place"), events.at(last, "position")));
  else if (events.value(0, "looked") >= 5000)
    page.body += html(R"(<p>5 000 events were looked at. <a href="{}">Go on</a></p>)",
                      same_page(page, events.at(0, "end_at"), events.at(0, "end_position")));
}

/* What redrive and discard would do, before they do it. */
void confirm_group(Page &page) {
  const std::string_view sink = page.parameter("sink"), group = page.parameter("group");
  page.title = "Dead letters of " + std::string(sink);
  Sql statement(R"(
SELECT count(*) AS n, min(last_attempt_at)::timestamptz(0) AS first, max(last_attempt_at)::timestamptz(0) AS last,
       min(last_error) AS example
FROM ()");
  statement += dead_letters(sink);
  statement += Sql(") AS e WHERE ");
  statement += error_group();
  statement += Sql(" = {}", group);
  const Rows found = page.ask(statement);
  page.body += html(
      R"(<p><b>{}</b> of the last 2 000 dead letters of {} failed between {} and {} with errors such as:</p><pre tabindex="0">{}</pre>)",
      number(found, 0, "n"), sink, value(found, 0, "first"), value(found, 0, "last"), value(found, 0, "example"));
  const Rights &rights = rights_of(page);
  const auto offer = [&](bool may, std::string_view what, const Sql &action, std::string_view label,
                         bool is_dangerous) {
    if (may)
      page.body += html(R"(<h2>{}</h2><pre tabindex="0">{};</pre>{})", what, page.session.connection->text(action),
                        button(page.session, Link("/group"), label, {{"sink", sink}, {"group", group}, {"do", label}},
                               is_dangerous));
  };
  offer(rights.redrive, "Send them again, each in its place in the order of its key, the first 500",
        redrive_group(sink, group), "Redrive", false);
  offer(rights.discard, "Delete them, the first 500: they are then lost", discard_group(sink, group), "Discard",
        true);
}

}  // namespace console
