#include "apps/common/command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>

namespace weft::app {

struct CommandLine::State {
  std::string program;
  std::unique_ptr<CLI::App> owned;  // null for a command below another
  CLI::App* app = nullptr;
  std::vector<std::unique_ptr<CommandLine>> commands;
  std::string rest_name;
  std::vector<std::string>* rest = nullptr;
};

CommandLine::CommandLine(std::string program, const std::string& description)
    : state_(std::make_unique<State>()) {
  state_->program = std::move(program);
  state_->owned = std::make_unique<CLI::App>(description, state_->program);
  state_->app = state_->owned.get();
  state_->app->option_defaults()->always_capture_default();
}
CommandLine::CommandLine(std::unique_ptr<State> state) : state_(std::move(state)) {}
CommandLine::CommandLine(CommandLine&&) noexcept = default;
CommandLine::~CommandLine() = default;

void CommandLine::add(const std::string& flag, std::string& value, const std::string& help) {
  state_->app->add_option(flag, value, help)->type_name("TEXT");
}

void CommandLine::add(const std::string& flag, int64_t& value, const std::string& help, int64_t low,
                      int64_t high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    int64_t number = 0;
    const bool sound = CLI::detail::lexical_cast(text, number);
    if (sound && number >= low && number <= high) return {};
    const std::string bounds =
        high == INT64_MAX ? "of at least " + std::to_string(low)
                          : "in [" + std::to_string(low) + ", " + std::to_string(high) + "]";
    return "expected an integer " + bounds + ", got '" + text + "'";
  };
  state_->app->add_option(flag, value, help)->type_name("N")->check(CLI::Validator(check, ""));
}

void CommandLine::add(const std::string& flag, double& value, const std::string& help, double low,
                      double high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    double number = 0;
    if (CLI::detail::lexical_cast(text, number) && number >= low && number <= high) return {};
    char bounds[64];
    std::snprintf(bounds, sizeof bounds, "expected a number in [%g, %g], got ", low, high);
    return bounds + ("'" + text + "'");
  };
  state_->app->add_option(flag, value, help)->type_name("X")->check(CLI::Validator(check, ""));
}

void CommandLine::add_switch(const std::string& flag, bool& value, const std::string& help) {
  state_->app->add_flag(flag, value, help);
}

void CommandLine::add_choice(const std::string& flag, std::string& value,
                             const std::vector<std::string>& choices, const std::string& help) {
  std::string list;
  for (const std::string& choice : choices)
    list += (list.empty() ? "" : "|") + choice;
  const auto check = [choices, list](const std::string& text) -> std::string {
    for (const std::string& choice : choices) {
      if (text == choice) return {};
    }
    return "expected one of " + list + ", got '" + text + "'";
  };
  state_->app->add_option(flag, value, help)->type_name(list)->check(CLI::Validator(check, ""));
}

void CommandLine::add_bytes(const std::string& flag, int64_t& value, const std::string& help) {
  const auto parse = [&value, flag](const std::vector<std::string>& texts) {
    const std::string& text = texts.at(0);
    size_t used = 0;
    double number = -1;
    try {
      number = std::stod(text, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    const std::string unit = text.substr(used);
    constexpr const char* letters = "KMGT";
    double scale = unit.empty() || unit == "B" ? 1 : 0;
    for (int i = 0; i < 4; ++i) {
      const std::string letter(1, letters[i]);
      if (unit == letter + "iB") scale = std::pow(1024.0, i + 1);
      if (unit == letter + "B") scale = std::pow(1000.0, i + 1);
    }
    const double bytes = number * scale;
    if (used == 0 || scale == 0 || !(bytes >= 1) || bytes > 9e18) {
      throw CLI::ValidationError(
          flag, "expected a number of bytes such as 1000000 or 64MiB, got '" + text + "'");
    }
    value = static_cast<int64_t>(bytes);
    return true;
  };
  state_->app->add_option(flag, parse, help)->type_name("BYTES");
}

void CommandLine::add_argument(const std::string& what, std::string& value,
                               const std::string& help) {
  state_->app->add_option(what, value, help)->required()->type_name("");
}

void CommandLine::add_rest(const std::string& what, std::vector<std::string>& rest) {
  state_->rest_name = what;
  state_->rest = &rest;
  state_->app->footer("After the options: -- " + what);
}

CommandLine& CommandLine::command(const std::string& name, const std::string& description) {
  auto state = std::make_unique<State>();
  state->program = state_->program + " " + name;
  state->app = state_->app->add_subcommand(name, description);
  state->app->option_defaults()->always_capture_default();
  state_->app->require_subcommand(1);
  state_->commands.push_back(std::unique_ptr<CommandLine>(new CommandLine(std::move(state))));
  return *state_->commands.back();
}

bool CommandLine::chosen() const {
  return state_->app->parsed();
}

bool CommandLine::given(const std::string& flag) const {
  return state_->app->count(flag) > 0;
}

std::vector<std::pair<std::string, std::string>> CommandLine::settings() const {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const CLI::Option* option : state_->app->get_options()) {
    if (option == state_->app->get_help_ptr()) continue;
    std::string value = option->get_default_str();
    if (option->count() > 0) value = CLI::detail::join(option->results(), " ");
    settings.emplace_back(option->get_name(), value);
  }
  return settings;
}

std::optional<int> CommandLine::parse(int argc, char** argv) {
  // CLI11 would look for options behind "--", too.
  const auto takes_rest = [](const auto& command) { return command->state_->rest != nullptr; };
  const bool cut =
      takes_rest(this) || std::any_of(state_->commands.begin(), state_->commands.end(), takes_rest);
  char** const end = cut ? std::find_if(argv, argv + argc,
                                        [](const char* word) { return word == std::string("--"); })
                         : argv + argc;
  try {
    state_->app->parse(static_cast<int>(end - argv), argv);
    return take_rest(end, argv + argc);
  } catch (const CLI::CallForHelp& help) {
    return state_->app->exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return state_->app->exit(help);
  } catch (const CLI::ParseError& error) {
    return reject(error.what());
  }
}

std::optional<int> CommandLine::take_rest(char** begin, char** end) {
  for (const auto& command : state_->commands) {
    if (command->chosen()) return command->take_rest(begin, end);
  }
  if (state_->rest && end - begin < 2) return reject("expected -- " + state_->rest_name);
  if (!state_->rest && begin != end) return reject("expected nothing behind the options, got --");
  if (state_->rest) state_->rest->assign(begin + 1, end);
  return std::nullopt;
}

int CommandLine::reject(const std::string& message) const {
  std::fprintf(stderr, "%s: %s (--help lists what it takes)\n", state_->program.c_str(),
               message.c_str());
  return 2;
}

int run_guarded(const std::string& program, int (*body)(int, char**), int argc, char** argv) {
  try {
    return body(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
    return 1;
  }
}

}  // namespace weft::app
