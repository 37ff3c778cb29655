/* layout.cpp: the document around a page, and the pieces that pages are made of. */
#include <algorithm>
#include <array>
#include <cmath>

#include "console/pages/page.h"

namespace console {

Rows Page::ask(const Sql &statement, Connection::Duration limit) {
  statements_.push_back(session.connection->text(statement));
  const auto began = std::chrono::steady_clock::now();
  Rows rows = session.connection->run(statement, limit);
  took_ += std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - began);
  return rows;
}

const Rights &rights_of(Page &page) {
  constexpr std::chrono::minutes lasting{1};
  const auto now = std::chrono::steady_clock::now();
  Rights &rights = page.session.rights;
  if (rights.at != std::chrono::steady_clock::time_point{} && rights.at + lasting > now)
    return rights;
  const Rows rows = page.session.connection->run(Sql(R"(
SELECT has_function_privilege('outbox.pause(text)', 'EXECUTE') AS pause,
       has_function_privilege('outbox.resume(text)', 'EXECUTE') AS resume,
       has_function_privilege('outbox.redrive(uuid, text, boolean)', 'EXECUTE') AS redrive,
       has_table_privilege('outbox.events', 'DELETE') AS discard,
       has_function_privilege('outbox.replay(text, anycompatible, anycompatible, text, uuid)', 'EXECUTE') AS replay,
       has_function_privilege('outbox.probe(text, interval, boolean)', 'EXECUTE') AS probe,
       has_function_privilege('outbox.story(uuid)', 'EXECUTE') AS story,
       has_function_privilege('outbox.preview(uuid, text)', 'EXECUTE') AS preview,
       has_column_privilege('outbox.events', 'payload', 'SELECT') AS payload)"));
  const bool writes = !page.session.is_read_only;
  const auto may = [&](std::string_view column) { return rows.at(0, column) == "t"; };
  rights = {.at = now,
            .pause = writes && may("pause"),
            .resume = writes && may("resume"),
            .redrive = writes && may("redrive"),
            .discard = writes && may("discard"),
            .replay = writes && may("replay"),
            .probe = writes && may("probe"),
            .story = may("story"),
            .preview = may("preview"),
            .payload = may("payload")};
  return rights;
}

Html button(const Session &session, const Link &action, std::string_view label,
            std::initializer_list<std::pair<std::string_view, std::string_view>> values, bool is_dangerous) {
  Html fields = html(R"(<input type="hidden" name="form_token" value="{}">)", session.form_token);
  for (const auto &[name, text] : values)
    fields += html(R"(<input type="hidden" name="{}" value="{}">)", name, text);
  return html(R"(<form method="post" action="{}">{}<button class="{}">{}</button></form>)", action, fields,
              is_dangerous ? "danger" : "act", label);
}

/* States of outbox.sinks. */
Html state_badge(std::string_view state) {
  constexpr std::array<std::string_view, 2> good{"delivering", "idle"};
  constexpr std::array<std::string_view, 5> warns{"failing", "waiting", "degraded", "paused", "paused by endpoint"};
  const auto is_in = [&](const auto &list) { return std::find(list.begin(), list.end(), state) != list.end(); };
  const std::string_view tone = is_in(good) ? "good" : is_in(warns) ? "warn" : "bad";
  return html(R"(<span class="badge {}">{}</span>)", tone, state);
}

Html hint(std::string_view text) {
  return text.empty() ? Html() : html(R"(<pre tabindex="0">{}</pre>)", text);
}

Html value(const Rows &rows, int row, std::string_view column) {
  return rows.is_null(row, column) ? html("–") : html("{}", rows.at(row, column));
}

/* With a space before every three digits: a person reads 12 000 000 faster. */
Html number(const Rows &rows, int row, std::string_view column) {
  if (rows.is_null(row, column))
    return html("–");
  const std::string_view text = rows.at(row, column);
  if (text.find_first_not_of("0123456789") != std::string_view::npos)
    return html("{}", text);
  std::string spaced;
  for (size_t i = 0; i < text.size(); i++) {
    if (i > 0 && (text.size() - i) % 3 == 0)
      spaced += "\xe2\x80\xaf";
    spaced += text[i];
  }
  return html(R"(<span title="{}">{}</span>)", text, spaced);
}

/* Between characters, not in one. */
static std::string_view beginning(std::string_view text, size_t most) {
  if (text.size() <= most)
    return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80)
    most--;
  return text.substr(0, most);
}

Html cut(std::string_view text, size_t most) {
  if (text.size() <= most)
    return html("{}", text);
  return html(R"(<span title="{}">{}…</span>)", beginning(text, 2000), beginning(text, most));
}

