// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/soak/soak.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "cli/replay/digest.h"
#include "msa/device.h"

namespace msa::soak {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What the threads share.
class Run {
 public:
  explicit Run(SoakReport& report) : report_(report) {}

  bool over() const {
    const SoakOptions& o = report_.options;
    return stop_ || seconds_since(start_) > o.seconds || (o.rows > 0 && rows_ >= o.rows);
  }
  double seconds() const { return seconds_since(start_); }
  std::int64_t rows() const { return rows_; }
  void add_rows(std::int64_t rows) { rows_ += rows; }

  void found(std::int64_t lane, const Lane& in, const std::string& wrong) {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (!report_.wrong.empty()) return;
    const SoakOptions& o = report_.options;
    report_.wrong = fmt::format("seed {}, lane {}, {}: {}", o.seed, lane, in.step_text(), wrong);
    report_.repeat = fmt::format(
        "msa soak --device {} --seed {} --lane {} --steps {} --seconds {} --rows-per-step {}{}",
        report_.device, o.seed, lane, in.stats().steps + 1, o.seconds, o.rows_per_step,
        o.fault_step >= 0 ? fmt::format(" --fault {}", o.fault_step) : "");
  }
  /// A thread of lanes has ended.
  void add(const LaneStats& stats, const std::set<std::string>& backends) {
    const std::lock_guard lock(mutex_);
    report_.lanes += stats;
    backends_.insert(backends.begin(), backends.end());
    report_.backends.assign(backends_.begin(), backends_.end());
  }

 private:
  SoakReport& report_;
  Clock::time_point start_ = Clock::now();
  std::atomic<bool> stop_ = false;
  std::atomic<std::int64_t> rows_ = 0;
  std::mutex mutex_;
  std::set<std::string> backends_;
};

struct NumberedLane {
  std::int64_t number;
  std::unique_ptr<Lane> lane;
};

/// Steps of a thread's lanes in turn: all are launched before the first is checked.
void serve(Run& run, const SoakOptions& o, const std::vector<NumberedLane>& lanes) {
  std::set<std::string> backends;
  const auto guarded = [&run](const NumberedLane& numbered, auto&& work) {
    try {
      work(*numbered.lane);
    } catch (const std::exception& error) {
      run.found(numbered.number, *numbered.lane, std::string("thrown: ") + error.what());
    }
  };
  for (std::int64_t step = 0; !run.over() && (o.steps == 0 || step < o.steps); ++step) {
    for (const NumberedLane& numbered : lanes) {
      guarded(numbered, [](Lane& lane) { lane.launch(); });
      backends.insert(last_backend());
    }
    for (const NumberedLane& numbered : lanes) {
      if (run.over()) break;
      guarded(numbered, [&](Lane& lane) {
        const std::int64_t before = lane.stats().rows;
        const std::string wrong = lane.finish();
        if (!wrong.empty()) run.found(numbered.number, lane, wrong);
        run.add_rows(lane.stats().rows - before);
      });
    }
  }
  LaneStats sum;
  for (const NumberedLane& numbered : lanes) sum += numbered.lane->stats();
  run.add(sum, backends);
}

}  // namespace

SoakReport run_soak(const SoakOptions& options,
                    const std::function<std::unique_ptr<Place>()>& make_place,
                    const std::function<void(std::int64_t rows)>& on_rows) {
  SoakReport report;
  report.options = options;
  std::vector<std::vector<NumberedLane>> threads;
  for (std::int64_t t = 0; t < options.threads; ++t) {
    std::vector<NumberedLane> lanes;
    for (std::int64_t s = 0; s < options.streams; ++s) {
      const std::int64_t number = t * options.streams + s;
      if (options.lane >= 0 && options.lane != number) continue;
      std::unique_ptr<Place> place = make_place();
      report.device = cli::device_name(*place);
      report.machine = place->description();
      const LaneConfig config{.seed = replay::mix(options.seed, static_cast<std::uint64_t>(number)),
                              .rows_per_step = options.rows_per_step,
                              .fault_step = number == 0 ? options.fault_step : -1};
      lanes.push_back({number, std::make_unique<Lane>(std::move(place), config)});
    }
    if (!lanes.empty()) threads.push_back(std::move(lanes));
  }

  Run run(report);
  std::atomic<std::size_t> ended = 0;
  std::vector<std::thread> workers;
  workers.reserve(threads.size());
  for (const std::vector<NumberedLane>& lanes : threads) {
    workers.emplace_back([&run, &options, &lanes, &ended] {
      serve(run, options, lanes);
      ++ended;
    });
  }
  while (ended < workers.size()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (on_rows) on_rows(run.rows());
  }
  for (std::thread& worker : workers) worker.join();
  report.seconds = run.seconds();
  return report;
}

}  // namespace msa::soak
