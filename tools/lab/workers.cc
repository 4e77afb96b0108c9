#include "tools/lab/workers.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon::lab {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// One process. It is told one number at a time and answers with one line.
struct Worker {
  pid_t pid = -1;
  int to = -1, from = -1;
  std::string buffer;
  int64_t working_on = -1;
  Clock::time_point since;
};

// Of a worker.
void WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, data, size);
    if (n <= 0) _exit(3);  // who asked is gone
    data += n;
    size -= static_cast<size_t>(n);
  }
}

// Of a worker that ends because it is worn out.
constexpr int kWornOut = 98;

[[noreturn]] void Serve(int in, int out, const WorkersOptions& options, const std::function<std::string(int64_t)>& work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) {
    int64_t k;
    if (read(in, &k, sizeof k) != sizeof k) _exit(0);
    const std::string line = work(k) + "\n";
    WriteAll(out, line.data(), line.size());
    if (options.worn_out()) _exit(kWornOut);
  }
}

class Pool {
 public:
  Pool(const WorkersOptions& options, const std::function<std::string(int64_t)>& work,
       const std::function<void(int64_t, const std::string&)>& on_line,
       const std::function<void(int64_t, const std::string&)>& on_death)
      : options_(options), work_(work), on_line_(on_line), on_death_(on_death), workers_(std::max(1, options.jobs)) {}

  int64_t Run(const std::function<void()>& on_tick) {
    ::signal(SIGPIPE, SIG_IGN);
    Clock::time_point ticked = Clock::now();
    for (Worker& w : workers_) {
      Start(&w);
      Feed(&w);
    }
    while (Busy()) {
      Wait();
      for (Worker& w : workers_) {
        if (w.working_on >= 0 && Since(w.since) > options_.seconds_per_number) {
          kill(w.pid, SIGKILL);
          Bury(&w, absl::StrCat("no answer in ", options_.seconds_per_number, " s"));
        }
      }
      if (Since(ticked) < 2) continue;
      ticked = Clock::now();
      on_tick();
    }
    for (Worker& w : workers_) Stop(&w);
    return finished_;
  }

 private:
  bool Busy() const {
    for (const Worker& w : workers_) {
      if (w.working_on >= 0) return true;
    }
    return false;
  }

  void Start(Worker* w) {
    int to[2], from[2];
    TENON_CHECK(pipe(to) == 0 && pipe(from) == 0, "no pipe");
    std::fflush(nullptr);
    w->pid = fork();
    TENON_CHECK(w->pid >= 0, "no process");
    if (w->pid == 0) {
      for (const Worker& other : workers_) {
        if (other.to >= 0) close(other.to), close(other.from);
      }
      close(to[1]), close(from[0]);
      Serve(to[0], from[1], options_, work_);
    }
    close(to[0]), close(from[1]);
    w->to = to[1], w->from = from[0];
    w->buffer.clear();
  }

  void Feed(Worker* w) {
    w->working_on = -1;
    if (options_.count >= 0 && next_ >= options_.count) return;
    if (options_.stop != nullptr && *options_.stop) return;
    if (options_.seconds > 0 && Since(began_) > options_.seconds) return;
    Give(w, next_++);
  }

  void Give(Worker* w, int64_t k) {
    w->working_on = k;
    w->since = Clock::now();
    // A worker that is worn out may be gone by now: what it reads is empty then, and the next one has the number.
    if (write(w->to, &k, sizeof k) < 0) TENON_CHECK(errno == EPIPE, "no number for a worker");
  }

  void Wait() {
    std::vector<pollfd> fds;
    for (const Worker& w : workers_) fds.push_back({w.from, POLLIN, 0});
    if (poll(fds.data(), fds.size(), 500) <= 0) return;
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents != 0) Read(&workers_[i]);
    }
  }

  void Read(Worker* w) {
    char bytes[1 << 16];
    const ssize_t n = read(w->from, bytes, sizeof bytes);
    if (n <= 0) return Bury(w, "");
    w->buffer.append(bytes, static_cast<size_t>(n));
    const size_t end = w->buffer.find('\n');
    if (end == std::string::npos) return;
    const std::string line = w->buffer.substr(0, end);
    w->buffer.clear();
    const int64_t k = w->working_on;
    ++finished_;
    Feed(w);  // it needn't wait for what we do with the line
    on_line_(k, line);
  }

  void Bury(Worker* w, std::string how) {
    int status = 0;
    waitpid(w->pid, &status, 0);
    if (how.empty()) {
      how = WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")")
                                : absl::StrCat("exit ", WEXITSTATUS(status));
    }
    close(w->to), close(w->from);
    w->to = w->from = -1;
    const int64_t k = w->working_on;
    const bool worn_out = WIFEXITED(status) && WEXITSTATUS(status) == kWornOut;
    if (k >= 0 && !worn_out) {
      ++finished_;
      on_death_(k, how);
    }
    Start(w);
    if (k >= 0 && worn_out) return Give(w, k);  // it has not read the number
    Feed(w);
  }

  void Stop(Worker* w) {
    close(w->to), close(w->from);
    waitpid(w->pid, nullptr, 0);
  }

  const WorkersOptions& options_;
  const std::function<std::string(int64_t)>& work_;
  const std::function<void(int64_t, const std::string&)>&on_line_, &on_death_;
  std::vector<Worker> workers_;
  int64_t next_ = 0, finished_ = 0;
  const Clock::time_point began_ = Clock::now();
};

}  // namespace

int64_t RunWorkers(const WorkersOptions& options, const std::function<std::string(int64_t)>& work,
                   const std::function<void(int64_t, const std::string&)>& on_line,
                   const std::function<void(int64_t, const std::string&)>& on_death, const std::function<void()>& on_tick) {
  return Pool(options, work, on_line, on_death).Run(on_tick);
}

}  // namespace tenon::lab
