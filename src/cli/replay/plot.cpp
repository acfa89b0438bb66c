// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "cli/replay/report.h"

namespace msa::replay {
namespace {

constexpr double width = 960, left = 72, right = 24, panel_height = 150, panel_gap = 62;
constexpr double first_panel = 96, plot_width = width - left - right;
constexpr std::size_t bins = 160;
constexpr std::size_t most_dots = 3000;  // more make the file large and the picture no clearer

// Colours that stay apart for colour-blind readers (Okabe and Ito) on white.
constexpr const char* prefill_colour = "#0072B2";
constexpr const char* decode_colour = "#E69F00";
constexpr const char* mixed_colour = "#009E73";
constexpr const char* cached_colour = "#B9D6E8";
constexpr std::array<const char*, phase_names.size()> phase_colours = {
    "#CC79A7", "#DADADA", "#56B4E9", "#009E73", "#E69F00", "#0072B2", "#C9C9C9", "#B5B5B5"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out;
}

/// The round number (1, 2 or 5 times a power of ten) that cuts `span` into three to six parts.
double round_step(double span) {
  const double power = std::pow(10.0, std::floor(std::log10(span / 4)));
  const double share = span / 4 / power;
  return power * (share >= 5 ? 5 : share >= 2 ? 2 : 1);
}

/// Steps of an axis of `steps` of them; what rounding took from the last one does not lose it.
int whole_steps(double steps) { return static_cast<int>(steps + 0.001); }

/// 1500000 → "1.5M".
std::string short_number(double x) {
  if (x >= 1e6) return fmt::format("{:.3g}M", x / 1e6);
  if (x >= 1e3) return fmt::format("{:.3g}k", x / 1e3);
  return fmt::format("{:.3g}", x);
}

struct Point {
  double x = 0, y = 0;
};
using Line = std::vector<Point>;

/// Collects the document's elements.
class Svg {
 public:
  void text(double x, double y, const char* style, const std::string& words) {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, style,
                         escaped(words));
  }
  void rect(double x, double y, double w, double h, const char* colour) {
    body_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n", x, y,
        std::max(w, 0.0), std::max(h, 0.0), colour);
  }
  void rule(double x1, double y1, double x2, double y2, const char* style) {
    body_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1,
        x2, y2, style);
  }
  void dots(const Line& points, const char* colour) {
    body_ += fmt::format("<g fill=\"{}\" fill-opacity=\"0.55\">\n", colour);
    for (const Point& p : points) {
      body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"1.6\"/>\n", p.x, p.y);
    }
    body_ += "</g>\n";
  }
  void path(const Line& points, bool closed, const std::string& attributes) {
    if (points.empty()) return;
    body_ += "<path d=\"";
    for (std::size_t i = 0; i < points.size(); ++i) {
      body_ += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", points[i].x, points[i].y);
    }
    body_ += fmt::format("{}\" {}/>\n", closed ? "Z" : "", attributes);
  }
  std::string document(double height, const std::string& title) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" role=\"img\">\n<title>{2}</title>\n<style>\n"
        "text{{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
        "fill:#222}}\n.title{{font-size:19px;font-weight:600}}\n.sub{{font-size:12px;fill:#666}}\n"
        ".head{{font-size:13px;font-weight:600}}\n.tick{{font-size:11px;fill:#666}}\n"
        ".ticky{{font-size:11px;fill:#666;text-anchor:end}}\n"
        ".tickx{{font-size:11px;fill:#666;text-anchor:middle}}\n"
        ".grid{{stroke:#e6e6e6;stroke-width:1}}\n.axis{{stroke:#999;stroke-width:1}}\n"
        ".limit{{stroke:#C0392B;stroke-width:1;stroke-dasharray:5 4}}\n</style>\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n{3}</svg>\n",
        width, height, escaped(title), body_);
  }

 private:
  std::string body_;
};

/// One set of axes over the run's time.
class Panel {
 public:
  Panel(Svg& svg, int number, double seconds, double lowest, double highest, bool logarithmic)
      : svg_(svg),
        top_(first_panel + number * (panel_height + panel_gap)),
        seconds_(seconds),
        low_(lowest),
        high_(highest),
        logarithmic_(logarithmic) {}

  double x(double second) const { return left + plot_width * second / seconds_; }
  double y(double value) const {
    const double share = logarithmic_
                             ? std::log(std::max(value, low_) / low_) / std::log(high_ / low_)
                             : (value - low_) / (high_ - low_);
    return top_ + panel_height * (1 - std::clamp(share, 0.0, 1.0));
  }
  double top() const { return top_; }

