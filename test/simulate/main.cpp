/*
 * main.cpp: simulate [--seeds N] [--seed S] [--level L] [--seconds T] [--cpu-seconds T] [--quiet] [--long] [--go-on]:
 * worlds with the seeds S, S+1, … The first failure prints its seed and the history of the events concerned, after
 * the script was made as short as possible; with --go-on all failures print their seeds.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>

#include "test/simulate/world.h"

using namespace simulate;

struct Outcome {
  bool broken = false;
  std::string what;
  std::vector<int64_t> positions;
  std::vector<std::pair<int64_t, std::string>> history;
  int64_t events = 0, deliveries = 0, duplicates = 0;
};

static Outcome run(const Script &script, int level, bool verbose) {
  Outcome outcome;
  World world(script, level, verbose);
  try {
    world.run();
  } catch (const Broken &broken) {
    outcome.broken = true;
    outcome.what = broken.what();
    outcome.positions = broken.positions;
  }
  outcome.events = world.events();
  outcome.deliveries = world.truth().deliveries();
  outcome.duplicates = world.truth().duplicates();
  outcome.history = world.history();
  return outcome;
}

/* "order", "lost", "stuck": what is wrong must stay the same while the script is made shorter. */
static std::string kind_of(const std::string &what) {
  return what.substr(0, what.find_first_of(":,"));
}

/* Leaves out halves, quarters, … and single actions, while the world still breaks in this way. */
static Script shrink(Script script, int level, const std::string &kind) {
  for (size_t piece = script.actions.size() / 2; piece > 0; piece = piece == 1 ? 0 : (piece + 1) / 2) {
    bool again = true;
    while (again) {
      again = false;
      for (size_t from = 0; from < script.actions.size();) {
        Script shorter = script;
        const size_t to = std::min(from + piece, shorter.actions.size());
        shorter.actions.erase(shorter.actions.begin() + static_cast<std::ptrdiff_t>(from),
                              shorter.actions.begin() + static_cast<std::ptrdiff_t>(to));
        const Outcome outcome = run(shorter, level, false);
        if (outcome.broken && kind_of(outcome.what) == kind) {
          script = shorter;
          again = piece == 1;
        } else {
          from += piece;
        }
      }
    }
    if (piece == 1)
      break;
  }
  return script;
}

static void report(const Script &script, int level, const Outcome &first, bool is_short) {
  const Script shorter = is_short ? shrink(script, level, kind_of(first.what)) : script;
  const Outcome outcome = run(shorter, level, true);
  printf("FAILED seed %llu, level %d: %s\n", static_cast<unsigned long long>(script.seed), level, first.what.c_str());
  printf("%zu of %zu actions remain; %lld events; %s\n", shorter.actions.size(), script.actions.size(),
         static_cast<long long>(outcome.events), outcome.what.c_str());
  for (int64_t position : outcome.positions)
    printf("concerned: position %lld\n", static_cast<long long>(position));
  for (const auto &[position, line] : outcome.history)
    if (position == 0 || outcome.positions.empty() || getenv("ALL") != nullptr ||
        std::find(outcome.positions.begin(), outcome.positions.end(), position) != outcome.positions.end())
      printf("%s%s%s\n", line.c_str(), position ? "  # " : "", position ? std::to_string(position).c_str() : "");
  fflush(stdout);
}

int main(int argc, char **argv) {
  uint64_t seeds = UINT64_MAX, seed = std::random_device{}();
  double seconds = 0, cpu_seconds = 0;
  int level = 3;
  bool quiet = false, is_short = true, go_on = false;
  uint64_t failed = 0;
  for (int i = 1; i < argc; i++) {
    const bool has_value = i + 1 < argc;
    if (strcmp(argv[i], "--seeds") == 0 && has_value)
      seeds = strtoull(argv[++i], nullptr, 10);
    else if (strcmp(argv[i], "--seed") == 0 && has_value)
      seed = strtoull(argv[++i], nullptr, 10);
    else if (strcmp(argv[i], "--level") == 0 && has_value)
      level = atoi(argv[++i]);
    else if (strcmp(argv[i], "--seconds") == 0 && has_value)
      seconds = atof(argv[++i]);
    else if (strcmp(argv[i], "--cpu-seconds") == 0 && has_value)
      cpu_seconds = atof(argv[++i]);
    else if (strcmp(argv[i], "--quiet") == 0)
      quiet = true;
    else if (strcmp(argv[i], "--long") == 0)
      is_short = false;
    else if (strcmp(argv[i], "--go-on") == 0)
      go_on = true;
    else
      return fprintf(
                 stderr,
                 "usage: simulate [--seeds N] [--seed S] [--level 1..3] [--seconds T] [--cpu-seconds T] [--quiet] "
                 "[--long] [--go-on]\n"),
             2;
  }
  if (seeds == UINT64_MAX && seconds == 0 && cpu_seconds == 0)
    seconds = 180;
  const auto began = std::chrono::steady_clock::now();
  const auto elapsed = [&]() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  const auto cpu = [began_cpu = clock()]() { return static_cast<double>(clock() - began_cpu) / CLOCKS_PER_SEC; };
  const auto is_over = [&]() {
    return (seconds > 0 && elapsed() >= seconds) || (cpu_seconds > 0 && cpu() >= cpu_seconds);
  };
  int64_t events = 0, deliveries = 0, duplicates = 0;
  uint64_t done = 0;
  printf("simulate: seeds from %llu, level %d\n", static_cast<unsigned long long>(seed), level);
  fflush(stdout);
  for (; done < seeds && !is_over(); done++) {
    const Script script = make_script(seed + done, level);
    const Outcome outcome = run(script, level, false);
    if (outcome.broken && go_on) {
      failed++;
      printf("seed %llu: %s\n", static_cast<unsigned long long>(seed + done), outcome.what.c_str());
      fflush(stdout);
    } else if (outcome.broken) {
      printf("found after %.1f s and %llu worlds: seed %llu: %s\n", elapsed(), static_cast<unsigned long long>(done),
             static_cast<unsigned long long>(seed + done), outcome.what.c_str());
      printf("to repeat it: SEED=%llu SEEDS=1 make simulate\n", static_cast<unsigned long long>(seed + done));
      if (!quiet)
        report(script, level, outcome, is_short);
      return 1;
    }
    events += outcome.events;
    deliveries += outcome.deliveries;
    duplicates += outcome.duplicates;
  }
  if (failed > 0)
    printf("%llu worlds failed\n", static_cast<unsigned long long>(failed));
  printf("%llu worlds passed: %lld events, %lld deliveries, %lld of them duplicates after faults; %.1f s, %.1f s of "
         "CPU, "
         "%.0f events/s of CPU\n",
         static_cast<unsigned long long>(done - failed), static_cast<long long>(events),
         static_cast<long long>(deliveries), static_cast<long long>(duplicates), elapsed(), cpu(),
         static_cast<double>(events) / std::max(cpu(), 0.001));
  return failed > 0;
}
