#include "extender/lab_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "fmt/format.h"

namespace muster::extender {
namespace {

constexpr const char* kLab = "muster-lab";

}  // namespace

bool IsLabCommand(std::string_view command) { return command == "demo" || command == "simulate"; }

absl::Status BecomeLab(char** argv) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string folder = error ? std::string() : here.parent_path().string();
  const std::string beside = folder.empty() ? std::string() : folder + "/" + kLab;
  if (!beside.empty()) {
    execv(beside.c_str(), argv);
    if (errno != ENOENT) {
      return absl::UnavailableError(fmt::format("can't run {}: {}", beside, std::strerror(errno)));
    }
  }
  execvp(kLab, argv);
  if (errno != ENOENT) {
    return absl::UnavailableError(fmt::format("can't run {}: {}", kLab, std::strerror(errno)));
  }
  return absl::NotFoundError(
      fmt::format("`muster {}` is done by {}, which is neither in {} nor on PATH. It is built from "
                  "the same sources, by ./run build {}; put it beside this program",
                  argv[1], kLab, folder.empty() ? "this program's folder" : folder, kLab));
}

}  // namespace muster::extender
