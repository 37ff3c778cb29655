/*
 * main.cpp: runs each scenario once per allocation and per call that it reaches, each time in a process of its own,
 * in which that one fails. A run has failed if a promise is broken, memory leaks, a sanitizer reports something, the
 * process crashes, or it does not end within 90 s or 30 s of CPU time. Names n, what failed, and the stack.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <cerrno>
#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scenario.h"

namespace calls {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto wall_bound = std::chrono::seconds(90);
constexpr rlim_t cpu_bound_s = 30;
constexpr size_t at_once = 2;

const char *name_of(Kind kind) {
  return kind == Kind::Allocation ? "allocation" : "call";
}

/* One run of a scenario in a process of its own. */
struct Run {
  const Scenario *scenario;
  Kind kind;
  long n;
  Injection *injection = nullptr; /* shared with the process */
  pid_t pid = -1;
  int output = -1;
  Clock::time_point began{};
  std::string problem; /* empty: it passed */

  Run(const Scenario *scenario_, Kind kind_, long n_) : scenario(scenario_), kind(kind_), n(n_) {}

  void start();
  bool ended();
  void report() const;
  void release() {
    munmap(injection, sizeof(Injection));
    close(output);
  }

private:
  [[noreturn]] void in_child();
};

void Run::in_child() {
  dup2(output, STDERR_FILENO);
  dup2(output, STDOUT_FILENO);
  rlimit cpu{cpu_bound_s, cpu_bound_s};
  setrlimit(RLIMIT_CPU, &cpu);
  begin(injection);
  scenario->run();
  end();
  /* librdkafka leaks when a thread does not start, and our configuration of it when it refuses (kafka_config.cpp). */
  for (const char *leaks : {"thrd_create", "rd_kafka_new"})
    if (strcmp(injection->name, leaks) == 0)
      _exit(0);
  _exit(__lsan_do_recoverable_leak_check() != 0 ? 4 : 0);
}

void Run::start() {
  void *shared = mmap(nullptr, sizeof(Injection), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  output = memfd_create("output", MFD_CLOEXEC);
  if (shared == MAP_FAILED || output < 0) {
    perror("test/calls");
    exit(2);
  }
  injection = new (shared) Injection;
  injection->kind = kind;
  injection->n = n;
  began = Clock::now();
  pid = fork();
  if (pid == 0)
    in_child();
  if (pid < 0) {
    perror("fork");
    exit(2);
  }
}

/* True once the process has ended; `problem` then says how. */
bool Run::ended() {
  int status;
  if (waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() - began < wall_bound)
      return false;
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    problem = "it hangs";
    return true;
  }
  if (WIFSIGNALED(status))
    problem = WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL
                  ? "it uses too much CPU time"
                  : std::string("it crashed: ") + strsignal(WTERMSIG(status));
  else if (int code = WEXITSTATUS(status); code != 0)
    problem = code == 3 ? "a promise is broken" : code == 4 ? "memory leaks" : "a sanitizer ended it";
  return true;
}

void Run::report() const {
  const bool passed = problem.empty();
  printf("%s %s, %s %ld (%s): %s; again: make test-calls SCENARIO=%s N=%s:%ld\n", passed ? "passed" : "FAILED",
         scenario->name, name_of(kind), n, injection->happened ? injection->name : "nothing failed",
         passed ? "no promise is broken" : problem.c_str(), scenario->name, name_of(kind), n);
  if (injection->happened)
    puts("what failed was called here:");
  for (int i = 2; injection->happened && i < injection->n_frames; i++) {
    char text[2000];
    __sanitizer_symbolize_pc(static_cast<char *>(injection->frames[i]) - 1, "%f %s:%l", text, sizeof text);
    printf("  %s\n", text);
  }
  char bytes[20000];
  ssize_t n_read = pread(output, bytes, sizeof bytes, 0);
  printf("its output:\n%.*s\n", static_cast<int>(std::max<ssize_t>(n_read, 0)), bytes);
  fflush(stdout);
}

/* Runs processes, `at_once` side by side. */
class OpenSink {
public:
  long runs = 0, failures = 0;
  std::map<std::string, long> reached; /* what failed, and how often */

  void start(Run run) {
    while (running_.size() >= at_once)
      take_ended();
    run.start();
    running_.push_back(std::move(run));
  }
  void finish() {
    while (!running_.empty())
      take_ended();
  }
  /* The smallest n of this kind that a run did not reach; none: all were reached. */
  std::optional<long> not_reached(const Scenario *scenario, Kind kind) const {
    auto at = not_reached_.find({scenario, kind});
    return at == not_reached_.end() ? std::nullopt : std::optional(at->second);
  }

private:
  void take_ended() {
    for (auto run = running_.begin(); run != running_.end(); ++run)
      if (run->ended()) {
        runs++;
        if (run->injection->happened)
          reached[run->injection->name]++;
        else if (auto [at, added] = not_reached_.try_emplace({run->scenario, run->kind}, run->n); !added)
          at->second = std::min(at->second, run->n);
        if (!run->problem.empty()) {
          failures++;
          run->report();
        }
        run->release();
        running_.erase(run);
        return;
      }
    usleep(500);
  }