  void axes(const std::string& heading, const std::function<std::string(double)>& label) const {
    svg_.text(left, top_ - 12, "head", heading);
    if (logarithmic_) {
      const int decades = whole_steps(std::log10(high_ / low_));
      for (int i = 0; i <= decades; ++i) tick_y(low_ * std::pow(10, i), label);
    } else {
      const double step = round_step(high_ - low_);
      const int steps = whole_steps((high_ - low_) / step);
      for (int i = 0; i <= steps; ++i) tick_y(low_ + i * step, label);
    }
    const double step = round_step(seconds_);
    const int steps = whole_steps(seconds_ / step);
    for (int i = 0; i <= steps; ++i) {
      svg_.text(x(i * step), top_ + panel_height + 16, "tickx", fmt::format("{:.3g} s", i * step));
    }
    svg_.rule(left, top_ + panel_height, width - right, top_ + panel_height, "axis");
  }

  /// Entries at the panel's top right, from right to left.
  void legend(const std::vector<std::pair<const char*, std::string>>& entries) const {
    double at = width - right;
    for (auto it = entries.rbegin(); it != entries.rend(); ++it) {
      at -= 7.0 * static_cast<double>(it->second.size()) + 8;
      svg_.text(at, top_ - 12, "tick", it->second);
      svg_.rect(at - 14, top_ - 21, 10, 10, it->first);
      at -= 24;
    }
  }

 private:
  void tick_y(double value, const std::function<std::string(double)>& label) const {
    svg_.rule(left, y(value), width - right, y(value), "grid");
    svg_.text(left - 8, y(value) + 4, "ticky", label(value));
  }

  Svg& svg_;
  double top_, seconds_, low_, high_;
  bool logarithmic_;
};

/// Sums of a quantity over equal slices of the run, each step spread over the slices that it
/// covers.
std::vector<double> rates(const ReplayReport& report, double seconds,
                          std::int64_t StepRecord::*tokens) {
  std::vector<double> sums(bins);
  const double slice = seconds / static_cast<double>(bins);
  for (const StepRecord& step : report.steps) {
    const double length = std::max(step.times.total(true), 1e-9);
    const double rate = static_cast<double>(step.*tokens) / length;
    const auto first = std::min(static_cast<std::size_t>(step.start / slice), bins - 1);
    for (std::size_t b = first; b < bins; ++b) {
      const double from = std::max(step.start, static_cast<double>(b) * slice);
      const double to = std::min(step.start + length, static_cast<double>(b + 1) * slice);
      if (to <= from && b > first) break;
      sums[b] += rate * std::max(to - from, 0.0) / slice;
    }
  }
  return sums;
}

/// The area between two step functions over the slices.
Line area(const Panel& panel, double seconds, const std::vector<double>& low,
          const std::vector<double>& high) {
  Line line;
  const double slice = seconds / static_cast<double>(bins);
  for (std::size_t b = 0; b < bins; ++b) {
    line.push_back({panel.x(static_cast<double>(b) * slice), panel.y(high[b])});
    line.push_back({panel.x(static_cast<double>(b + 1) * slice), panel.y(high[b])});
  }
  for (std::size_t b = bins; b-- > 0;) {
    line.push_back({panel.x(static_cast<double>(b + 1) * slice), panel.y(low[b])});
    line.push_back({panel.x(static_cast<double>(b) * slice), panel.y(low[b])});
  }
  return line;
}

std::string filled(const char* colour) {
  return fmt::format("fill=\"{}\" fill-opacity=\"0.85\"", colour);
}

void draw_throughput(Svg& svg, const ReplayReport& report, double seconds) {
  const std::vector<double> zero(bins);
  const std::vector<double> prefill = rates(report, seconds, &StepRecord::prefill_tokens);
  std::vector<double> both = rates(report, seconds, &StepRecord::decode_tokens);
  for (std::size_t b = 0; b < bins; ++b) both[b] += prefill[b];
  const double highest = std::max(*std::max_element(both.begin(), both.end()), 1.0);
  const Panel panel(svg, 0, seconds, 0, highest * 1.05, false);
  panel.axes("Tokens a second", short_number);
  svg.path(area(panel, seconds, zero, prefill), true, filled(prefill_colour));
  svg.path(area(panel, seconds, prefill, both), true, filled(decode_colour));
  panel.legend({{prefill_colour, "prompt"}, {decode_colour, "decode"}});
}