Html plain_table(const Rows &rows) {
  Html head, body;
  for (int column = 0; column < rows.columns(); column++)
    head += html("<th>{}</th>", rows.name(column));
  for (int row = 0; row < rows.size(); row++) {
    Html cells;
    for (int column = 0; column < rows.columns(); column++)
      cells += rows.is_null(row, column) ? html("<td>–</td>") : html("<td>{}</td>", cut(rows.at(row, column), 400));
    body += html("<tr>{}</tr>", cells);
  }
  return html(R"(<div class="wide"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>)", head, body);
}

/* The last minutes, from 0 to the largest value, as an SVG of 100 x 24. */
Html curve(const std::deque<Sample> &samples, bool of_rate) {
  if (samples.size() < 3)
    return html("");
  const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
  std::vector<std::pair<double, double>> points; /* seconds before the last one, and the value */
  for (size_t i = 1; i < samples.size(); i++) {
    const double dt = seconds(samples[i].at - samples[i - 1].at);
    const double y = of_rate ? std::max(0.0, samples[i].delivered - samples[i - 1].delivered) / std::max(dt, 0.1)
                             : samples[i].pending;
    points.emplace_back(seconds(samples.back().at - samples[i].at), y);
  }
  const double span = std::max(points.front().first, 1.0);
  double top = 0;
  for (const auto &point : points)
    top = std::max(top, point.second);
  std::string line;
  for (const auto &[before, y] : points)
    line += std::to_string(std::lround(100 - 100 * before / span)) + "," +
            std::to_string(top > 0 ? std::lround(22 - 20 * y / top) : 22) + " ";
  return html(
      R"(<svg class="curve" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label="the last {} seconds, at most {}"><polyline points="{}"/></svg>)",
      std::lround(span), std::lround(top), line);
}

static Html navigation(const Page &page) {
  const struct {
    Link::Path path;
    const char *label;
  } entries[] = {{"/", "Now"}, {"/events", "Events"}, {"/doctor", "Doctor"}};
  Html links;
  for (const auto &[path, label] : entries)
    links += page.request.path == path.text() ? html(R"(<a href="{}" aria-current="page">{}</a>)", Link(path), label)
                                              : html(R"(<a href="{}">{}</a>)", Link(path), label);
  const Session &session = page.session;
  return html(
      R"(<header><nav><strong>outbox</strong>{}</nav><div class="who"><span>{} on {}{}</span>{}</div></header>)",
      links, session.role, session.database, session.is_read_only ? ", read only" : "",
      button(session, Link("/logout"), "Log out", {}));
}

Html document_head(const Page &page) {
  const Html told = page.session.told.empty() || page.is_refresh()
                        ? Html()
                        : html(R"(<p class="told {}" role="status">{}</p>)",
                               page.session.told_is_error ? "bad" : "good", page.session.told);
  return html(R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{} · {} · outbox</title><link rel="stylesheet" href="{}"><script src="{}" defer></script></head>
<body>{}<main id="main" data-refreshes="{}">{}<h1>{}</h1>)",
              page.title, page.session.database, Link("/style.css"), Link("/refresh.js"), navigation(page),
              page.refreshes ? "yes" : "no", told, page.title);
}

Html document_foot(const Page &page) {
  Html statements;
  for (const std::string &statement : page.statements())
    statements +=
        html("<pre tabindex=\"0\">{};</pre>", statement.starts_with('\n') ? statement.substr(1) : statement);
  if (!statements.empty())
    statements = html(R"(<details id="sql"><summary>The SQL of this page</summary>{}</details>)", statements);
  return html("{}</main></body></html>\n", statements);
}

Html document(const Page &page) {
  Html whole = document_head(page);
  whole += page.body;
  whole += document_foot(page);
  return whole;
}

Html login_document(std::string_view error, bool has_form) {
  const Html told = error.empty() ? Html() : html(R"(<p class="told bad" role="alert">{}</p>)", error);
  const Html form =
      has_form
          ? html(
                R"(<form method="post" action="{}" class="login"><label>Role <input name="role" autocomplete="username" required autofocus maxlength="63"></label>
<label>Password <input name="password" type="password" autocomplete="current-password" maxlength="1000"></label><button class="act">Log in</button></form>)",
                Link("/login"))
          : html(
                "<p>Open the link that outbox-console has printed in its terminal. It is good for one browser; press Enter there for another one.</p>");
  return html(R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in · outbox</title><link rel="stylesheet" href="{}"></head><body><main class="narrow"><h1>outbox</h1>{}{}</main></body></html>
)",
              Link("/style.css"), told, form);
}

}  // namespace console
