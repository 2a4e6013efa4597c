#include "tests/support/runs.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace weft::test {
namespace {

void append_big_endian(std::string& to, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    to += static_cast<char>(value >> shift);
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_images(const std::string& prefix, uint32_t count) {
  std::string images;
  std::string labels;
  append_big_endian(images, 0x00000803);
  for (const uint32_t size : {count, 28U, 28U})
    append_big_endian(images, size);
  append_big_endian(labels, 0x00000801);
  append_big_endian(labels, count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t label = i * 7 % 10;
    labels += static_cast<char>(label);
    for (uint32_t pixel = 0; pixel < 784; ++pixel)
      images += static_cast<char>(pixel / 78 == label ? 200 : (pixel * i) % 64);
  }
  std::ofstream(prefix + "-images-idx3-ubyte", std::ios::binary) << images;
  std::ofstream(prefix + "-labels-idx1-ubyte", std::ios::binary) << labels;
}

Program::Program(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
  std::vector<char*> arguments;
  for (const std::string& word : words)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  process_ = fork();
  if (process_ == 0) {
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(ends[1]);
  output_ = ends[0];
}

Program::~Program() {
  if (!ended_) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  close(output_);
}

void Program::signal(int number) const {
  kill(process_, number);
}

ProgramResult Program::wait() {
  ProgramResult result;
  std::array<char, 4096> bytes;
  for (ssize_t got = 0; (got = read(output_, bytes.data(), bytes.size())) > 0;)
    result.output.append(bytes.data(), static_cast<size_t>(got));
  int status = 0;
  waitpid(process_, &status, 0);
  ended_ = true;
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

ProgramResult run_program(const std::vector<std::string>& words) {
  return Program(words).wait();
}

bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 12000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process <= 0 || process == getpid()) continue;
    // A zombie has no command line.
    if (read_file(entry.path().string() + "/cmdline").find(text) != std::string::npos)
      found.push_back(process);
  }
  return found;
}

std::vector<std::string> column(const std::string& path, const std::string& name) {
  std::vector<std::string> values;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json value = Json::parse(line).at(name);
    values.push_back(value.is_text() ? value.text() : value.dump());
  }
  return values;
}

}  // namespace weft::test
