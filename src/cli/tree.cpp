// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/tree.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

namespace msa::cli {
namespace {

/// The values in "OP:{decode,prefill}", as the parser writes them behind a value's type.
std::vector<std::string> choices_of(const std::string& type) {
  std::vector<std::string> choices;
  const std::size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return choices;
  std::istringstream list(type.substr(open + 1, close - open - 1));
  for (std::string choice; std::getline(list, choice, ',');) choices.push_back(choice);
  return choices;
}

OptionText describe(const CLI::Option& option) {
  OptionText text;
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();
    text.choices = choices_of(type);
    text.value = type.substr(0, type.find_first_of(": "));
  }
  text.required = option.get_required();
  text.help = option.get_description();
  text.group = option.get_group();
  return text;
}

bool looks_like_option(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

const OptionText* find_option(const CommandText& command, const std::string& name) {
  for (const OptionText& option : command.options) {
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) {
      return &option;
    }
  }
  return nullptr;
}

/// Whether the word behind an option is rather this argument, which has no other.
bool serves(const OptionText& argument, const std::string& word) {
  if (word.empty() || word == "-") return false;
  if (argument.choices.empty()) return argument.required;
  return std::find(argument.choices.begin(), argument.choices.end(), word) !=
         argument.choices.end();
}

/// What the words of a command are, by their places.
struct Places {
  std::size_t arguments = 0;          // words of no option
  std::vector<std::size_t> optional;  // words behind options whose value may be left out
};

Places find_places(const CommandText& command, const std::vector<std::string>& words,
                   std::size_t begin) {
  Places places;
  for (std::size_t i = begin; i < words.size() && words[i] != "--"; ++i) {
    const OptionText* option = find_option(command, words[i]);
    if (option == nullptr) {
      places.arguments += looks_like_option(words[i]) ? 0 : 1;
    } else if (!option->optional_value()) {
      i += option->value.empty() ? 0 : 1;
    } else if (i + 1 < words.size() && !looks_like_option(words[i + 1])) {
      places.optional.push_back(++i);
    }
  }
  return places;
}

}  // namespace

std::vector<std::string> with_values_attached(const CommandText& program,
                                              std::vector<std::string> words) {
  const auto is_command = [&](const std::string& word) {
    return std::any_of(program.commands.begin(), program.commands.end(),
                       [&](const CommandText& command) { return command.name == word; });
  };
  const auto name = std::find_if(words.begin(), words.end(), is_command);
  if (name == words.end()) return words;
  const auto command = std::find_if(program.commands.begin(), program.commands.end(),
                                    [&](const CommandText& c) { return c.name == *name; });

  Places places = find_places(*command, words, static_cast<std::size_t>(name - words.begin()) + 1);
  for (const OptionText& argument : command->options) {
    if (!argument.positional()) continue;
    if (places.arguments > 0) {
      --places.arguments;
      continue;
    }
    const auto word = std::find_if(places.optional.begin(), places.optional.end(),
                                   [&](std::size_t at) { return serves(argument, words[at]); });
    if (word == places.optional.end()) continue;
    words[*word - 1] += "=-";  // stdout: as without a value
    places.optional.erase(word);
  }
  for (auto at = places.optional.rbegin(); at != places.optional.rend(); ++at) {
    words[*at - 1] += "=" + (words[*at].empty() ? "-" : words[*at]);
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(*at));
  }
  return words;
}

bool OptionText::is_file() const {
  for (const char* word : {"FILE", "IN", "OUT", "TRACE"}) {
    if (value == word || value == "[" + std::string(word) + "]") return true;
  }
  return value.rfind("FILE|", 0) == 0;
}

CommandText describe(const CLI::App& app) {
  CommandText text;
  text.name = app.get_name();
  text.summary = app.get_description();
  text.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) text.options.push_back(describe(*option));
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_group().empty()) continue;
    text.commands.push_back(describe(*command));
    // The parser hands the program's own footer down to commands without one.
    if (text.commands.back().footer == text.footer) text.commands.back().footer.clear();
  }
  return text;
}

}  // namespace msa::cli
