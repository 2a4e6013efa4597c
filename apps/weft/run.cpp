#include "apps/weft/run.h"

#include "core/error.h"
#include "dist/launch.h"

#include <cstdlib>

namespace weft::app {

RunCommand::RunCommand(CommandLine& weft)
    : line_(weft.command("run", "Start the ranks of a program, here or on several hosts.")) {
  const char* ssh = std::getenv("WEFT_SSH");
  ssh_ = ssh && *ssh ? ssh : dist::LaunchOptions().ssh;
  line_.add("-n,--ranks", ranks_, "ranks to start, 0 for all slots of the hosts", 0, 1 << 20);
  line_.add("--hosts", hosts_,
            "hosts with the ranks each takes, such as a,b:4; ranks fill them in order; "
            "localhost is this one");
  line_.add("--ssh", ssh_,
            "program that runs a command line on a host, with its options; WEFT_SSH sets it too");
  line_.add("--master-addr", master_address_,
            "address of rank 0's host as the others know it, by default the first host's name");
  line_.add("--master-port", master_port_, "port of rank 0, 0 for a free one", 0, 65535);
  line_.add("--log-dir", log_directory_,
            "folder for rank-N.log; by default a temporary one, kept if a rank fails");
  line_.add_switch("--all-output", all_output_,
                   "show the lines of all ranks, marked with the rank, not of rank 0 alone");
  line_.add("--time-limit", time_limit_,
            "seconds after which all ranks are ended (exit code 124), 0: none", 0.0, 1e9);
  line_.add_rest("program and its arguments", command_);
}

int RunCommand::run() {
  dist::LaunchOptions options;
  options.command = command_;
  try {
    if (!hosts_.empty()) options.hosts = dist::parse_hosts(hosts_);
  } catch (const Error& error) {
    return line_.reject(std::string("--hosts: ") + error.what());
  }
  int64_t slots = 0;
  for (const dist::Host& host : options.hosts)
    slots += host.slots;
  if (ranks_ == 0) ranks_ = slots;
  if (ranks_ == 0) return line_.reject("-n: expected the number of ranks, or --hosts");
  if (!hosts_.empty() && ranks_ > slots) {
    return line_.reject("-n: expected at most the hosts' " + std::to_string(slots) +
                        " slots, got " + std::to_string(ranks_));
  }
  options.ranks = static_cast<int>(ranks_);
  options.ssh = ssh_;
  options.master_address = master_address_;
  options.master_port = static_cast<int>(master_port_);
  options.log_directory = log_directory_;
  options.show_all = all_output_;
  options.time_limit_seconds = time_limit_;
  return dist::launch(options);
}

}  // namespace weft::app
