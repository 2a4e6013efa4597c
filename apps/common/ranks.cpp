#include "apps/common/ranks.h"

#include "core/error.h"
#include "dist/agreement.h"
#include "dist/launch.h"
#include "dist/world.h"

#include <exception>
#include <filesystem>

namespace weft::app {
namespace {

int launch_copies(int argc, char** argv, const CommonFlags& flags) {
  dist::LaunchOptions options;
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  WEFT_CHECK(!error, "launch", "expected the path of this program, got ", error.message());
  options.command = {program};
  options.command.insert(options.command.end(), argv + 1, argv + argc);
  options.ranks = static_cast<int>(flags.workers);
  options.log_directory = flags.run_dir + "/logs";
  options.name = std::filesystem::path(program).filename().string();
  return dist::launch(options);
}

}  // namespace

int run_ranks(int argc, char** argv, const CommonFlags& flags,
              const std::function<void(dist::Communicator& comm)>& body) {
  if (!flags.environment.launched() && flags.workers > 1) return launch_copies(argc, argv, flags);
  const auto comm = dist::join_world(
      flags.environment,
      {.backend = flags.backend, .communicator = {.timeout_seconds = flags.timeout}});
  try {
    dist::check_agreement(*comm, "flags", flags.agreed);
    body(*comm);
    comm->wait_all();
  } catch (const dist::CommunicationError&) {
    throw;  // the others know
  } catch (const std::exception& error) {
    comm->abort(error.what());
    throw;
  }
  return 0;
}

}  // namespace weft::app
