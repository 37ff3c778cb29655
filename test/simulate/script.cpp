/* script.cpp: draws a world's actions: most are transactions, and each world has a few kinds of faults only, so that
 * a failure has few causes. */
#include "test/simulate/script.h"

#include <algorithm>

#include "test/simulate/random.h"

namespace simulate {

const char *name_of(Action action) {
  static const char *const names[] = {"enqueue", "lock",    "change",     "redrive",     "outage",
                                      "lose",    "pause",   "alter",      "kill worker", "kill server",
                                      "clock",   "workers", "fail round", "bad row",     "bad sink"};
  return names[static_cast<int>(action)];
}

Script make_script(uint64_t seed, int level) {
  Random random(mix(seed, 1));
  Script script = {seed, {}};
  const int n = static_cast<int>(random.between(20, 120));
  const int64_t length_us = random.between(100, 3000) * 1000;
  const int faults = level == 1 ? 0 : static_cast<int>(random.below(random.percent(30) ? 120 : 40));
  std::vector<Action> kinds;

  for (int i = 1; i < static_cast<int>(Action::LAST); i++)
    if (random.percent(35) && (level >= 3 || static_cast<Action>(i) != Action::WORKERS))
      kinds.push_back(static_cast<Action>(i));
  for (int i = 0; i < n; i++)
    script.actions.push_back({random.below(length_us), Action::ENQUEUE, random.next()});
  for (int i = 0; i < faults && !kinds.empty(); i++)
    script.actions.push_back(
        {random.below(length_us * 5 / 4), kinds[random.below(static_cast<int64_t>(kinds.size()))], random.next()});
  std::stable_sort(script.actions.begin(), script.actions.end(),
                   [](const ScriptAction &a, const ScriptAction &b) { return a.at_us < b.at_us; });
  return script;
}

}  // namespace simulate
