/* doctor.cpp: every check of outbox.doctor(), and a file for who is asked for help. */
#include "console/pages/doctor_causes.h"
#include "console/pages/page.h"

namespace console {

/* What docs/operations.md says of it. */
static Html explained(const Findings::Row &row) {
  for (const DoctorCause &each : doctor_causes()) {
    const bool is_of_check = each.check == "sink NAME" ? row.check.starts_with("sink ") : row.check == each.check;
    if (is_of_check && row.detail.find(each.says) != std::string::npos)
      return html("<dl><dt>Cause</dt><dd>{}</dd><dt>Cure</dt><dd>{}</dd></dl>", each.cause, each.cure);
  }
  return {};
}

Html findings_list(const Findings &findings, bool all) {
  Html found;
  for (const Findings::Row &row : findings.rows)
    if (all || row.status != "ok")
      found += html(R"(<li><span class="badge {}">{}</span> <b>{}</b> {}{}{}</li>)",
                    row.status == "ok"        ? "good"
                    : row.status == "warning" ? "warn"
                                              : "bad",
                    row.status, row.check, row.detail, row.status == "ok" ? Html() : explained(row), hint(row.hint));
  return found.empty() ? Html() : html(R"(<ul class="findings">{}</ul>)", found);
}

const Findings &findings_of(Page &page, std::chrono::seconds at_most, std::string_view about) {
  const auto now = std::chrono::steady_clock::now();
  Findings &findings = page.session.findings;
  const Sql statement(R"(SELECT "check", status, detail, hint, now()::timestamptz(0) AS now FROM outbox.doctor())");
  const bool is_news = !about.empty() && about != findings.about;
  if (!is_news && findings.at != std::chrono::steady_clock::time_point{} && findings.at + at_most > now) {
    page.show(page.session.connection->text(statement));
    return findings;
  }
  const Rows rows = page.ask(statement);
  findings.at = now;
  if (!about.empty())
    findings.about = about;
  findings.rows.clear();
  for (int i = 0; i < rows.size(); i++)
    findings.rows.push_back({std::string(rows.at(i, "check")), std::string(rows.at(i, "status")),
                             std::string(rows.at(i, "detail")), std::string(rows.at(i, "hint"))});
  findings.when = rows.empty() ? "" : rows.at(0, "now");
  return findings;
}

void show_doctor(Page &page) {
  page.title = "Doctor";
  page.refreshes = true;
  const Findings &findings = findings_of(page, std::chrono::seconds(5));
  const auto wrong =
      std::count_if(findings.rows.begin(), findings.rows.end(), [](const auto &row) { return row.status != "ok"; });
  page.body += html("<p>{} checks at {}, {} of them need somebody.</p>", findings.rows.size(), findings.when, wrong);
  page.body += html(
      R"(<p><a href="{}" download="outbox-support.json">Save all that a helper needs</a>: versions, settings, checks, states and figures; no payload, key,
secret or address.</p>)",
      Link("/support.json"));
  page.body += findings_list(findings, true);
}

/* Texts of errors and of the doctor may name addresses, keys and what an endpoint has answered: only their kinds go
 * out. */
std::string support_file(Page &page) {
  const Rows rows = page.ask(Sql(R"(
SELECT jsonb_pretty(jsonb_build_object(
  'server', current_setting('server_version'),
  'extension', (SELECT extversion FROM pg_extension WHERE extname = 'outbox'),
  'at', now(),
  'settings', (SELECT jsonb_object_agg(name, setting) FROM pg_settings
               WHERE name LIKE 'outbox.%' AND name NOT IN ('outbox.allow_networks', 'outbox.cluster_name')),
  'checks', (SELECT jsonb_agg(jsonb_build_object('check', CASE WHEN d."check" LIKE 'sink %' THEN 'sink'
                                                        WHEN d."check" LIKE 'advice %' THEN 'advice ' || substring(d."check" from '[^ ]*$')
                                                        ELSE d."check" END, 'status', d.status))
             FROM outbox.doctor() AS d),
  'sinks', (SELECT jsonb_agg(to_jsonb(s) - 'name' - 'target' - 'last_error') FROM (SELECT * FROM outbox.sinks ORDER BY name LIMIT 1000) AS s),
  'workers', (SELECT jsonb_agg(to_jsonb(w) - 'database') FROM outbox.workers AS w WHERE w.database = current_database()),
  'failures', (SELECT jsonb_agg(jsonb_build_object('reason', f.reason, 'n', f.publish_failures_total)) FROM outbox.failure_metrics AS f)
)) AS file)"));
  return std::string(rows.at(0, "file"));
}

}  // namespace console
