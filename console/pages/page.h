/*
 * page.h: what all pages share: the request's session, the statements that were run for it, which the page shows, and
 * pieces of HTML. Each page asks one question, and answers it with few bounded statements.
 */
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "console/access/sessions.h"
#include "console/database/connection.h"
#include "console/html/html.h"
#include "console/server/message.h"

namespace console {

class Page {
public:
  Page(Session &session, const Request &request) : session(session), request(request) {}

  Session &session;
  const Request &request;
  std::string title;
  Html body;
  bool refreshes = false; /* by itself, while somebody looks */

  /* Runs the statement, and shows it at the page's end. Throws DatabaseError. */
  Rows ask(const Sql &statement, Connection::Duration limit = Connection::page_limit);
  /* Shows a statement that was run before. */
  void show(std::string statement) { statements_.push_back(std::move(statement)); }
  const std::vector<std::string> &statements() const { return statements_; }
  /* How long the statements have taken, as browsers show it (Server-Timing). */
  std::string timing() const { return "sql;dur=" + std::to_string(static_cast<double>(took_.count()) / 1000); }
  /* By refresh.js: nobody has asked for it. */
  bool is_refresh() const { return !request.header("x-refresh").empty(); }
  std::string_view parameter(std::string_view name) const { return request.asks(name); }

private:
  std::vector<std::string> statements_;
  std::chrono::microseconds took_{0};
};

/* The buttons that the role may press; asked again once a minute. */
const Rights &rights_of(Page &page);

/* Pages, each in a file of its name. */
void show_now(Page &page);
void show_sink(Page &page);
void show_events(Page &page);
void show_event(Page &page);
void show_doctor(Page &page);
void confirm_group(Page &page);
std::string support_file(Page &page);

/* The last 2,000 dead letters of a sink; an expression over them that is the same for those with the same error; and
 * what sends again or deletes the first 500 of such a group. */
Sql dead_letters(std::string_view sink);
Sql error_group();
Sql redrive_group(std::string_view sink, std::string_view group);
Sql discard_group(std::string_view sink, std::string_view group);

/* What the doctor finds; at most so old. */
const Findings &findings_of(Page &page, std::chrono::seconds at_most, std::string_view about = {});
Html findings_list(const Findings &findings, bool all);

/* The whole document, or what stands before and after the page's body. */
Html document(const Page &page);
Html document_head(const Page &page);
Html document_foot(const Page &page);
Html login_document(std::string_view error, bool has_form);

/* A part of the page: what the server refuses or has no time for leaves the other parts. */
template <class Show> void part(Page &page, Show show) {
  try {
    show();
  } catch (const DatabaseError &error) {
    if (error.is_lost())
      throw;
    page.body += html(R"(<p class="told bad">{}</p>)", error.what());
  }
}

/* Pieces. */
Html button(const Session &session, const Link &action, std::string_view label,
            std::initializer_list<std::pair<std::string_view, std::string_view>> values, bool is_dangerous = false);
Html state_badge(std::string_view state);
/* A text to paste; nothing if there is none. */
Html hint(std::string_view text);
/* A table of all columns of the rows, with their names as headings. */
Html plain_table(const Rows &rows);
/* The text, cut, with all of it in a tooltip. */
Html cut(std::string_view text, size_t most);
Html curve(const std::deque<Sample> &samples, bool of_rate);
/* A text as libpq gives it, or a dash for NULL. */
Html value(const Rows &rows, int row, std::string_view column);
Html number(const Rows &rows, int row, std::string_view column);

}  // namespace console
