/*
 * refused_subjects.h: the subjects that no stream stores at present: there is none for them, it is full, or the user
 * may not publish to them. Nobody needs to be asked, so any right to publish suffices: one message tries a subject
 * when its pause is over, and the others wait for its answer.
 *
 *   unknown -> refused (0.5 s, 1 s, ... 30 s) -> tried -> refused
 *                                                tried -> unknown, with all other subjects
 *
 * Time is a parameter. Used by one thread.
 */
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

namespace outbox::nats {

class RefusedSubjects {
public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  static constexpr Duration first_pause{500};
  static constexpr Duration longest_pause{30'000};
  /* The distance between the due times of two deferred events, so that a long backlog is not rewritten again and
   * again. */
  static constexpr Duration wait_spacing{1};
  /* A subject without events for this long is forgotten. */
  static constexpr Duration forget_after{2 * longest_pause};
  /* Where each key has a subject of its own, the rest waits for the longest pause. */
  static constexpr size_t most_remembered = 1000;

  /* Try: this message tries the subject; call refused() or stored() when it has ended. Wait: another one does. */
  enum class Answer { Send, Try, Wait, Refused };
  Answer look_up(const std::string &subject, Time now);
  /* `tried`: by the message that was to try it. Returns true if it was not refused before. */
  bool refused(const std::string &subject, const std::string &why, bool tried, Time now);
  /* Returns true if it was refused before. Then nothing is known any more about the others either: what was wrong
   * with one is often over for all. */
  bool stored(const std::string &subject, Time now);
  /* After which time an event of a refused subject may be sent again. */
  Duration wait(const std::string &subject, Time now);
  /* Why the subject was refused last; empty if that is not remembered. */
  std::string why(const std::string &subject) const;
  /* The message that was to try the subject has ended without an answer about it. */
  void forget_try(const std::string &subject);
  void forget_tries();
  bool any() const { return !subjects_.empty(); }

  /* Returns true if a subject was forgotten. */
  bool forget_unused(Time now);
  /* When to call forget_unused(); Time::max() = never. */
  Time look_at() const { return any() ? look_at_ : Time::max(); }
  /* The problem of all in one text; empty if there is none. */
  std::string summary() const;

private:
  struct Subject {
    std::string why;
    bool tried = false;
    Duration pause{0};
    Time until{}; /* it is not tried before */
    Time used{};
  };
  std::map<std::string, Subject, std::less<>> subjects_;
  Duration last_pause_{0}; /* of a subject that was stored again at stored_at_ */
  Time stored_at_{}, last_wait_{}, look_at_{};
};

}  // namespace outbox::nats
