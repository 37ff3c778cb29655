/* main.cpp: starts the program, prints its address, and ends it at a signal. */
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "console/console.h"

using namespace console;

/* Passwords pass through this process: no core file, and no debugger of the same user. */
static void keep_memory_private() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_DUMPABLE, 0);
}

/* Signals come through a descriptor, and none of them interrupts a thread. */
static int signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &set, SFD_CLOEXEC);
}

static std::string own_url(const Options &options, const Server &server) {
  const bool is_v6 = options.listen.address.find(':') != std::string::npos;
  return (options.listen.certificate.empty() ? "http://" : "https://") +
         (is_v6 ? "[" + options.listen.address + "]" : options.listen.address) + ":" + std::to_string(server.port());
}

int main(int argc, char **argv) {
  keep_memory_private();
  const Options options = read_options(argc, argv);
  const int ended = signals();
  try {
    Console console(options);
    const Server server(
        options.listen, options.is_behind_proxy(), [&](const Request &request) { return console.answer(request); },
        [&] { console.tick(); });
    const std::string url = own_url(options, server);
    const bool prints_links = !options.is_service;
    std::printf("%s%s\n", url.c_str(), prints_links ? console.new_link().c_str() : "/");
    std::fflush(stdout);
    pollfd waits[] = {{ended, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    for (nfds_t n = prints_links && isatty(STDIN_FILENO) ? 2 : 1;
         poll(waits, n, -1) >= 0 && (waits[0].revents & POLLIN) == 0;) {
      char line[256];
      if (n == 2 && waits[1].revents != 0) {
        if (read(STDIN_FILENO, line, sizeof(line)) <= 0)
          n = 1;
        else
          std::printf("%s%s\n", url.c_str(), console.new_link().c_str());
        std::fflush(stdout);
      }
    }
  } catch (const std::exception &error) {
    std::fprintf(stderr, "outbox-console: %s\n", error.what());
    return 1;
  }
  return 0;
}
