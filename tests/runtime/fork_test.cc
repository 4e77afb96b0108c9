#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/synchronization/notification.h"
#include "runtime/fork.h"
#include "runtime/profile/recorder.h"
#include "runtime/thread.h"

namespace tenon {
namespace {

#if !defined(__SANITIZE_THREAD__)  // fork() in a threaded process is what tsan refuses

// Exit code of a child that runs `body`; a deadlock ends it.
template <typename F>
int Child(const F& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Fork, WaitsForTheSectionsOfOtherThreads) {
  std::atomic<bool> inside = false, stop = false;
  std::thread busy([&] {
    while (!stop) {
      ForkSection section;
      inside = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      inside = false;
    }
  });
  for (int k = 0; k < 20; ++k) {
    EXPECT_EQ(Child([&] {
                if (inside || ForkedInsideSection()) return false;
                ForkSection mine;  // and the child has sections of its own
                return true;
              }),
              0);
  }
  stop = true;
  busy.join();
}

TEST(Fork, ALongSectionLetsForksInBetween) {
  std::atomic<bool> inside = false, stop = false;
  std::thread busy([&] {
    ForkSection section;
    while (!stop) {
      inside = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      inside = false;
      section.Yield();
    }
  });
  for (int k = 0; k < 20; ++k) EXPECT_EQ(Child([&] { return !inside && !ForkedInsideSection(); }), 0);
  stop = true;
  busy.join();
}

TEST(Fork, AChildRecordsNothingAndMayBegin) {
  std::atomic<bool> stop = false;
  std::thread busy([&] {  // takes and gives the recorder's lock
    while (!stop) (void)Recorder::BeginCall(0);
  });
  ASSERT_TRUE(Recorder::Start(10).ok());
  for (int k = 0; k < 20; ++k) {
    EXPECT_EQ(Child([] {
                if (Recorder::BeginCall(0) != 0 || Recorder::Stop().ok()) return false;
                return Recorder::Start(10).ok() && Recorder::BeginCall(0) != 0 && Recorder::Stop().ok();
              }),
              0);
  }
  stop = true;
  busy.join();
  EXPECT_TRUE(Recorder::Stop().ok()) << "the parent's goes on";
}

TEST(Fork, OnesOwnSectionIsNotWaitedFor) {
  ForkSection section;
  EXPECT_EQ(Child([] {
              ForkSection inner;
              return !ForkedInsideSection();
            }),
            0);
}

TEST(Fork, AnAbandonedSectionHoldsUpNobody) {
  absl::Notification abandoned;
  ASSERT_TRUE(StartThread([&] {
                auto* section = new ForkSection;  // never closed
                (void)section;
                ForkSection::Abandon();
                abandoned.Notify();
                while (true) pause();
              }).ok());
  abandoned.WaitForNotification();
  EXPECT_EQ(Child([] { return !ForkedInsideSection(); }), 0);
}

TEST(Fork, TheWaitIsBoundedAndTheChildKnows) {
  absl::Notification open, go;
  std::thread stuck([&] {
    ForkSection section;
    open.Notify();
    go.WaitForNotification();
  });
  open.WaitForNotification();
  const int64_t generation = ForkGeneration();
  EXPECT_EQ(Child([&] { return ForkedInsideSection() && ForkGeneration() == generation + 1; }), 0);
  EXPECT_FALSE(ForkedInsideSection());
  EXPECT_EQ(ForkGeneration(), generation);
  go.Notify();
  stuck.join();
}

#endif

TEST(Thread, TakesNoSignalsButItsFaults) {
  absl::Notification done;
  bool blocked = false, faults = false;
  ASSERT_TRUE(StartThread([&] {
                sigset_t mask;
                pthread_sigmask(SIG_SETMASK, nullptr, &mask);
                blocked = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGTERM) == 1;
                faults = sigismember(&mask, SIGSEGV) == 0 && sigismember(&mask, SIGABRT) == 0;
                done.Notify();
              }).ok());
  done.WaitForNotification();
  EXPECT_TRUE(blocked);
  EXPECT_TRUE(faults);
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGINT), 0);
}

TEST(Thread, RefusalIsAStatus) {
  bool ran = false;
  const absl::Status refused = StartThread([&] { ran = true; }, size_t{1} << 46);  // more than an address space holds
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace tenon
