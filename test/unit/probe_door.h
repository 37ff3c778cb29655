/* probe_door.h: runs a probe through the delivery API and collects its steps. */
#pragma once

#include <algorithm>
#include <filesystem>

#include "door.h"

namespace door {

/* The number of this process's threads. */
inline size_t threads() {
  size_t n = 0;
  for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator("/proc/self/task"))
    n++;
  return n;
}

class Probe {
public:
  Probe(Engine &engine, const char *kind, const OptionList &options, const OptionList &mapping = {},
        int timeout_ms = 10'000, const char *name = "main", bool send = false)
      : engine_(engine),
        probe_(border::probe_start(engine.raw(), name, kind, options, mapping, timeout_ms, send, &error)) {
    EXPECT_NE(probe_, nullptr) << error.message;
  }
  ~Probe() { forget(); }
  Probe(const Probe &) = delete;

  void forget() { ob_release(std::exchange(probe_, nullptr)); }

  /* Waits on the engine's descriptor until the probe has ended. */
  bool end() {
    return engine_.until([this] {
      ob_probe_step found[32];
      size_t n;
      if (!probe_->kind->probe_poll(probe_, found, std::size(found), &n))
        return false;
      steps.assign(found, found + n);
      return true;
    });
  }

  /* The step of this name, or a failed step without a name. */
  const ob_probe_step &step(const char *name) const {
    static const ob_probe_step none{};
    for (const ob_probe_step &step : steps)
      if (std::string(step.name) == name)
        return step;
    ADD_FAILURE() << "no step \"" << name << "\" in\n" << text();
    return none;
  }
  bool ok() const {
    return !steps.empty() && std::all_of(steps.begin(), steps.end(), [](auto &step) { return step.ok; });
  }
  std::string text() const {
    std::string all;
    for (const ob_probe_step &step : steps)
      all += std::string(step.name) + (step.ok ? " ok: " : " FAILED: ") + step.message + "\n    " + step.hint + "\n";
    return all;
  }

  ob_error error{};
  std::vector<ob_probe_step> steps;

private:
  Engine &engine_;
  ob_probe *probe_;
};

/* With an engine of its own, and ended. */
struct EndedProbe : private Engine, Probe {
  EndedProbe(const char *kind, const OptionList &options, int timeout_ms = 10'000, const char *name = "main",
             bool send = false)
      : Probe(static_cast<Engine &>(*this), kind, options, {}, timeout_ms, name, send) {
    EXPECT_TRUE(end());
  }
};

}  // namespace door
