/* options.cpp: reads the command line, and refuses what would not be safe. */
#include "options.h"

#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace console {

static const char help[] = R"(outbox-console: a page to look at a database's outbox, and to act on it.

  outbox-console [OPTION]... [CONNINFO]

CONNINFO is a database's name or libpq's connection string, as for psql: outbox-console "host=db dbname=shop".
Without --listen it logs in as you, with libpq's rules (peer, ~/.pgpass, services), and prints a link for you alone.

      --port PORT              where your browser finds it, on this machine (default: any free port)
      --read-only              shows, and changes nothing
      --idle SECONDS           a session ends after so long without a page (default: 1800)
As a service, with a form in which everybody logs in as a role of the database:
      --listen ADDRESS:PORT    where it listens; beyond this machine only with TLS or --origin
      --tls-certificate FILE   PEM, with the certificates between it and the authority
      --tls-key FILE           PEM
      --origin URL             what browsers call it, if a proxy is in front of it: https://outbox.example.com
      --allow-superuser        lets superusers log in
      --trusted-header NAME    the role is in this header of the proxy; the login is CONNINFO's, then SET ROLE
      --trusted-proxy ADDRESS  of which that header is believed
      --help, --version
docs/console.md has examples.
)";

[[noreturn]] static void refuse(const std::string &text, const char *hint = nullptr) {
  std::fprintf(stderr, "outbox-console: %s\n", text.c_str());
  if (hint)
    std::fprintf(stderr, "HINT: %s\n", hint);
  std::exit(2);
}

static std::string read_file(const char *path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty())
    refuse(std::string("cannot read ") + path);
  return text;
}

static int read_number(const std::string &text, int most, const std::string &is_no) {
  char *end = nullptr;
  const long number = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || number < 1 || number > most)
    refuse("\"" + text + "\" is no " + is_no);
  return static_cast<int>(number);
}

static uint16_t read_port(const std::string &text) {
  return static_cast<uint16_t>(read_number(text, 65535, "port"));
}

static void read_listen(const std::string &text, Listen &listen) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos)
    refuse("--listen takes ADDRESS:PORT", "--listen 127.0.0.1:8300");
  listen.address = text.substr(0, colon);
  if (listen.address.starts_with('[') && listen.address.ends_with(']'))
    listen.address = listen.address.substr(1, listen.address.size() - 2);
  listen.port = read_port(text.substr(colon + 1));
}

static void check(const Options &options) {
  if (options.listen.certificate.empty() != options.listen.key.empty())
    refuse("--tls-certificate and --tls-key go together");
  if (options.trusted_header.empty() != options.trusted_proxy.empty())
    refuse("--trusted-header and --trusted-proxy go together",
           "without the proxy's address everybody could send the header");
  if (!options.trusted_header.empty() && !options.is_service)
    refuse("--trusted-header needs --listen");
  if (!options.origin.empty() && !options.origin.starts_with("https://") &&
      !options.origin.starts_with("http://localhost:") && !options.origin.starts_with("http://127.0.0.1:"))
    refuse("--origin is neither https:// nor this machine: passwords would cross the network in clear text",
           "--origin https://outbox.example.com");
  if (options.is_service && !options.is_local() && options.listen.certificate.empty() && options.origin.empty())
    refuse("passwords would cross the network in clear text",
           "use --tls-certificate and --tls-key, or --origin https://... if a proxy with TLS is in front of it");
}

Options read_options(int argc, char **argv) {
  enum {
    Port = 256,
    ReadOnly,
    Idle,
    ListenOn,
    Certificate,
    Key,
    Origin,
    AllowSuperuser,
    Header,
    Proxy,
    Help,
    Version
  };
  static const option known[] = {{"port", required_argument, nullptr, Port},
                                 {"read-only", no_argument, nullptr, ReadOnly},
                                 {"idle", required_argument, nullptr, Idle},
                                 {"listen", required_argument, nullptr, ListenOn},
                                 {"tls-certificate", required_argument, nullptr, Certificate},
                                 {"tls-key", required_argument, nullptr, Key},
                                 {"origin", required_argument, nullptr, Origin},
                                 {"allow-superuser", no_argument, nullptr, AllowSuperuser},
                                 {"trusted-header", required_argument, nullptr, Header},
                                 {"trusted-proxy", required_argument, nullptr, Proxy},
                                 {"help", no_argument, nullptr, Help},
                                 {"version", no_argument, nullptr, Version},
                                 {}};
  Options options;
  for (int found = 0; (found = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    switch (found) {
    case Port:
      options.listen.port = read_port(optarg);
      break;
    case Idle:
      options.idle_seconds = read_number(optarg, 86400, "number of seconds from 1 to 86400");
      break;
    case ReadOnly:
      options.is_read_only = true;
      break;
    case ListenOn:
      options.is_service = true;
      read_listen(optarg, options.listen);
      break;
    case Certificate:
      options.listen.certificate = read_file(optarg);
      break;
    case Key:
      options.listen.key = read_file(optarg);
      break;
    case Origin:
      options.origin = optarg;
      break;
    case AllowSuperuser:
      options.allows_superuser = true;
      break;
    case Header:
      options.trusted_header = optarg;
      break;
    case Proxy:
      options.trusted_proxy = optarg;
      break;
    case Help:
      std::fputs(help, stdout);
      std::exit(0);
    case Version:
      std::puts("outbox-console " OUTBOX_VERSION);
      std::exit(0);
    default:
      std::fputs("outbox-console --help lists the options\n", stderr);
      std::exit(2);
    }
  }
  if (optind < argc)
    options.conninfo = argv[optind++];
  if (optind < argc)
    refuse(std::string("what is ") + argv[optind] + "?", "put a connection string of several words into quotes");
  while (options.origin.ends_with('/'))
    options.origin.pop_back();
  for (char &c : options.trusted_header)
    if (c >= 'A' && c <= 'Z')
      c = static_cast<char>(c + 32);
  check(options);
  return options;
}

}  // namespace console
