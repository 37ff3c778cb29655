/*
 * console.cpp: every request passes here. A page needs a session; a POST also needs the session's form token and must
 * come from a page of this program. Who has no session gets the login page, whatever the path: it tells nothing about
 * paths.
 */
#include "console.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "console/access/secret.h"
#include "console/assets.h"
#include "console/pages/actions.h"
#include "console/pages/page.h"
#include "console/pages/probe.h"

namespace console {

using Clock = std::chrono::steady_clock;

static Response see_other(std::string where) {
  return {.status = 303, .headers = {{"Location", std::move(where)}}};
}

/* Cookies know no ports: two consoles of one machine must not end each other's sessions. */
std::string Console::cookie_name(const Request &request) const {
  if (options_.is_secure())
    return "__Host-outbox";
  const std::string_view host = request.header("host");
  const std::string_view port = host.substr(std::min(host.rfind(':') + 1, host.size()));
  return "outbox_" + std::string(port.find_first_not_of("0123456789") == std::string_view::npos ? port : "");
}

static std::string cookie(const std::string &name, std::string_view value, bool is_secure) {
  return name + "=" + std::string(value) + "; Path=/; HttpOnly; SameSite=Strict" + (is_secure ? "; Secure" : "") +
         (value.empty() ? "; Max-Age=0" : "");
}

Response Console::login_page(unsigned status, std::string_view error) const {
  return {.status = status,
          .body = login_document(error, options_.is_service && options_.trusted_header.empty()).text(),
          .headers = {}};
}

std::shared_ptr<Session> Console::session_of(const Request &request) {
  if (!options_.trusted_header.empty())
    return session_of_header(request);
  return sessions_.find(Request::find(request.cookies, cookie_name(request)));
}

/* A browser says where a request comes from; a page of another site cannot change that. Old browsers say nothing of
 * it with a GET, but all name the origin of a POST. */
bool Console::comes_from_own_page(const Request &request) const {
  const std::string_view site = request.header("sec-fetch-site"), origin = request.header("origin");
  if (!site.empty() && site != "same-origin")
    return false;
  if (!options_.origin.empty())
    return origin == options_.origin;
  const std::string own = (options_.is_secure() ? "https://" : "http://") + std::string(request.header("host"));
  return origin == own;
}

/* Another site's name may lead to this address (DNS rebinding), and its pages then count as ours for the browser.
 * With TLS the certificate's names do the same. */
bool Console::is_for_us(const Request &request) const {
  const std::string_view host = request.header("host");
  if (!options_.origin.empty())
    return host == std::string_view(options_.origin).substr(options_.origin.find("://") + 3);
  if (!options_.is_local())
    return true;
  const std::string_view name = host.substr(0, host.rfind(':'));
  return name == "localhost" || name == options_.listen.address || name == "[" + options_.listen.address + "]";
}

/* For the log: in one line. */
static std::string in_one_line(std::string text) {
  for (char &c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = '?';
  return text.substr(0, 200);
}

Response Console::answer(const Request &request) {
  try {
    if (!is_for_us(request))
      return plain_text(421, "The console has another name: see --origin.");
    return route(request);
  } catch (const std::exception &error) { /* out of memory, or an error of this program */
    std::fprintf(stderr, "outbox-console: %s %s: %s\n", request.method.c_str(), in_one_line(request.path).c_str(),
                 in_one_line(error.what()).c_str());
    return plain_text(500, "The console has failed; its log says why.");
  }
}

Response Console::route(const Request &request) {
  if (request.path == "/style.css")
    return {.type = "text/css; charset=utf-8", .body = assets::style, .headers = {}, .may_be_cached = true};
  if (request.path == "/refresh.js")
    return {.type = "text/javascript; charset=utf-8", .body = assets::refresh, .headers = {}, .may_be_cached = true};
  if (request.path == "/favicon.ico")
    return {.status = 204};
  if (request.method == "POST")
    return post(request);
  if (request.path == "/enter")
    return log_in_by_link(request);
  const std::shared_ptr<Session> session = session_of(request);
  if (!session)
    return login_page(request.path == "/" ? 200 : 401, "");
  return page(request, *session);
}

/* The page of an error, in which the navigation stays. */
static Response failed(Page &page, const DatabaseError &error) {
  page.title = error.is_lost() ? "No connection to the database" : "The server has refused";
  const std::string_view kind = std::string_view(error.sqlstate).substr(0, 2);
  const bool may_pass = error.is_lost() || kind == "40" || kind == "53" || kind == "55" || kind == "57";
  page.refreshes = may_pass;
  page.body = html(R"(<p class="told bad" role="alert">{}</p>{}{})", error.what(), hint(error.hint),
                   may_pass                    ? html("<p>The console tries again by itself.</p>")
                   : error.sqlstate == "42501" ? html("<p>docs/security.md has the grants of an operator.</p>")
                                               : Html());
  return {.status = error.is_lost()             ? 503U
                    : error.sqlstate == "42501" ? 403U
                                                : 400U,
          .body = document(page).text(),
          .headers = {}};
}

Response Console::page(const Request &request, Session &session) {
  static const std::map<std::string_view, void (*)(Page &)> pages{
      {"/", show_now},        {"/sink", show_sink},     {"/events", show_events},
      {"/event", show_event}, {"/doctor", show_doctor}, {"/group", confirm_group}};
  const std::lock_guard guard(session.lock);
  Page page(session, request);
  try {
    if (request.path == "/support.json")
      return {.type = "application/json",
              .body = support_file(page),
              .headers = {{"Content-Disposition", "attachment; filename=\"outbox-support.json\""}}};
    const auto found = pages.find(request.path);
    if (found == pages.end()) {
      page.title = "There is no such page";
      return {.status = 404, .body = document(page).text(), .headers = {}};
    }
    found->second(page);
    Response response{.body = document(page).text(), .headers = {{"Server-Timing", page.timing()}}};
    if (!page.is_refresh())
      session.told.clear();
    return response;
  } catch (const DatabaseError &error) {
    return failed(page, error);
  }
}

Response Console::post(const Request &request) {
  if (!comes_from_own_page(request))
    return plain_text(403, "This form is not from a page of the console.");
  if (request.path == "/login")
    return log_in(request);
  const std::shared_ptr<Session> session = session_of(request);
  if (!session)
    return login_page(401, "You are not logged in any more.");
  if (!is_same(request.posts("form_token"), session->form_token))
    return plain_text(403, "This form is of an earlier session: open the page again.");
  if (request.path == "/logout") {
    sessions_.end(session->name);
    Response response = see_other("/");
    response.headers.emplace_back("Set-Cookie", cookie(cookie_name(request), "", options_.is_secure()));
    response.headers.emplace_back("Clear-Site-Data", "\"cache\"");
    return response;
  }
  std::unique_lock held(session->lock);
  Page page(*session, request);
  try {
    if (session->is_read_only)
      throw DatabaseError("the console was started with --read-only", "25006", "");
    if (request.path == "/probe")
      return probe(session, std::move(held), request);
    std::string next = act(page);
    if (!next.empty())
      return see_other(std::move(next));
    page.title = "There is no such action";
    return {.status = 404, .body = document(page).text(), .headers = {}};
  } catch (const DatabaseError &error) {
    if (!held)
      held = std::unique_lock(session->lock);
    return failed(page, error);
  }
}

/* Why nobody is logged in. */
struct Refused : std::runtime_error {
  Refused(unsigned status_, const std::string &text) : std::runtime_error(text), status(status_) {}
  unsigned status;
};

/* A new name at each login: one that somebody knows beforehand leads nowhere. Throws Refused, DatabaseError. */
std::shared_ptr<Session> Console::open_session(const Login &login, bool may_be_superuser) {
  auto connection = std::make_unique<Connection>(login);
  const Rows rows = connection->run(Sql(R"(
SELECT current_user AS role, current_database() AS database, current_setting('is_superuser') AS is_superuser,
       (SELECT extversion FROM pg_extension WHERE extname = 'outbox') AS version)"));
  if (rows.at(0, "is_superuser") == "on" && !may_be_superuser)
    throw Refused(403, "A superuser may not log in here: take a role with the rights of an operator, or start the "
                       "console with --allow-superuser.");
  if (rows.is_null(0, "version"))
    throw Refused(403, "The database " + std::string(rows.at(0, "database")) +
                           " has no extension outbox: CREATE EXTENSION outbox makes it.");
  auto session = sessions_.add();
  if (!session)
    throw Refused(503, "Too many people are logged in: try again later.");
  session->role = rows.at(0, "role");
  session->database = rows.at(0, "database");
  session->is_read_only = login.is_read_only;
  session->connection = std::move(connection);
  return session;
}

Response Console::welcome(const Request &request, const Session &session) const {
  Response response = see_other("/");
  response.headers.emplace_back("Set-Cookie", cookie(cookie_name(request), session.name, options_.is_secure()));
  return response;
}

/* Whoever guesses learns neither whether the role exists nor how the server's rules are: the server's log tells
 * these. A try counts before it is made, so that many at once are no more than one after the other. */
Response Console::log_in(const Request &request) {
  if (!options_.is_service || !options_.trusted_header.empty())
    return login_page(404, "");
  Login login{.conninfo = options_.conninfo,
              .user = std::string(request.posts("role")),
              .password = std::string(request.posts("password")),
              .role = {},
              .is_read_only = options_.is_read_only};
  if (login.user.empty() || login.password.empty())
    return login_page(400, "Name a role and its password.");
  /* All who come through a proxy have its address. */
  const std::string address = options_.is_behind_proxy() ? std::string() : request.peer;
  {
    const std::lock_guard guard(lock_);
    const auto wait = std::max(of_address_.wait(address, Clock::now()), of_role_.wait(login.user, Clock::now()));
    if (wait.count() > 0 || logins_ >= most_logins) {
      wipe(login.password);
      const std::string seconds = std::to_string(std::max<int64_t>(wait.count(), 1));
      Response response = login_page(429, "Too many logins have failed: wait " + seconds + " s.");
      response.headers.emplace_back("Retry-After", seconds);
      return response;
    }
    logins_++;
    if (!address.empty())
      of_address_.failed(address, Clock::now());
    of_role_.failed(login.user, Clock::now());
  }
  Response response;
  try {
    response = welcome(request, *open_session(login, options_.allows_superuser));
    const std::lock_guard guard(lock_);
    of_address_.succeeded(address);
    of_role_.succeeded(login.user);
  } catch (const Refused &refused) {
    response = login_page(refused.status, refused.what());
  } catch (const DatabaseError &error) {
    std::fprintf(stderr, "outbox-console: a login from %s has failed\n", request.peer.c_str());
    std::this_thread::sleep_for(std::chrono::seconds(1)); /* also through a proxy, with ever new roles */
    response = login_page(403, "The database has not let this role in.");
  }
  wipe(login.password);
  const std::lock_guard guard(lock_);
  logins_--;
  return response;
}

std::string Console::new_link() {
  const std::lock_guard guard(lock_);
  token_ = random_name();
  return "/enter?token=" + token_;
}

Response Console::log_in_by_link(const Request &request) {
  {
    const std::lock_guard guard(lock_);
    if (options_.is_service || token_.empty() || !is_same(request.asks("token"), token_))
      return login_page(
          403, options_.is_service ? "" : "This link was used already, or is not the last one that was printed.");
    token_.clear();
  }
  try {
    const Login own{.conninfo = options_.conninfo, .is_read_only = options_.is_read_only};
    return welcome(request, *open_session(own, true));
  } catch (const Refused &refused) {
    return login_page(refused.status, refused.what());
  } catch (const DatabaseError &error) {
    return login_page(503, std::string(error.what()) + " (press Enter in the terminal for another link)");
  }
}

std::shared_ptr<Session> Console::session_of_header(const Request &request) {
  const std::string role(request.header(options_.trusted_header));
  if (request.peer != options_.trusted_proxy || role.empty())
    return nullptr;
  {
    const std::lock_guard guard(lock_);
    if (const auto known = by_header_.find(role); known != by_header_.end())
      if (auto session = sessions_.find(known->second))
        return session;
  }
  try {
    const Login theirs{.conninfo = options_.conninfo, .role = role, .is_read_only = options_.is_read_only};
    auto session = open_session(theirs, options_.allows_superuser);
    const std::lock_guard guard(lock_);
    by_header_[role] = session->name;
    return session;
  } catch (const Refused &refused) {
    std::fprintf(stderr, "outbox-console: the role that the proxy names: %s\n", refused.what());
  } catch (const DatabaseError &error) {
    std::fprintf(stderr, "outbox-console: the role that the proxy names: %s\n", in_one_line(error.what()).c_str());
  }
  return nullptr;
}

void Console::tick() {
  sessions_.end_idle(Clock::now());
  const std::lock_guard guard(lock_);
  of_address_.forget(Clock::now());
  of_role_.forget(Clock::now());
}

}  // namespace console