void draw_step_times(Svg& svg, const ReplayReport& report, double seconds) {
  double lowest = 1e9, highest = 0;
  for (const StepRecord& step : report.steps) {
    lowest = std::min(lowest, step.seconds());
    highest = std::max(highest, step.seconds());
  }
  const double low = std::pow(10, std::floor(std::log10(std::max(lowest, 1e-6))));
  const double high =
      std::max(std::pow(10, std::ceil(std::log10(std::max(highest, 1e-6)))), low * 10);
  const Panel panel(svg, 1, seconds, low, high, true);
  panel.axes("Time of a step, harness aside", [](double s) { return cli::format_seconds(s); });
  std::array<Line, 3> dots;  // prefill, mixed, decode
  const std::size_t stride = report.steps.size() / most_dots + 1;
  for (std::size_t i = 0; i < report.steps.size(); i += stride) {
    const StepRecord& step = report.steps[i];
    const std::size_t kind = step.decode_tokens == 0 ? 0 : step.prefill_tokens > 0 ? 1 : 2;
    dots[kind].push_back({panel.x(step.start), panel.y(step.seconds())});
  }
  const char* const colours[] = {prefill_colour, mixed_colour, decode_colour};
  for (std::size_t kind = 0; kind < dots.size(); ++kind) svg.dots(dots[kind], colours[kind]);
  panel.legend({{prefill_colour, "prefill"}, {mixed_colour, "mixed"}, {decode_colour, "decode"}});
}

void draw_pages(Svg& svg, const ReplayReport& report, double seconds) {
  std::vector<double> zero(bins), used(bins), held(bins);
  std::size_t step = 0;
  double highest = 1;
  for (std::size_t b = 0; b < bins; ++b) {
    const double end = seconds * static_cast<double>(b + 1) / static_cast<double>(bins);
    while (step + 1 < report.steps.size() && report.steps[step + 1].start < end) ++step;
    used[b] = static_cast<double>(report.steps[step].pages_in_use);
    held[b] = used[b] + static_cast<double>(report.steps[step].pages_cached);
    highest = std::max(highest, held[b]);
  }
  const auto pool = static_cast<double>(report.options.pages);
  const bool near_full = highest > 0.5 * pool;
  const Panel panel(svg, 2, seconds, 0, (near_full ? pool : highest) * 1.05, false);
  panel.axes(fmt::format("Pages of the main cache ({} in all)", report.options.pages),
             short_number);
  svg.path(area(panel, seconds, zero, used), true, filled(prefill_colour));
  svg.path(area(panel, seconds, used, held), true, filled(cached_colour));
  if (near_full) svg.rule(left, panel.y(pool), width - right, panel.y(pool), "limit");
  panel.legend({{prefill_colour, "in use"}, {cached_colour, "kept for prefixes"}});
}

/// A bar of shares and its legend; returns the bottom.
double draw_phases(Svg& svg, const ReplayReport& report, double top) {
  const PhaseTimes times = total_times(report.steps);
  const double total = std::max(times.total(true), 1e-9);
  svg.text(left, top, "head", "Where the time went (grey: harness)");
  double x = left;
  for (std::size_t i = 0; i < phase_names.size(); ++i) {
    const double share = times.seconds[i] / total;
    svg.rect(x, top + 12, plot_width * share, 26, phase_colours[i]);
    x += plot_width * share;
  }
  double y = top + 60;
  x = left;
  for (std::size_t i = 0; i < phase_names.size(); ++i) {
    svg.rect(x, y - 9, 10, 10, phase_colours[i]);
    svg.text(x + 15, y, "tick",
             fmt::format("{} {:.1f} %", phase_names[i], 100 * times.seconds[i] / total));
    x += plot_width / 4;
    if (i % 4 == 3) {
      x = left;
      y += 20;
    }
  }
  return y;
}

}  // namespace

std::string plot_svg(const std::string& trace, const ReplayReport& report) {
  Svg svg;
  const ReplayOptions& o = report.options;
  const std::string title = "msa replay: " + trace.substr(trace.find_last_of('/') + 1);
  svg.text(left, 36, "title", title);
  svg.text(left, 58, "sub",
           fmt::format("{} of {} requests, layer {}/{}, {} cache {}, chunk {}, draft {}; {} rows "
                       "checked, {} wrong; digest {}",
                       o.requests, report.trace_requests, o.shape.q_heads, o.shape.kv_heads,
                       name(o.kv_type), name(o.layout), o.chunk, o.draft, report.checks.rows,
                       report.checks.wrong, digest_text(report.digest)));
  const double seconds = std::max(report.serving_seconds, 1e-3);
  double bottom = first_panel;
  if (!report.steps.empty()) {
    draw_throughput(svg, report, seconds);
    draw_step_times(svg, report, seconds);
    draw_pages(svg, report, seconds);
    bottom = draw_phases(svg, report, first_panel + 3 * (panel_height + panel_gap));
  }
  return svg.document(bottom + 24, title);
}

}  // namespace msa::replay
