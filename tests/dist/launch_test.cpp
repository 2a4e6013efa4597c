// Ranks as processes: who they are told to be, where their output goes, how they end, and that
// nobody stays behind. The ranks are shell scripts; what a launch shows is caught in files.
#include "dist/launch.h"

#include "core/error.h"
#include "dist/environment.h"
#include "tests/support/processes.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace weft::dist {
namespace {

using test::comes;
using test::read_file;
using test::runs;

using testing::HasSubstr;

// A file in memory in place of a terminal.
class Caught {
 public:
  Caught() : descriptor_(memfd_create("caught", MFD_CLOEXEC)) {}
  ~Caught() { close(descriptor_); }
  Caught(const Caught&) = delete;
  Caught& operator=(const Caught&) = delete;
  int descriptor() const { return descriptor_; }
  std::string text() const { return read_file("/proc/self/fd/" + std::to_string(descriptor_)); }

 private:
  int descriptor_;
};

class Launch : public testing::Test {
 protected:
  Launch() {
    options_.name = "test";
    options_.output = output_.descriptor();
    options_.errors = errors_.descriptor();
    options_.log_directory = folder_ + "/logs";
  }

  // `script` finds this test's folder in $F.
  void set_script(const std::string& script, int ranks) {
    options_.command = {"sh", "-c", "F=" + folder_ + "\n" + script};
    options_.ranks = ranks;
  }
  int run(const std::string& script, int ranks) {
    set_script(script, ranks);
    return launch(options_);
  }
  std::string log(int rank) const {
    return read_file(folder_ + "/logs/rank-" + std::to_string(rank) + ".log");
  }
  // The numbers in the files NAME.* of the folder.
  std::vector<int> processes(const std::string& name) const {
    std::vector<int> result;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (entry.path().stem() != name) continue;
      std::istringstream text(read_file(entry.path().string()));
      int process = 0;
      if (text >> process && text.get() == '\n') result.push_back(process);
    }
    return result;
  }
  bool none_runs(const std::string& name) const {
    for (const int process : processes(name)) {
      if (!comes([&] { return !runs(process); })) return false;
    }
    return true;
  }
  // Launches in a child of this process, as a program of its own does.
  int fork_launch() const {
    const pid_t launcher = fork();
    if (launcher != 0) return launcher;
    int code = 99;
    try {
      code = launch(options_);
    } catch (const Error&) {
    }
    _exit(code);
  }

  const test::TemporaryDirectory temporary_;
  const std::string folder_ = temporary_.path();
  Caught output_;
  Caught errors_;
  LaunchOptions options_;
};

constexpr const char* kWait = "while :; do sleep 0.05; done\n";

TEST_F(Launch, RanksKnowWhoTheyAre) {
  ASSERT_EQ(run("env > $F/env.$WEFT_RANK", 3), 0);
  std::string job;
  for (int rank = 0; rank < 3; ++rank) {
    std::map<std::string, std::string> variables;
    std::istringstream text(read_file(folder_ + "/env." + std::to_string(rank)));
    for (std::string line; std::getline(text, line);)
      variables[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
    const RankEnvironment is = read_environment(
        [&](const char* name) {
          const auto found = variables.find(name);
          return found == variables.end() ? nullptr : found->second.c_str();
        },
        1);
    EXPECT_EQ(is.launcher, "weft");
    EXPECT_EQ(is.rank, rank);
    EXPECT_EQ(is.size, 3);
    EXPECT_EQ(is.local_rank, rank);
    EXPECT_EQ(is.local_size, 3);
    EXPECT_EQ(is.master_address, "127.0.0.1");
    EXPECT_GT(is.master_port, 0);
    EXPECT_EQ(variables["RANK"], std::to_string(rank));
    EXPECT_EQ(variables["WORLD_SIZE"], "3");
    EXPECT_EQ(variables["OMP_NUM_THREADS"], std::to_string(std::max(1, own_processors() / 3)));
    EXPECT_EQ(variables["WEFT_LOG"], folder_ + "/logs/rank-" + std::to_string(rank) + ".log");
    if (rank > 0) {
      EXPECT_EQ(is.job, job);
    }
    job = is.job;
  }
  // Another launch is another job.
  ASSERT_EQ(run("echo $WEFT_JOB > $F/job", 1), 0);
  EXPECT_NE(read_file(folder_ + "/job"), job + "\n");
}

TEST_F(Launch, ShowsRankZeroAndLogsAll) {
  ASSERT_EQ(run("echo out $RANK; echo err $RANK >&2", 3), 0);
  EXPECT_EQ(output_.text(), "out 0\n");
  EXPECT_EQ(errors_.text(), "err 0\n");
  EXPECT_THAT(log(0), testing::AllOf(HasSubstr("out 0\n"), HasSubstr("err 0\n")));
  EXPECT_EQ(log(1), "out 1\nerr 1\n");
  EXPECT_EQ(log(2), "out 2\nerr 2\n");
  // A smaller launch leaves no logs of ranks it does not have.
  ASSERT_EQ(run("echo again", 2), 0);
  EXPECT_EQ(log(1), "again\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/logs/rank-2.log"));
}

