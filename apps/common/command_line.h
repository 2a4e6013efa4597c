// Command lines: flags with checked values, help, one clear line and exit code 2 for what is wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::app {

class CommandLine {
 public:
  CommandLine(std::string program, const std::string& description);
  ~CommandLine();
  CommandLine(CommandLine&&) noexcept;

  // Each flag writes to `value`, whose content beforehand is the default shown by --help. `value`
  // must live until parse() has returned.
  void add(const std::string& flag, std::string& value, const std::string& help);
  void add(const std::string& flag, int64_t& value, const std::string& help, int64_t low,
           int64_t high = INT64_MAX);
  void add(const std::string& flag, double& value, const std::string& help, double low,
           double high);
  void add_switch(const std::string& flag, bool& value, const std::string& help);
  void add_choice(const std::string& flag, std::string& value,
                  const std::vector<std::string>& choices, const std::string& help);
  // A number of bytes, with an optional unit: 1000, 64KiB, 1.5GB.
  void add_bytes(const std::string& flag, int64_t& value, const std::string& help);

  // An argument without a flag; they come in the order in which they are added. `what` names it in
  // messages and help. It must be given.
  void add_argument(const std::string& what, std::string& value, const std::string& help);

  // Everything after "--" goes to `rest`, as it stands; without it that is an error. `what` names
  // it in messages and help.
  void add_rest(const std::string& what, std::vector<std::string>& rest);

  // A command of its own below this one, as in `weft bench op`. Owned by this object.
  CommandLine& command(const std::string& name, const std::string& description);
  // Whether this command was the one typed.
  bool chosen() const;
  // Whether the flag was typed.
  bool given(const std::string& flag) const;

  // After parse(): what every flag of this command stands at, as it was typed or by default:
  // ("--lr", "0.1").
  std::vector<std::pair<std::string, std::string>> settings() const;

  // Returns the exit code where the program should end: 0 after --help, 2 after a message about a
  // bad value.
  std::optional<int> parse(int argc, char** argv);
  // Prints "program: message" to standard error and returns 2, for values that only make sense
  // together.
  int reject(const std::string& message) const;

 private:
  struct State;
  explicit CommandLine(std::unique_ptr<State> state);
  std::optional<int> take_rest(char** begin, char** end);
  std::unique_ptr<State> state_;
};

// Runs `body` and turns what it throws into "program: reason" on standard error and exit code 1.
int run_guarded(const std::string& program, int (*body)(int, char**), int argc, char** argv);

}  // namespace weft::app
