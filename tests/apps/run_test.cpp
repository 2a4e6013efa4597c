// Programs whose ranks are processes: `weft run`, also through an ssh that is a script, and apps
// that start their own ranks.
#include "tests/support/processes.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>

namespace weft {
namespace {

using test::comes;
using test::read_file;
using test::runs;

using testing::HasSubstr;
using testing::Not;

const std::string kWeft = std::string(WEFT_BIN_DIR) + "/weft";
const std::string kProgram = WEFT_RANKS_PROGRAM;

struct Result {
  int code = -1;
  std::string output;  // standard output and errors
};

// A folder of its own for each test; commands run in it.
class Run : public testing::Test {
 protected:
  Run() {
    for (const char* variable : {"WEFT_SSH", "WEFT_BACKEND", "OMP_NUM_THREADS"})
      unsetenv(variable);
  }

  Result shell(const std::string& command) const {
    std::FILE* pipe =
        popen(("cd " + folder_ + " && { " + command + "\n} 2>&1 </dev/null").c_str(), "r");
    Result result;
    std::array<char, 4096> bytes;
    size_t got = 0;
    while ((got = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0)
      result.output.append(bytes.data(), got);
    const int status = pclose(pipe);
    if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
    return result;
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    std::filesystem::permissions(folder_ + "/" + name, std::filesystem::perms::owner_all);
  }
  std::string read(const std::string& name) const { return read_file(folder_ + "/" + name); }
  int number(const std::string& name) const {
    const std::string text = read(name);
    return !text.empty() && text.back() == '\n' ? std::atoi(text.c_str()) : 0;
  }

  // An ssh that notes the host it is asked for and runs the command line here, as ssh does: by a
  // shell in a session of its own, which lives on when ssh is ended and then sees the end of its
  // input.
  void fake_ssh() const {
    write("ssh",
          "#!/bin/sh\n"
          "[ \"$1 $2\" = '-o BatchMode=yes' ] && shift 2\n"
          "[ $# = 2 ] || exit 99\n"
          "echo $1 >> " +
              folder_ +
              "/hosts\n"
              "[ $1 = nowhere ] && { echo 'ssh: no such host' >&2; exit 255; }\n"
              "cd /\n"
              "mkfifo " +
              folder_ + "/input.$$\nexec 3<&0\ncat <&3 >" + folder_ +
              "/input.$$ &\nrelay=$!\n"
              "setsid -w sh -c \"export HOST=$1; $2\" <" +
              folder_ + "/input.$$\ncode=$?\nkill $relay 2>/dev/null\nexit $code\n");
    setenv("PATH", (folder_ + ":" + std::getenv("PATH")).c_str(), 1);
  }

  const test::TemporaryDirectory temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(Run, PassesArgumentsAndReturnsTheFirstFailure) {
  const Result result = shell(kWeft +
                              " run -n 3 --all-output -- sh -c 'echo \"$RANK:$*\"; [ $RANK != 1 ] "
                              "|| exit 9' sh -n 5 --help");
  EXPECT_EQ(result.code, 9);
  for (const char* line : {"[0] 0:-n 5 --help\n", "[1] 1:-n 5 --help\n", "[2] 2:-n 5 --help\n"})
    EXPECT_THAT(result.output, HasSubstr(line));
  EXPECT_THAT(result.output, HasSubstr("weft run: rank 1 of 3 ended with exit code 9\n"));
}

TEST_F(Run, RefusesBadValues) {
  for (const char* arguments : {"", "-n 2", "-n 2 --", "-- true", "-n 0 -- true", "-n x -- true",
                                "-n 3 --hosts a:2 -- true", "--hosts a,a -- true",
                                "--hosts a:0 -- true", "-n 2 --time-limit -1 -- true"}) {
    EXPECT_EQ(shell(kWeft + " run " + arguments).code, 2) << arguments;
  }
  const Result missing = shell(kWeft + " run -n 2 -- no-such-program");
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.output, HasSubstr("expected a program on PATH, got no-such-program"));
}

TEST_F(Run, EndsAtTheTimeLimit) {
  const Result result = shell(kWeft + " run -n 2 --time-limit 0.2 -- sleep 1000");
  EXPECT_EQ(result.code, 124);
}

TEST_F(Run, LogsGoWhereTheyAreWanted) {
  EXPECT_EQ(shell(kWeft + " run -n 2 --log-dir some/where -- sh -c 'echo $RANK'").output, "0\n");
  EXPECT_EQ(read("some/where/rank-1.log"), "1\n");
}

TEST_F(Run, ReachesOtherHosts) {
  fake_ssh();
  const Result result = shell(
      kWeft +
      " run --hosts a:2,localhost,b --all-output -- sh -c "
      "'echo \"${HOST:-here} $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR $(pwd) "
      "$WEFT_JOB\"; printf \"<%s>\" \"$@\"; echo' sh \"it's\" 'two  words' '$HOME' '*'");
  EXPECT_EQ(result.code, 0);
  const size_t job_at = result.output.find(" weft-") + 1;
  const std::string job = result.output.substr(job_at, result.output.find('\n', job_at) - job_at);
  const std::string where = " a " + folder_ + " " + job + "\n";
  EXPECT_THAT(result.output, HasSubstr("[0] a 0/4 0/2" + where));
  EXPECT_THAT(result.output, HasSubstr("[1] a 1/4 1/2" + where));
  EXPECT_THAT(result.output, HasSubstr("[2] here 2/4 0/1" + where));
  EXPECT_THAT(result.output, HasSubstr("[3] b 3/4 0/1" + where));
  for (const char* rank : {"[0]", "[1]", "[2]", "[3]"})
    EXPECT_THAT(result.output, HasSubstr(rank + std::string(" <it's><two  words><$HOME><*>\n")));
  EXPECT_EQ(shell("sort hosts").output, "a\na\nb\n");
}

TEST_F(Run, AHostsFailureIsTheExitCode) {
  fake_ssh();
  const Result failed =
      shell(kWeft + " run --hosts a,b -- sh -c '[ $RANK = 0 ] && sleep 1000; echo reason; exit 6'");
  EXPECT_EQ(failed.code, 6);
  EXPECT_THAT(failed.output,
              HasSubstr("rank 1 of 2 ended with exit code 6; its last lines:\n  | reason\n"));
  const Result nowhere = shell(kWeft + " run --hosts localhost,nowhere -- sleep 1000");
  EXPECT_EQ(nowhere.code, 255);
  EXPECT_THAT(nowhere.output, HasSubstr("  | ssh: no such host\n"));
  setenv("WEFT_SSH", "no-such-ssh -p 2", 1);
  EXPECT_THAT(shell(kWeft + " run --hosts a -- true").output, HasSubstr("got no-such-ssh"));
}

TEST_F(Run, RanksOfOtherHostsEndWithTheLaunch) {
  fake_ssh();
  for (const int signal : {SIGINT, SIGKILL}) {
    const std::string name = "rank" + std::to_string(signal);
    const pid_t launcher = fork();
    if (launcher == 0) {
      if (chdir(folder_.c_str()) != 0 || !std::freopen("/dev/null", "w", stderr)) _exit(98);
      const std::string script = "sleep 1000 & echo $! > " + name + ".child; echo $$ > " + name +
                                 "; trap '' INT; wait; sleep 1000";
      execl(kWeft.c_str(), "weft", "run", "--hosts", "a", "--", "sh", "-c", script.c_str(),
            nullptr);
      _exit(97);
    }
    ASSERT_TRUE(comes([&] { return number(name) > 0 && number(name + ".child") > 0; }));
    kill(launcher, signal);
    int status = 0;
    ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
              signal == SIGINT ? 128 + SIGINT : -SIGKILL);
    EXPECT_TRUE(comes([&] { return !runs(number(name)) && !runs(number(name + ".child")); }));
  }
}

TEST_F(Run, AnAppAloneIsOneRank) {
  const Result result = shell(kProgram + " --threads 1");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, "rank 0 of 1: sum 1, backend thread, threads 1\n");
  EXPECT_EQ(read("ranks_program_run/logs/rank-0.log"), result.output);
  EXPECT_EQ(shell(kProgram + " --threads 1 --backend shm").output,
            "rank 0 of 1: sum 1, backend shm, threads 1\n");
}

TEST_F(Run, AnAppStartsItsRanks) {
  const Result result = shell(kProgram + " --workers 3");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.output, testing::StartsWith("rank 0 of 3: sum 6, backend shm, threads "));
  EXPECT_THAT(read("ranks_program_run/logs/rank-2.log"),
              testing::StartsWith("rank 2 of 3: sum 6, backend shm, threads "));
  // What rank 0 logs and prints is there once.
  EXPECT_EQ(read("ranks_program_run/logs/rank-0.log"), result.output);
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  EXPECT_THAT(result.output,
              HasSubstr("threads " + std::to_string(std::max(1, processors / 3)) + "\n"));
  EXPECT_THAT(shell(kProgram + " --workers 2 --threads 3").output, HasSubstr("threads 3\n"));
}