TEST_F(Launch, ShowsAllWithMarks) {
  options_.show_all = true;
  ASSERT_EQ(run("printf 'one\\ntwo'; sleep 0.01", 2), 0);
  std::multiset<std::string> lines;
  std::istringstream text(output_.text());
  for (std::string line; std::getline(text, line);)
    lines.insert(line);
  EXPECT_EQ(lines, (std::multiset<std::string>{"[0] one", "[0] two", "[1] one", "[1] two"}));
}

TEST_F(Launch, LogsKeepWhatIsSeenLastOfALine) {
  ASSERT_EQ(run("printf 'bar 1\\r\\033[Kbar 2\\r\\033[K'; echo whole >&2; printf "
                "'line\\nwindows\\r\\nhalf'",
                1),
            0);
  EXPECT_EQ(output_.text(), "bar 1\r\033[Kbar 2\r\033[Kline\nwindows\r\nhalf");
  std::multiset<std::string> lines;
  std::istringstream text(log(0));
  for (std::string line; std::getline(text, line);)
    lines.insert(line);
  EXPECT_EQ(lines, (std::multiset<std::string>{"line", "whole", "windows\r", "half"}));
}

TEST_F(Launch, RankZeroHearsOfATerminal) {
  ASSERT_EQ(run("echo ${WEFT_TERMINAL:-none} > $F/terminal.$RANK", 2), 0);
  EXPECT_EQ(read_file(folder_ + "/terminal.0"), "none\n");
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  options_.output = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_EQ(run("echo ${WEFT_TERMINAL:-none} > $F/terminal.$RANK", 2), 0);
  EXPECT_EQ(read_file(folder_ + "/terminal.0"), "1\n");
  EXPECT_EQ(read_file(folder_ + "/terminal.1"), "none\n");
  close(options_.output);
  close(terminal);
}

TEST_F(Launch, OutputLargerThanAPipe) {
  ASSERT_EQ(
      run("i=0; while [ $i -lt 3000 ]; do printf '%d-%d-%0200d\\n' $RANK $i 0; i=$((i+1)); done",
          3),
      0);
  for (int rank = 0; rank < 3; ++rank) {
    std::string all;
    for (int i = 0; i < 3000; ++i)
      all += std::to_string(rank) + "-" + std::to_string(i) + "-" + std::string(200, '0') + "\n";
    EXPECT_TRUE(log(rank) == all) << rank;
    if (rank == 0) {
      EXPECT_TRUE(output_.text() == all);
    }
  }
}

TEST_F(Launch, NobodyReadsTheOutput) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  options_.output = ends[1];
  EXPECT_EQ(run("i=0; while [ $i -lt 3000 ]; do printf '%0200d\\n' 0; i=$((i+1)); done", 1), 0);
  close(ends[1]);
  EXPECT_EQ(log(0).size(), 3000U * 201);
}

