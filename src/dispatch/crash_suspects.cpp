/* crash_suspects.cpp: counts points. Guilty objects stay guilty when the suspects are acquitted. */
#include "dispatch/crash_suspects.h"

#include <algorithm>

namespace dispatch {

static constexpr int GUILTY_POINTS = 4;
static constexpr int PROOF = 2, WITHOUT_TRACE = 1;
/* So many guilty events mean that their sink crashes at any. */
static constexpr int GUILTY_EVENTS = 2;
static constexpr int TRIAL_MS = 500, MAX_DOUBLINGS = 4;

static bool is_same(const Work &a, const Work &b) noexcept {
  if (a.position != b.position || a.row != b.row || a.is_read != b.is_read)
    return false;
  return a.is_read || (a.object == b.object && (a.build == b.build || a.build == 0 || b.build == 0));
}

bool CrashSuspects::is_guilty(const Suspect &suspect) noexcept {
  return suspect.points >= GUILTY_POINTS || suspect.events >= GUILTY_EVENTS;
}

CrashSuspects::Suspect *CrashSuspects::find(const Work &work) noexcept {
  for (Suspect &suspect : suspects_)
    if ((suspect.points > 0 || suspect.events > 0) && is_same(suspect.work, work))
      return &suspect;
  return nullptr;
}

/* A free place, or else one of an event, or else the next one. */
CrashSuspects::Suspect *CrashSuspects::place_for(const Work &work) noexcept {
  static constexpr int MOST = sizeof(suspects_) / sizeof(suspects_[0]);
  Suspect *place = nullptr;

  for (int step = 0; step < MOST; step++) {
    Suspect &suspect = suspects_[(next_ + step) % MOST];
    if (suspect.points == 0 && suspect.events == 0) {
      place = &suspect;
      break;
    }
    if (place == nullptr && suspect.work.position != 0)
      place = &suspect;
  }
  if (place == nullptr)
    place = &suspects_[next_ % MOST];
  next_ = static_cast<int32_t>((place - suspects_ + 1) % MOST);
  *place = {work, 0, 0};
  return place;
}

void CrashSuspects::add(const Work &work, int points) noexcept {
  Suspect *suspect = find(work);

  if (suspect == nullptr)
    suspect = place_for(work);
  const bool was_guilty = is_guilty(*suspect);
  suspect->points += points;
  if (was_guilty || !is_guilty(*suspect) || work.position == 0 || work.is_read)
    return;
  const Work sink = {work.object, false, false, 0, 0, work.build};
  Suspect *of_sink = find(sink);
  if (of_sink == nullptr)
    of_sink = place_for(sink);
  of_sink->events++;
}

void CrashSuspects::blame(CrashEnd end, const Work &main, std::span<const Work> at_work) noexcept {
  const auto is_used = [](const Work &work) { return work.object != 0; };
  const bool main_works = is_used(main), others_work = std::any_of(at_work.begin(), at_work.end(), is_used);

  switch (end) {
  case CrashEnd::OUTSIDE:
    return;
  case CrashEnd::MAIN_THREAD: /* the server's own work is nobody's fault */
    if (main_works)
      add(main, PROOF);
    return;
  case CrashEnd::OTHER_THREAD:
    for (const Work &work : at_work)
      if (is_used(work))
        add(work, PROOF);
    if (!others_work && main_works)
      add(main, PROOF);
    break;
  case CrashEnd::UNKNOWN:
    if (main_works && main.is_new)
      add(main, WITHOUT_TRACE);
    for (const Work &work : at_work)
      if (is_used(work) && work.is_new && !(main_works && is_same(work, main)))
        add(work, WITHOUT_TRACE);
    break;
  }
  if (main_works || others_work)
    return;
  const int32_t unplaced = unplaced_ + (end == CrashEnd::OTHER_THREAD);
  acquit_all();
  unplaced_ = unplaced;
}

Guilt CrashSuspects::of(const Work &work) const noexcept {
  const Suspect *suspect = const_cast<CrashSuspects *>(this)->find(work);

  if (suspect == nullptr)
    return Guilt::NONE;
  return is_guilty(*suspect) ? Guilt::GUILTY : suspect->points > 0 ? Guilt::SUSPECT : Guilt::NONE;
}

bool CrashSuspects::knows_events() const noexcept {
  return std::any_of(std::begin(suspects_), std::end(suspects_),
                     [](const Suspect &suspect) { return suspect.points > 0 && suspect.work.position != 0; });
}

bool CrashSuspects::knows_guilty_object() const noexcept {
  return std::any_of(std::begin(suspects_), std::end(suspects_),
                     [](const Suspect &suspect) { return is_guilty(suspect) && suspect.work.position == 0; });
}

void CrashSuspects::acquit(const Work &work) noexcept {
  Suspect *suspect = find(work);

  if (suspect && !is_guilty(*suspect))
    suspect->points = 0;
}

void CrashSuspects::acquit_all() noexcept {
  for (Suspect &suspect : suspects_)
    if (!is_guilty(suspect))
      suspect = {};
  unplaced_ = 0;
}

bool CrashSuspects::forget(uint32_t object) noexcept {
  bool was_guilty = false;

  for (Suspect &suspect : suspects_)
    if (suspect.work.object == object) {
      was_guilty |= suspect.work.position == 0 && is_guilty(suspect);
      suspect = {};
    }
  return was_guilty;
}

int CrashSuspects::trial_ms() const noexcept {
  return TRIAL_MS << std::min(unplaced_, MAX_DOUBLINGS);
}

}  // namespace dispatch
