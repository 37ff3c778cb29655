#include "dispatch/crash_suspects.h"

#include <gtest/gtest.h>

#include <random>

using namespace dispatch;

namespace {

constexpr uint32_t CRM = 101, AUDIT = 102;
const Work NOTHING = {};

Work opening(uint32_t sink, uint64_t build = 1) {
  return {sink, false, true, 0, 0, build};
}

Work sending(uint32_t sink, int64_t position, uint64_t row = 1) {
  return {sink, false, true, position, row, 1};
}

Work reading(uint32_t sink, int64_t position) {
  return {sink, true, true, position, 1, 1};
}

Work old(Work work) {
  work.is_new = false;
  return work;
}

struct Crashes {
  CrashSuspects suspects = {};

  void of_thread(std::initializer_list<Work> at_work) {
    suspects.blame(CrashEnd::OTHER_THREAD, NOTHING, {at_work.begin(), at_work.size()});
  }
  void of_main(const Work &main) { suspects.blame(CrashEnd::MAIN_THREAD, main, {}); }
  void without_trace(std::initializer_list<Work> at_work, const Work &main = NOTHING) {
    suspects.blame(CrashEnd::UNKNOWN, main, {at_work.begin(), at_work.size()});
  }
  Guilt of(const Work &work) const { return suspects.of(work); }
};

TEST(DispatchCrashSuspects, TwoCrashesOfItsOwnMakeASuspectGuilty) {
  Crashes crashes;
  EXPECT_EQ(crashes.of(opening(AUDIT)), Guilt::NONE);
  crashes.of_thread({opening(AUDIT)});
  EXPECT_EQ(crashes.of(opening(AUDIT)), Guilt::SUSPECT);
  crashes.of_main(opening(AUDIT));
  EXPECT_EQ(crashes.of(opening(AUDIT)), Guilt::GUILTY);
  EXPECT_EQ(crashes.of(opening(AUDIT, 2)), Guilt::NONE) << "another build";
  EXPECT_EQ(crashes.of(opening(CRM)), Guilt::NONE);
  EXPECT_TRUE(crashes.suspects.knows_guilty_object());
  crashes.suspects.acquit_all();
  crashes.suspects.acquit(opening(AUDIT));
  EXPECT_EQ(crashes.of(opening(AUDIT)), Guilt::GUILTY) << "until somebody forgets it";
  EXPECT_TRUE(crashes.suspects.forget(AUDIT));
  EXPECT_FALSE(crashes.suspects.forget(AUDIT));
  EXPECT_EQ(crashes.of(opening(AUDIT)), Guilt::NONE);
}

TEST(DispatchCrashSuspects, WhatSurvivesItsTrialIsAcquitted) {
  Crashes crashes;
  crashes.of_thread({sending(CRM, 7), sending(AUDIT, 7)});
  EXPECT_EQ(crashes.of(sending(CRM, 7)), Guilt::SUSPECT);
  crashes.suspects.acquit(sending(CRM, 7));
  EXPECT_EQ(crashes.of(sending(CRM, 7)), Guilt::NONE);
  crashes.of_thread({sending(AUDIT, 7)});
  EXPECT_EQ(crashes.of(sending(AUDIT, 7)), Guilt::GUILTY);
  EXPECT_EQ(crashes.of(sending(AUDIT, 7, 2)), Guilt::NONE) << "another row, as after redrive()";
  EXPECT_EQ(crashes.of(opening(AUDIT)), Guilt::NONE) << "one event is not its sink's fault";
}

TEST(DispatchCrashSuspects, ASinkOfTwoGuiltyEventsIsGuilty) {
  Crashes crashes;
  for (const int64_t position : {7, 8}) {
    EXPECT_EQ(crashes.of(opening(AUDIT)), Guilt::NONE);
    crashes.of_thread({sending(AUDIT, position)});
    crashes.of_thread({sending(AUDIT, position)});
    crashes.suspects.acquit(opening(AUDIT)); /* opening it is no fault */
  }
  EXPECT_EQ(crashes.of(opening(AUDIT)), Guilt::GUILTY);
}

TEST(DispatchCrashSuspects, AnEventThatCrashesWhenItIsReadIsGuiltyForAllSinksAndNoSinkIs) {
  Crashes crashes;
  for (const int64_t position : {7, 8, 9}) {
    for (const uint32_t sink : {CRM, AUDIT, CRM, AUDIT})
      crashes.without_trace({}, reading(sink, position));
    EXPECT_EQ(crashes.of(reading(CRM, position)), Guilt::GUILTY);
    EXPECT_EQ(crashes.of(reading(AUDIT, position)), Guilt::GUILTY);
    EXPECT_EQ(crashes.of(sending(CRM, position)), Guilt::NONE);
  }
  EXPECT_FALSE(crashes.suspects.knows_guilty_object());
}

TEST(DispatchCrashSuspects, TheServersOwnCrashIsNobodysFault) {
  Crashes crashes;
  const Work at_work[] = {sending(CRM, 7)};
  for (int i = 0; i < 5; i++) {
    crashes.suspects.blame(CrashEnd::MAIN_THREAD, NOTHING, at_work); /* as a PANIC */
    crashes.suspects.blame(CrashEnd::OUTSIDE, reading(CRM, 7), at_work);
  }
  EXPECT_EQ(crashes.of(sending(CRM, 7)), Guilt::NONE);
  EXPECT_EQ(crashes.of(reading(CRM, 7)), Guilt::NONE);
}

TEST(DispatchCrashSuspects, ACrashWithoutATraceCountsHalfAndOnlyAgainstNewWork) {
  Crashes crashes;
  for (int i = 0; i < 3; i++)
    crashes.without_trace({sending(AUDIT, 7), old(sending(CRM, 1))});
  EXPECT_EQ(crashes.of(sending(AUDIT, 7)), Guilt::SUSPECT);
  EXPECT_EQ(crashes.of(sending(CRM, 1)), Guilt::NONE);
  crashes.without_trace({sending(AUDIT, 7)}, sending(AUDIT, 7)); /* in the main thread, while it is handed over */
  EXPECT_EQ(crashes.of(sending(AUDIT, 7)), Guilt::GUILTY);
}

TEST(DispatchCrashSuspects, ACrashWhileNothingIsAtWorkAcquitsAll) {
  Crashes crashes;
  for (int i = 0; i < 3; i++)
    crashes.without_trace({sending(AUDIT, 7)});
  crashes.without_trace({});
  EXPECT_EQ(crashes.of(sending(AUDIT, 7)), Guilt::NONE);
}

TEST(DispatchCrashSuspects, ThreadsThatCrashLateMakeTrialsLonger) {
  Crashes crashes;
  EXPECT_EQ(crashes.suspects.trial_ms(), 500);
  for (const int expected : {1000, 2000, 4000, 8000, 8000}) {
    crashes.of_thread({});
    EXPECT_EQ(crashes.suspects.trial_ms(), expected);
  }
  crashes.suspects.acquit_all();
  EXPECT_EQ(crashes.suspects.trial_ms(), 500);
}

TEST(DispatchCrashSuspects, ManySuspectsDoNotPushOutGuiltySinks) {
  Crashes crashes;
  for (int i = 0; i < 2; i++)
    crashes.of_thread({opening(AUDIT)});
  for (int64_t position = 1; position < 200; position++)
    crashes.of_thread({sending(CRM, position)});
  EXPECT_EQ(crashes.of(opening(AUDIT)), Guilt::GUILTY);
  EXPECT_EQ(crashes.of(sending(CRM, 199)), Guilt::SUSPECT);
}

/* Somebody kills the worker once a minute for a day, at times that do not depend on its trials, as careful.cpp makes
 * them: a pause of 1 to 7 s, then half a second in which the suspect is new. */
TEST(DispatchCrashSuspects, SomebodyWhoKillsWorkersMakesNothingGuilty) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> pause(1, 7), kill(0, 10);
  int guilty = 0;

  for (int day = 0; day < 20; day++) {
    Crashes crashes;
    for (int minute = 0; minute < 24 * 60; minute++) {
      const double begins = crashes.of(sending(CRM, 7)) == Guilt::SUSPECT ? pause(random) : 0, at = kill(random);
      if (at < begins)
        crashes.without_trace({});
      else if (at < begins + 0.5)
        crashes.without_trace({sending(CRM, 7)});
      else
        crashes.suspects.acquit(sending(CRM, 7));
      if (crashes.of(sending(CRM, 7)) != Guilt::GUILTY)
        continue;
      guilty++;
      crashes = {};
    }
  }
  EXPECT_LE(guilty, 2) << "of 28,800 crashes";
}

}  // namespace