TEST_F(Launch, TheFirstFailureIsTheExitCodeAndIsShown) {
  const std::string script = R"(
    if [ $RANK = 2 ]; then
      i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); done
      echo 'the reason' >&2; exit 7
    fi
    while [ ! -e $F/logs/rank-2.log ]; do sleep 0.01; done
    sleep 0.3; echo "verdict of $RANK"; exit 1)";
  EXPECT_EQ(run(script, 4), 7);
  EXPECT_THAT(errors_.text(),
              HasSubstr("test: rank 2 of 4 ended with exit code 7; its last lines:\n"
                        "  | line 11\n"));
  EXPECT_THAT(errors_.text(), HasSubstr("  | line 29\n  | the reason\n"));
  EXPECT_THAT(errors_.text(), HasSubstr("test: logs: " + folder_ + "/logs/rank-N.log\n"));
  EXPECT_THAT(errors_.text(), testing::Not(HasSubstr("line 10\n")));
  // The others had a moment to say something.
  EXPECT_EQ(output_.text(), "verdict of 0\n");
  EXPECT_EQ(log(1), "verdict of 1\n");
}

TEST_F(Launch, ASignalIsAFailure) {
  options_.verdict_seconds = 0.1;
  EXPECT_EQ(run("[ $RANK = 1 ] && { echo dying; kill -SEGV $$; }\n" + std::string(kWait), 2),
            128 + SIGSEGV);
  EXPECT_THAT(errors_.text(),
              HasSubstr("rank 1 of 2 was ended by SIGSEGV; its last lines:\n  | dying\n"));
}

TEST_F(Launch, OthersAreEndedAfterAFailureAlsoIfTheyWillNot) {
  options_.verdict_seconds = 0.1;
  options_.grace_seconds = 0.1;
  EXPECT_EQ(run("trap '' TERM; echo $$ > $F/rank.$RANK; while [ ! -s $F/rank.0 ]; do :; done\n"
                "[ $RANK = 1 ] && exit 3\n" +
                    std::string(kWait),
                3),
            3);
  EXPECT_EQ(processes("rank").size(), 3U);
  EXPECT_TRUE(none_runs("rank"));
}

TEST_F(Launch, AStoppedRankIsEndedToo) {
  options_.verdict_seconds = 0.1;
  EXPECT_EQ(run("echo $$ > $F/rank.$RANK; [ $RANK = 1 ] && kill -STOP $$\n"
                "while [ ! -s $F/rank.1 ]; do :; done; exit 4",
                2),
            4);
  EXPECT_TRUE(none_runs("rank"));
}

TEST_F(Launch, GrandchildrenEndWithTheirRank) {
  // One ends at SIGTERM, one does not hear of it; their ranks are through at once, and well.
  options_.grace_seconds = 0.2;
  EXPECT_EQ(run("sleep 1000 & echo $! > $F/a.$RANK\n"
                "(trap '' TERM; sh -c 'echo $$ > '$F/b.$RANK'; exec sleep 1000') &\n"
                "while [ ! -s $F/b.$RANK ]; do sleep 0.01; done",
                2),
            0);
  EXPECT_EQ(processes("a").size(), 2U);
  EXPECT_EQ(processes("b").size(), 2U);
  EXPECT_TRUE(none_runs("a"));
  EXPECT_TRUE(none_runs("b"));
}

TEST_F(Launch, TheTimeLimitEndsAll) {
  options_.time_limit_seconds = 0.3;
  EXPECT_EQ(run("echo $$ > $F/rank.$RANK\n" + std::string(kWait), 2), kTimeLimitCode);
  EXPECT_THAT(errors_.text(), HasSubstr("test: ending the ranks after 0.3 seconds\n"));
  EXPECT_TRUE(none_runs("rank"));
}

TEST_F(Launch, EightRanksOnFewProcessors) {
  EXPECT_EQ(run("echo $WEFT_LOCAL_RANK of $WEFT_LOCAL_WORLD_SIZE", 8), 0);
  for (int rank = 0; rank < 8; ++rank)
    EXPECT_EQ(log(rank), std::to_string(rank) + " of 8\n");
}

