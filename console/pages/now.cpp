/* now.cpp: is all well? The sinks, those first that need somebody; what the doctor found; the workers. */
#include "console/pages/page.h"

#include <algorithm>
#include <optional>

namespace console {

/* Sinks that need somebody come first; then those with the most waiting events. */
static Rows ask_sinks(Page &page) {
  const std::string find(page.parameter("find"));
  Sql statement(R"(
SELECT name, kind, state, pending, due, failing, blocked, in_flight, dead, estimated, round(rate::numeric, 1) AS rate,
       date_trunc('second', oldest_due_age) AS oldest, round(latency_p50::numeric, 1) AS p50,
       round(latency_p99::numeric, 1) AS p99, left(last_error, 300) AS last_error, last_error_at::timestamptz(0) AS at, delivered,
       count(*) OVER () AS sinks, sum(pending) OVER () AS all_pending, sum(dead) OVER () AS all_dead,
       count(*) FILTER (WHERE state NOT IN ('delivering', 'idle')) OVER () AS troubled, now()::timestamptz(0) AS now
FROM outbox.sinks)");
  if (!find.empty())
    statement += Sql(" WHERE strpos(lower(name), lower({})) > 0", find);
  statement += Sql(R"(
ORDER BY state IN ('delivering', 'idle'), pending + dead DESC, name LIMIT 100)");
  return page.ask(statement);
}

static void remember(Session &session, const Rows &sinks) {
  constexpr std::chrono::minutes kept{5};
  const auto now = std::chrono::steady_clock::now();
  for (int i = 0; i < sinks.size(); i++) {
    auto &samples = session.curves[std::string(sinks.at(i, "name"))];
    samples.push_back({now, sinks.value(i, "delivered"), sinks.value(i, "pending")});
  }
  for (auto &[name, samples] : session.curves)
    while (!samples.empty() && samples.front().at + kept < now)
      samples.pop_front();
  std::erase_if(session.curves, [](const auto &each) { return each.second.empty(); });
}

static Html sink_table(Page &page, const Rows &sinks) {
  Html body;
  for (int i = 0; i < sinks.size(); i++) {
    const std::string_view name = sinks.at(i, "name");
    const auto &samples = page.session.curves[std::string(name)];
    const Html about = sinks.at(i, "estimated") == "t"
                           ? html(R"(<abbr title="An estimate: the tables are large.">≈</abbr> )")
                           : Html();
    const Html dead = sinks.at(i, "dead") == "0"
                          ? html("0")
                          : html(R"(<a class="bad" href="{}">{}</a>)",
                                 Link("/events", {{"show", "dead"}, {"sink", name}}), number(sinks, i, "dead"));
    body += html(
        R"(<tr><th scope="row"><a href="{}">{}</a> <small>{}</small></th><td>{}</td><td class="n">{}{}{}</td><td class="n">{}{}</td>
<td class="n">{}</td><td class="n">{}</td><td class="n">{}</td><td>{}</td></tr>)",
        Link("/sink", {{"name", name}}), name, sinks.at(i, "kind"), state_badge(sinks.at(i, "state")),
        curve(samples, false), about, number(sinks, i, "pending"), curve(samples, true), value(sinks, i, "rate"),
        value(sinks, i, "oldest"), dead, value(sinks, i, "p99"),
        sinks.is_null(i, "last_error")
            ? html("–")
            : html("{}<br><small>{}</small>", cut(sinks.at(i, "last_error"), 120), sinks.at(i, "at")));
  }
  return html(
      R"(<div class="wide"><table><thead><tr><th>Sink</th><th>State</th><th class="n">Waiting</th><th class="n">Events/s</th><th class="n">Oldest due</th>
<th class="n">Dead</th><th class="n">p99, ms</th><th>Last error</th></tr></thead><tbody>{}</tbody></table></div>)",
      body);
}

static Html workers_line(Page &page) {
  const Rows workers = page.ask(Sql(R"(
SELECT worker, workers, pid, state, shards, date_trunc('second', now() - started_at) AS up,
       extract(milliseconds FROM now() - last_loop_at)::int AS last_round_ms, pg_size_pretty(memory) AS memory
FROM outbox.workers WHERE database = current_database() ORDER BY worker)"));
  if (workers.empty())
    return html("<p>No worker runs: one starts when an event is committed or due.</p>");
  return html("<h2>Workers</h2>{}", plain_table(workers));
}

static void sinks_part(Page &page, const Rows &sinks) {
  page.body += html(
      R"(<form method="get" action="{}" class="find"><label>Sinks whose names have <input name="find" value="{}" maxlength="63"></label><button>Find</button></form>)",
      Link("/"), page.parameter("find"));
  if (sinks.empty()) {
    page.body += html("<p>No sink has that name.</p>");
    return;
  }
  page.body += html(R"(<p>{} sinks, {} events wait, {} dead letters{}. At {}.</p>)", number(sinks, 0, "sinks"),
                    number(sinks, 0, "all_pending"), number(sinks, 0, "all_dead"),
                    sinks.size() == 100 ? html("; the first 100 are shown") : Html(), sinks.at(0, "now"));
  page.body += sink_table(page, sinks);
}

void show_now(Page &page) {
  page.title = "Is all well?";
  page.refreshes = true;
  std::optional<Rows> sinks;
  part(page, [&] {
    sinks = ask_sinks(page);
    remember(page.session, *sinks);
  });
  const Findings *findings = nullptr;
  /* The doctor looks at more than a page every two seconds should. */
  const auto told = [&](std::string_view column) { return std::string(sinks->at(0, column)); };
  const std::string about = !sinks || sinks->empty()
                                ? "none"
                                : told("sinks") + " " + told("troubled") + (told("all_dead") == "0" ? "" : " dead");
  part(page, [&] { findings = &findings_of(page, std::chrono::seconds(15), about); });
  if (sinks && findings) {
    /* Advice waits until somebody has time. */
    const auto wrong = std::count_if(findings->rows.begin(), findings->rows.end(), [](const auto &row) {
      return row.status != "ok" && !row.check.starts_with("advice ");
    });
    const bool is_bad = std::any_of(findings->rows.begin(), findings->rows.end(),
                                    [](const auto &row) { return row.status == "error"; });
    const std::string_view troubled = sinks->empty() ? "0" : sinks->at(0, "troubled");
    page.body +=
        sinks->empty() && page.parameter("find").empty()
            ? html(R"(<p class="verdict warn">There is no sink yet: events wait until CREATE SERVER makes one.</p>)")
        : wrong == 0 && troubled == "0"
            ? html(R"(<p class="verdict good">All is well. The doctor found nothing wrong at {}.</p>)",
                   findings->when)
            : html(R"(<p class="verdict {}">{} of {} sinks need somebody; the doctor has {} to say at {}.</p>)",
                   is_bad ? "bad" : "warn", troubled, sinks->empty() ? "0" : sinks->at(0, "sinks"), wrong,
                   findings->when);
  }
  if (sinks)
    sinks_part(page, *sinks);
  if (findings)
    if (const Html list = findings_list(*findings, false); !list.empty())
      page.body += html("<h2>What the doctor found</h2>{}", list);
  part(page, [&] { page.body += workers_line(page); });
}

}  // namespace console
