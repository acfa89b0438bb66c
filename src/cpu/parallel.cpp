// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/float_environment.h"
#include "msa/device.h"
#include "msa/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace msa::cpu {
namespace {

/// True on a thread that runs a task: calls from there run inline.
thread_local bool inside_task = false;

/// One parallel_for call; lives on the caller's stack.
class Job {
 public:
  Job(std::int64_t tasks, void (*body)(void*, std::int64_t), void* context)
      : tasks_(tasks), body_(body), context_(context) {}

  /// Takes tasks until none is left.
  void work() {
    for (;;) {
      const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks_) return;
      run(task);
    }
  }

  /// Runs one task; an exception ends the job early and is kept for the caller.
  void run(std::int64_t task) noexcept {
    const FloatEnvironment environment;
    const bool outer = std::exchange(inside_task, true);
    try {
      body_(context_, task);
    } catch (...) {
      next_.store(tasks_, std::memory_order_relaxed);
      const std::lock_guard lock(failure_mutex_);
      if (failure_ == nullptr) failure_ = std::current_exception();
    }
    inside_task = outer;
  }

  bool exhausted() const { return next_.load(std::memory_order_relaxed) >= tasks_; }
  void rethrow() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

  std::atomic<int> workers{0};  ///< pool threads inside work(); changed under the pool's mutex

 private:
  const std::int64_t tasks_;
  void (*const body_)(void*, std::int64_t);
  void* const context_;
  std::atomic<std::int64_t> next_{0};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

/// Threads that help with any open job. Jobs of several callers are open at once.
class Pool {
 public:
  /// Runs the job on the caller and on up to `helpers` pool threads.
  void run(Job& job, int helpers) {
    if (helpers == 0) return job.work();
    {
      const std::lock_guard lock(mutex_);
      start(helpers);
      open_.push_back(&job);
    }
    pending_.fetch_add(1, std::memory_order_release);
    wake_.notify_all();
    job.work();
    {
      const std::lock_guard lock(mutex_);
      open_.erase(std::find(open_.begin(), open_.end(), &job));
      pending_.fetch_sub(1, std::memory_order_relaxed);
    }
    // The others' last tasks end soon, as a rule.
    spin([&] { return job.workers.load(std::memory_order_acquire) == 0; });
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return job.workers.load(std::memory_order_relaxed) == 0; });
  }

  /// Ends the threads; later jobs run on their callers alone.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) {
      if (thread.get_id() == std::this_thread::get_id()) {
        thread.detach();
      } else {
        thread.join();
      }
    }
    threads_.clear();
  }

 private:
  void start(int helpers) {
    if (stopping_ || static_cast<int>(threads_.size()) >= helpers) return;
    // The host program's signals are for its own threads.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      while (static_cast<int>(threads_.size()) < helpers) {
        threads_.emplace_back([this] { loop(); });
      }
    } catch (const std::system_error&) {
      // No more threads to be had: the caller and those that exist do the work.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void loop() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      Job* job = find_work();
      if (job == nullptr) {
        lock.unlock();
        spin([&] { return pending_.load(std::memory_order_relaxed) != 0; });
        lock.lock();
        wake_.wait(lock, [&] { return stopping_ || find_work() != nullptr; });
        continue;
      }
      ++job->workers;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->workers == 0) done_.notify_all();
    }
  }

  Job* find_work() const {
    for (Job* job : open_) {
      if (!job->exhausted()) return job;
    }
    return nullptr;
  }

  /// Operators follow each other within microseconds: a short watch saves a sleep and a wake-up.
  template <class Done>
  static void spin(Done&& done) {
    for (int i = 0; i < spins && !done(); ++i) {
#if defined(__x86_64__)
      _mm_pause();
#else
      std::this_thread::yield();
#endif
    }
  }

  static constexpr int spins = 1000;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::vector<Job*> open_;
  std::vector<std::thread> threads_;
  std::atomic<int> pending_{0};
  bool stopping_ = false;
};

/// The process's pool, made at the first call. Never deleted: a thread may still be inside a call
/// while the process ends.
std::atomic<Pool*> current_pool{nullptr};
/// A forked child's inheritance: unusable, but kept in sight of leak checkers.
std::atomic<Pool*> parents_pool{nullptr};

Pool& pool() {
  Pool* existing = current_pool.load(std::memory_order_acquire);
  if (existing != nullptr) return *existing;
  auto made = std::make_unique<Pool>();
  if (current_pool.compare_exchange_strong(existing, made.get(), std::memory_order_acq_rel)) {
    return *made.release();
  }
  return *existing;
}

/// A forked child has none of the parent's threads and may find its mutexes locked: it drops the
/// pool and makes one of its own. Ends the threads when the library is unloaded.
struct PoolLifetime {
  PoolLifetime() {
    pthread_atfork(nullptr, nullptr, [] { parents_pool = current_pool.exchange(nullptr); });
  }
  ~PoolLifetime() {
    if (Pool* p = current_pool.load(std::memory_order_acquire)) p->stop();
  }
  PoolLifetime(const PoolLifetime&) = delete;
  PoolLifetime& operator=(const PoolLifetime&) = delete;
};
const PoolLifetime pool_lifetime;

struct Hook {
  std::atomic<ParallelFor> function{nullptr};
  std::atomic<void*> context{nullptr};
};
Hook hook;

std::atomic<int> testing_threads{0};

/// Cores that this process may run on; the set grows until the kernel's mask fits.
int allowed_cores() {
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int configured_threads() {
  const char* text = std::getenv("MSA_THREADS");
  if (text == nullptr || *text == '\0') return allowed_cores();
  int count = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, count);
  if (error != std::errc() || stop != end || count < 1 || count > most_threads) {
    throw Error(ErrorCode::invalid_argument,
                "environment variable MSA_THREADS is '" + std::string(text) +
                    "'; allowed: whole numbers from 1 to " + std::to_string(most_threads));
  }
  return count;
}

}  // namespace

int num_threads() {
  const int forced = testing_threads.load(std::memory_order_relaxed);
  if (forced > 0) return forced;
  static const int threads = configured_threads();
  return threads;
}

void set_num_threads_for_testing(int threads) {
  testing_threads.store(threads, std::memory_order_relaxed);
}

void parallel_for(std::int64_t tasks, void (*body)(void* context, std::int64_t task),
                  void* context) {
  if (tasks <= 0) return;
  Job job(tasks, body, context);
  const ParallelFor function = hook.function.load(std::memory_order_acquire);
  if (inside_task || tasks == 1) {
    job.work();
  } else if (function != nullptr) {
    function(
        hook.context.load(std::memory_order_acquire), tasks,
        [](void* j, std::int64_t task) { static_cast<Job*>(j)->run(task); }, &job);
  } else {
    pool().run(job, static_cast<int>(std::min<std::int64_t>(num_threads(), tasks)) - 1);
  }
  job.rethrow();
}

void* thread_scratch(std::size_t bytes) {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  thread_local std::vector<Line> scratch;
  const std::size_t lines = bytes / sizeof(Line) + 1;
  if (scratch.size() < lines) {
    scratch.clear();  // nothing to keep
    scratch.resize(lines);
  }
  return scratch.data();
}

}  // namespace msa::cpu

namespace msa {

void set_parallel_for(ParallelFor function, void* context) noexcept {
  cpu::hook.context.store(context, std::memory_order_release);
  cpu::hook.function.store(function, std::memory_order_release);
}

}  // namespace msa