TEST_F(Launch, SignalsArePassedOnAndNothingStays) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string name = "rank" + std::to_string(number);
    set_script("trap 'echo got it; exit 0' " + std::to_string(number) +
                   "\nsleep 1000 & echo $! > $F/" + name + ".child$RANK; echo $$ > $F/" + name +
                   ".$RANK\n" + kWait,
               2);
    const pid_t launcher = fork_launch();
    ASSERT_TRUE(comes([&] { return processes(name).size() == 4; }));
    kill(launcher, number);
    int status = 0;
    ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + number);
    EXPECT_TRUE(none_runs(name));
    EXPECT_THAT(log(1), HasSubstr("got it\n"));
  }
}

TEST_F(Launch, ASecondSignalEndsTheGrace) {
  options_.grace_seconds = 1000;
  set_script("trap 'echo > $F/heard.$RANK' INT; echo $$ > $F/rank.$RANK\n" + std::string(kWait), 2);
  const pid_t launcher = fork_launch();
  ASSERT_TRUE(comes([&] { return processes("rank").size() == 2; }));
  kill(launcher, SIGINT);
  ASSERT_TRUE(comes([&] {
    return access((folder_ + "/heard.0").c_str(), F_OK) == 0 &&
           access((folder_ + "/heard.1").c_str(), F_OK) == 0;
  }));
  kill(launcher, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
  EXPECT_TRUE(none_runs("rank"));
}

TEST_F(Launch, NothingOutlivesAKilledLauncher) {
  set_script(
      "trap '' TERM INT HUP; sh -c 'trap \"\" TERM INT HUP; echo $$ > '$F/child.$RANK'; exec "
      "sleep 1000' &\necho $$ > $F/rank.$RANK\n" +
          std::string(kWait),
      3);
  const pid_t launcher = fork_launch();
  ASSERT_TRUE(
      comes([&] { return processes("rank").size() == 3 && processes("child").size() == 3; }));
  kill(launcher, SIGKILL);
  ASSERT_EQ(waitpid(launcher, nullptr, 0), launcher);
  EXPECT_TRUE(none_runs("rank"));
  EXPECT_TRUE(none_runs("child"));
}

TEST_F(Launch, StopsAndContinuesTheRanks) {
  // No sleep: a shell that waits for its child to begin is not seen to stop.
  set_script("echo $$ > $F/rank.$RANK\nwhile [ ! -e $F/go ]; do :; done", 2);
  const pid_t launcher = fork_launch();
  ASSERT_TRUE(comes([&] { return processes("rank").size() == 2; }));
  kill(launcher, SIGTSTP);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, WUNTRACED), launcher);
  ASSERT_TRUE(WIFSTOPPED(status));
  for (const int rank : processes("rank")) {
    EXPECT_TRUE(comes([&] {
      return read_file("/proc/" + std::to_string(rank) + "/stat").find(") T ") != std::string::npos;
    }));
  }
  std::ofstream(folder_ + "/go") << "go";
  kill(launcher, SIGCONT);
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Launch, TheTimeLimitDoesNotRunWhileStopped) {
  options_.time_limit_seconds = 2;
  set_script("echo $$ > $F/rank.$RANK\nwhile [ ! -e $F/go ]; do :; done", 1);
  const pid_t launcher = fork_launch();
  ASSERT_TRUE(comes([&] { return processes("rank").size() == 1; }));
  kill(launcher, SIGTSTP);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, WUNTRACED), launcher);
  ASSERT_TRUE(WIFSTOPPED(status));
  std::ofstream(folder_ + "/go") << "go";
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  kill(launcher, SIGCONT);
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << errors_.text();
}

TEST_F(Launch, SomebodyHadThisProcessIgnoreItsChildren) {
  struct sigaction ignore {
  }, before{}, after{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGCHLD, &ignore, &before);
  const int code = run("grep SigIgn: /proc/self/status; exit 3", 1);
  sigaction(SIGCHLD, &before, &after);
  EXPECT_EQ(code, 3);
  EXPECT_EQ(after.sa_handler, SIG_IGN) << "it is as it was";
  std::istringstream words(log(0));
  std::string name, mask;
  words >> name >> mask;
  EXPECT_EQ(name, "SigIgn:");
  EXPECT_EQ(std::stoull(mask, nullptr, 16) >> (SIGCHLD - 1) & 1, 0U) << "ranks must not inherit it";
}