  std::vector<Run> running_;
  std::map<std::pair<const Scenario *, Kind>, long> not_reached_;
};

/* How many allocations and calls the scenario reaches when nothing fails. */
struct Reach {
  const Scenario *scenario;
  long allocations, calls;
  long of(Kind kind) const { return kind == Kind::Allocation ? allocations : calls; }
};

std::optional<Reach> measure(const Scenario *scenario) {
  Run run(scenario, Kind::None, 0);
  run.start();
  while (!run.ended())
    usleep(500);
  Reach reach{scenario, run.injection->allocations, run.injection->calls};
  bool good = run.problem.empty();
  if (!good)
    run.report();
  run.release();
  return good ? std::optional(reach) : std::nullopt;
}

void run_all(OpenSink &open_sink, const Reach &reach) {
  for (Kind kind : {Kind::Allocation, Kind::Call}) {
    /* A run reaches more than the measured one did, or fewer: threads take turns as they like. */
    long most = 2 * reach.of(kind) + 20;
    for (long n = 1; n <= most && (n <= reach.of(kind) || !open_sink.not_reached(reach.scenario, kind)); n++)
      open_sink.start(Run(reach.scenario, kind, n));
    open_sink.finish();
  }
}

/* The seed chooses places between a scenario's beginning and its end: a machine whose threads take other turns
 * reaches a few more or less, and tries almost the same ones. */
void run_sample(OpenSink &open_sink, const std::vector<Reach> &reaches, uint64_t seed, long runs) {
  std::mt19937_64 random(seed);
  constexpr uint64_t places = 1'000'000;
  for (long started = 0; started < runs;)
    for (const Reach &reach : reaches)
      for (Kind kind : {Kind::Allocation, Kind::Call}) {
        const uint64_t place = random() % places;
        if (reach.of(kind) > 0 && started++ < runs)
          open_sink.start(Run(reach.scenario, kind,
                              1 + static_cast<long>(place * static_cast<uint64_t>(reach.of(kind)) / places)));
      }
  open_sink.finish();
}

int run_one(const Scenario *scenario, const std::string &which) {
  size_t colon = which.find(':');
  Run run(scenario, which.starts_with("a") ? Kind::Allocation : Kind::Call, atol(which.c_str() + colon + 1));
  run.start();
  while (!run.ended())
    usleep(500);
  run.report();
  return run.problem.empty() ? 0 : 1;
}

}  // namespace
}  // namespace calls

using namespace calls;

/* calls [--scenario NAME] [--n allocation:N | call:N] [--sample RUNS SEED] */
int main(int argc, char **argv) {
  std::string name, which;
  long sample = 0;
  uint64_t seed = 0;
  for (int i = 1; i < argc; i++) {
    const std::string argument = argv[i];
    if (argument == "--scenario" && i + 1 < argc) {
      name = argv[++i];
    } else if (argument == "--n" && i + 1 < argc) {
      which = argv[++i];
    } else if (argument == "--sample" && i + 2 < argc) {
      sample = atol(argv[++i]);
      seed = strtoull(argv[++i], nullptr, 10);
    } else {
      fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  setvbuf(stdout, nullptr, _IOLBF, 0);
  ob_set_networks("127.0.0.0/8, ::1"); /* where the peers are: refused to a sink whose owner is no superuser */
  std::vector<Reach> reaches;
  long broken = 0;
  for (const Scenario *scenario : Scenario::all()) {
    if (!name.empty() && name != scenario->name)
      continue;
    if (!which.empty())
      return run_one(scenario, which);
    if (auto reach = measure(scenario))
      reaches.push_back(*reach);
    else
      broken++;
  }
  if (reaches.empty() && broken == 0) {
    fprintf(stderr, "there is no scenario \"%s\"\n", name.c_str());
    return 2;
  }
  auto began = Clock::now();
  OpenSink open_sink;
  if (sample > 0) {
    printf("a sample of %ld runs by seed %llu\n", sample, static_cast<unsigned long long>(seed));
    run_sample(open_sink, reaches, seed, sample);
  } else {
    for (const Reach &reach : reaches) {
      long runs = open_sink.runs, failures = open_sink.failures;
      run_all(open_sink, reach);
      printf("%-16s %6ld allocations %6ld calls %6ld runs %4ld failed\n", reach.scenario->name, reach.allocations,
             reach.calls, open_sink.runs - runs, open_sink.failures - failures);
    }
  }
  for (const auto &[what, n] : open_sink.reached)
    printf("  %-24s failed in %6ld runs\n", what.c_str(), n);
  printf("%ld runs, %ld failed, in %.0f s\n", open_sink.runs + broken, open_sink.failures + broken,
         std::chrono::duration<double>(Clock::now() - began).count());
  return open_sink.failures + broken > 0;
}
