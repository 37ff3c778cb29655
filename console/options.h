/* options.h: the command line. */
#pragma once

#include <string>

#include "console/server/server.h"

namespace console {

struct Options {
  std::string conninfo; /* as psql takes it */
  Listen listen;
  bool is_service = false; /* --listen: a login form; without it, a link with a token for the caller */
  std::string origin;      /* --origin: how browsers reach it through a proxy */
  std::string trusted_header, trusted_proxy;
  bool is_read_only = false, allows_superuser = false;
  int idle_seconds = 1800; /* --idle: a session ends after so long without a page */

  bool is_behind_proxy() const { return !origin.empty() || !trusted_proxy.empty(); }
  /* Browsers on this machine alone reach it. */
  bool is_local() const { return listen.address.starts_with("127.") || listen.address == "::1"; }
  bool is_secure() const { return !listen.certificate.empty() || origin.starts_with("https://"); }
};

/* Ends the program with a message if they make no sense, or after --help and --version. */
Options read_options(int argc, char **argv);

}  // namespace console