// As ssh does, but for the other host: nothing of the environment here is there.
TEST_F(Launch, RanksOnOtherHostsGetTheirThreads) {
  const std::string ssh = folder_ + "/ssh";
  std::ofstream(ssh) << "#!/bin/sh\nshift\nexec env -i PATH=\"$PATH\" sh -c \"$1\"\n";
  std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
  options_.ssh = ssh;
  options_.hosts = {{"elsewhere", 2}};
  const auto threads = [&] { return read_file(folder_ + "/threads"); };
  ASSERT_EQ(run("[ $RANK = 0 ] || echo $OMP_NUM_THREADS > $F/threads", 2), 0);
  EXPECT_EQ(threads(), std::to_string(std::max(1, own_processors() / 2)) + "\n");
  setenv("OMP_NUM_THREADS", "7", 1);
  EXPECT_EQ(run("[ $RANK = 0 ] || echo $OMP_NUM_THREADS > $F/threads", 2), 0);
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(threads(), "7\n");
}

TEST_F(Launch, TemporaryLogsStayOnlyAfterAFailure) {
  options_.log_directory.clear();
  ASSERT_EQ(run("dirname $WEFT_LOG > $F/where", 1), 0);
  std::string where = read_file(folder_ + "/where");
  where.pop_back();
  EXPECT_FALSE(std::filesystem::exists(where));
  ASSERT_EQ(run("dirname $WEFT_LOG > $F/where; echo kept; exit 5", 1), 5);
  where = read_file(folder_ + "/where");
  where.pop_back();
  EXPECT_EQ(read_file(where + "/rank-0.log"), "kept\n");
  std::filesystem::remove_all(where);
}

TEST_F(Launch, WhatCannotBeDoneIsSaid) {
  const auto error_of = [&] {
    try {
      return "no error, code " + std::to_string(launch(options_));
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  options_.command = {"no-such-program-anywhere"};
  EXPECT_EQ(error_of(), "[launch] expected a program on PATH, got no-such-program-anywhere");
  options_.command = {folder_};
  EXPECT_THAT(error_of(), HasSubstr("expected a program that runs, got " + folder_));
  std::ofstream(folder_ + "/script") << "#!/no/such/interpreter\n";
  std::filesystem::permissions(folder_ + "/script", std::filesystem::perms::owner_all);
  options_.command = {folder_ + "/script"};
  EXPECT_THAT(error_of(), HasSubstr("script: No such file or directory"));
  options_.command = {};
  EXPECT_THAT(error_of(), HasSubstr("expected a program, got none"));
  options_.command = {"true"};
  options_.ranks = 0;
  EXPECT_THAT(error_of(), HasSubstr("ranks, got 0"));
  options_.ranks = 3;
  options_.hosts = {{"localhost", 2}};
  EXPECT_THAT(error_of(), HasSubstr("expected 1 to 2 ranks, got 3"));
  options_.log_directory = "/proc/no/place";
  EXPECT_THAT(error_of(), HasSubstr("folder for logs, got /proc/no/place"));
}

TEST(Hosts, AreParsed) {
  const std::vector<Host> hosts = parse_hosts("a,user@b.example:4,localhost:2");
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_EQ(hosts[0].slots, 1);
  EXPECT_EQ(hosts[1].name, "user@b.example");
  EXPECT_EQ(hosts[1].slots, 4);
  EXPECT_EQ(hosts[2].slots, 2);
  for (const char* bad :
       {"", ",", "a,", "a:", "a:0", "a:x", "a:-1", "a:99999999", "-a", "a,a", ":3"})
    EXPECT_THROW(parse_hosts(bad), Error) << bad;
}

}  // namespace
}  // namespace weft::dist