TEST_F(Run, AnAppJoinsTheRanksThatAreThere) {
  const std::string launch = kWeft + " run -n 2 -- " + kProgram;
  for (const char* workers : {"", " --workers 2"}) {
    const Result result = shell(launch + workers);
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.output, HasSubstr("rank 0 of 2: sum 3, backend shm"));
  }
  const Result other = shell(launch + " --workers 3");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.output,
              HasSubstr("--workers: expected the 2 ranks that weft has started, got 3"));
  // By hand, as torchrun does it.
  const Result by_hand = shell("export MASTER_PORT=" + std::to_string(20000 + getpid() % 10000) +
                               " WORLD_SIZE=2 LOCAL_WORLD_SIZE=2\nRANK=1 LOCAL_RANK=1 " + kProgram +
                               " > other &\nRANK=0 LOCAL_RANK=0 " + kProgram + "; wait");
  EXPECT_THAT(by_hand.output, HasSubstr("rank 0 of 2: sum 3, backend shm"));
  EXPECT_THAT(read("other"), HasSubstr("rank 1 of 2: sum 3, backend shm"));
}

TEST_F(Run, AnAppRefusesWhatContradictsItself) {
  const auto refused = [&](const std::string& command, const std::string& text) {
    const Result result = shell(command);
    EXPECT_EQ(result.code, 2) << command;
    EXPECT_THAT(result.output, HasSubstr(text));
  };
  refused("RANK=3 WORLD_SIZE=2 " + kProgram, "expected RANK to be less than WORLD_SIZE");
  refused(kProgram + " --workers 2 --strategy single", "for 2 ranks, got single");
  refused(kProgram + " --workers 0", "--workers");
  refused(kProgram + " --backend carrier-pigeon", "--backend");
  EXPECT_THAT(shell(kProgram + " --workers 2 --backend thread").output,
              HasSubstr("expected one rank for the backend thread, got 2"));
}

