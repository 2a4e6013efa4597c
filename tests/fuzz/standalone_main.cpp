// A small stand-in for libFuzzer, so that every fuzzer also runs where only g++ is at hand.
//
//   NAME_fuzz [-runs=N] [-seed=S] [-max_len=BYTES] CORPUS...
//
// Feeds each corpus file (folders are walked in sorted order) as it is, then N inputs mutated from
// them. The same seed, corpus and N give the same inputs. An input that crashes is written to
// crash-SEED-RUN; giving that file as the corpus with -runs=0 replays it. Knows no coverage:
// libFuzzer digs deeper.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);
// Present in sanitizer builds, where a finding ends the process without a signal.
// NOLINTNEXTLINE(bugprone-reserved-identifier): the runtime's own name.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr unsigned seconds_per_input = 30;

// What a signal handler needs to save the input under test; it may touch nothing that allocates.
struct Current {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
  std::array<char, 64> path{};
};
Current current;

void save_current_input() {
  const Current input = current;
  if (input.data == nullptr) return;
  current.data = nullptr;
  const int file = ::open(input.path.data(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return;
  std::size_t written = 0;
  while (written < input.size) {
    const ssize_t n = ::write(file, input.data + written, input.size - written);
    if (n <= 0) break;
    written += static_cast<std::size_t>(n);
  }
  ::close(file);
  constexpr std::string_view note = "fuzz: the failing input is in ";
  (void)!::write(STDERR_FILENO, note.data(), note.size());
  (void)!::write(STDERR_FILENO, input.path.data(), std::strlen(input.path.data()));
  (void)!::write(STDERR_FILENO, "\n", 1);
}

void on_signal(int signal) {
  save_current_input();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// splitmix64 (Steele, Lea, Flood 2014): the standard library's distributions differ between
// libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  // In [0, bound), bound at least 1.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

 private:
  std::uint64_t state_;
};

// The edges parsers trip over: signs, wraps, sizes that overflow when multiplied.
constexpr std::array<std::uint64_t, 16> edges = {
    0,          1,          2,           0x7f,
    0x80,       0xff,       0x7fff,      0x8000,
    0xffff,     0x7fffffff, 0x80000000,  0xffffffff,
    0x40000000, 0x3fffffff, 1ULL << 62U, ~std::uint64_t{0}};

void write_integer(Bytes& input, Random& random) {
  const std::size_t width = std::size_t{1} << random.below(4);
  if (input.size() < width) return;
  const std::size_t at = random.below(input.size() - width + 1);
  const bool big_endian = random.below(2) == 0;
  std::uint64_t value = edges[random.below(edges.size())];
  // Small numbers keep counts and kinds plausible, so that parsing goes on past them.
  if (random.below(3) == 0) value = random.below(64);
  for (std::size_t i = 0; i < width; ++i) {
    const std::size_t shift = 8 * (big_endian ? width - 1 - i : i);
    input[at + i] = static_cast<std::uint8_t>(value >> shift);
  }
}

void mutate_once(Bytes& input, const std::vector<Bytes>& corpus, Random& random) {
  const auto offset = [](Bytes& bytes, std::size_t at) {
    return bytes.begin() + static_cast<std::ptrdiff_t>(at);
  };
  const std::size_t size = input.size();
  if (size == 0) {
    input.push_back(static_cast<std::uint8_t>(random.next()));
    return;
  }
  const std::size_t at = random.below(size);
  const std::size_t length = 1 + random.below(std::min<std::size_t>(size - at, 64));
  switch (random.below(10)) {
    case 0:
      input[at] ^= static_cast<std::uint8_t>(1U << random.below(8));
      break;
    case 1:
      input[at] = static_cast<std::uint8_t>(random.next());
      break;
    case 2:
    case 3:
      write_integer(input, random);
      break;
    case 4:
      input.resize(at);
      break;
    case 5:
      input.erase(offset(input, at), offset(input, at + length));
      break;
    case 6: {
      const Bytes piece(offset(input, at), offset(input, at + length));
      input.insert(offset(input, random.below(size + 1)), piece.begin(), piece.end());
      break;
    }
    case 7: {
      // The head of this input with the tail of another.
      const Bytes& other = corpus[random.below(corpus.size())];
      const std::size_t from = random.below(other.size() + 1);
      input.resize(at);
      input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      break;
    }
    case 8: {
      // Text formats: a character that means something, where a random byte rarely would.
      constexpr std::string_view meaningful = "0123456789-+.eE,;:\"'{}[]()\\/ \n\r\t";
      input[at] = static_cast<std::uint8_t>(meaningful[random.below(meaningful.size())]);
      break;
    }
    default:
      input.insert(offset(input, at), 1 + random.below(16),
                   static_cast<std::uint8_t>(random.next()));
      break;
  }
}

void run_one(const Bytes& input, std::uint64_t seed, const std::string& run) {
  // An exact copy on the heap, so that a read past the end is one AddressSanitizer sees.
  const Bytes copy(input.begin(), input.end());
  std::snprintf(current.path.data(), current.path.size(), "crash-%llu-%s",
                static_cast<unsigned long long>(seed), run.c_str());
  current.size = copy.size();
  static const std::uint8_t nothing = 0;
  const std::uint8_t* data = copy.empty() ? &nothing : copy.data();
  current.data = data;
  ::alarm(seconds_per_input);
  LLVMFuzzerTestOneInput(data, copy.size());
  ::alarm(0);
  current.data = nullptr;
}

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "fuzz: cannot read %s\n", path.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void add_corpus(const std::filesystem::path& path, std::vector<Bytes>& corpus) {
  if (!std::filesystem::is_directory(path)) {
    corpus.push_back(read_file(path));
    return;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files)
    corpus.push_back(read_file(file));
}

std::uint64_t parse_number(std::string_view argument, std::size_t prefix) {
  std::uint64_t value = 0;
  const char* end = argument.data() + argument.size();
  const auto [stop, error] = std::from_chars(argument.data() + prefix, end, value);
  if (error != std::errc() || stop != end) {
    std::fprintf(stderr, "fuzz: expected a number, got %s\n", std::string(argument).c_str());
    std::exit(2);
  }
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);

  std::uint64_t runs = 10000;
  std::uint64_t seed = 1;
  std::uint64_t max_length = 1U << 16U;
  std::vector<Bytes> corpus;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("-runs=")) {
      runs = parse_number(argument, 6);
    } else if (argument.starts_with("-seed=")) {
      seed = parse_number(argument, 6);
    } else if (argument.starts_with("-max_len=")) {
      max_length = parse_number(argument, 9);
    } else if (argument.starts_with("-")) {
      std::fprintf(stderr, "usage: %s [-runs=N] [-seed=S] [-max_len=BYTES] CORPUS...\n", argv[0]);
      return 2;
    } else {
      add_corpus(argument, corpus);
    }
  }

  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGALRM}) {
    std::signal(signal, on_signal);
  }
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(save_current_input);
  }

  const std::size_t files = corpus.size();
  for (std::size_t i = 0; i < files; ++i)
    run_one(corpus[i], seed, "corpus" + std::to_string(i));
  if (corpus.empty()) corpus.emplace_back();

  for (std::uint64_t run = 0; run < runs; ++run) {
    // Seeded by the run's number alone: any run can be repeated without those before it.
    Random random(seed * 0x100000001b3U + run);
    random.next();
    Bytes input = corpus[random.below(corpus.size())];
    const std::size_t mutations = 1 + random.below(5);
    for (std::size_t i = 0; i < mutations; ++i)
      mutate_once(input, corpus, random);
    if (input.size() > max_length) input.resize(static_cast<std::size_t>(max_length));
    run_one(input, seed, std::to_string(run));
  }
  std::printf("fuzz: %zu corpus files and %llu mutated inputs (seed %llu), no failure\n", files,
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(seed));
  return 0;
}