// Ranks that a launcher has started with different flags find out before they begin.
TEST_F(Run, RanksOfDifferentFlagsNameTheFlag) {
  int port = 20000 + getpid() % 10000;
  const auto together = [&](const std::string& first, const std::string& second) {
    const Result result =
        shell("export MASTER_PORT=" + std::to_string(++port) +
              " WORLD_SIZE=2 LOCAL_WORLD_SIZE=2\n(RANK=1 LOCAL_RANK=1 " + kProgram + " " + second +
              " > other 2>&1; echo code $? >> other) &\nRANK=0 LOCAL_RANK=0 " + kProgram + " " +
              first + " 2>&1; echo code $?; wait");
    return std::pair(result.output, read("other"));
  };
  const auto differs = [&](const std::string& first, const std::string& second,
                           const std::string& text) {
    const auto [output, other] = together(first, second);
    for (const std::string& each : {output, other}) {
      EXPECT_THAT(each, HasSubstr("[flags] expected the same on every rank, got " + text));
      EXPECT_THAT(each, HasSubstr("code 1\n"));
    }
  };
  differs("--strategy zero1", "--strategy fsdp",
          "--strategy fsdp on rank 1 where rank 0 has --strategy zero1");
  differs("", "--export model", "--export on rank 1 where rank 0 has no --export");
  differs("--lr 0.5", "", "--lr 0.1 on rank 1 where rank 0 has --lr 0.5");
  // What may differ, or comes to the same.
  const auto [output, other] =
      together("--strategy ddp --threads 1 --export a", "--export b --quiet");
  EXPECT_THAT(output, HasSubstr("code 0\n"));
  EXPECT_THAT(other, HasSubstr("code 0\n"));
}

TEST_F(Run, ARankThatFailsIsNamedByAll) {
  struct Case {
    const char* act;
    int code;
    const char* first;
  };
  for (const Case& each :
       {Case{"throw", 1, "expected nothing, got this"}, Case{"exit", 17, "ended with exit code 17"},
        Case{"kill", 128 + SIGKILL, "was ended by SIGKILL"}}) {
    const Result result = shell(kProgram + " --workers 3 --act " + each.act);
    EXPECT_EQ(result.code, each.code) << each.act << result.output;
    EXPECT_THAT(result.output, HasSubstr(each.first));
    for (const char* survivor : {"rank-0.log", "rank-2.log"}) {
      EXPECT_THAT(read("ranks_program_run/logs/" + std::string(survivor)), HasSubstr("no rank 1: "))
          << each.act;
    }
  }
}

TEST_F(Run, ARankThatDoesNotComeIsNamedAfterTheTimeout) {
  const Result result = shell(kProgram + " --workers 3 --act stop --timeout 0.5");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(read("ranks_program_run/logs/rank-0.log"),
              testing::AllOf(HasSubstr("rank 1"), HasSubstr("second")));
}

}  // namespace
}  // namespace weft
