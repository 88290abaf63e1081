// The service's program and this one, side by side: what is in which, and how one finds the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace muster::lab {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kScenario = "tests/scenarios/two_gangs_on_room_for_one.yaml";

struct Ran {
  int exit_code = -1;
  std::string printed;  // on both streams
};

// Through the shell, from the project's root.
Ran InShell(const std::string& command) {
  Ran ran;
  FILE* output = popen((command + " 2>&1").c_str(), "re");
  std::array<char, 4096> piece;
  for (size_t size = 0; (size = fread(piece.data(), 1, piece.size(), output)) > 0;) {
    ran.printed.append(piece.data(), size);
  }
  const int status = pclose(output);
  if (WIFEXITED(status)) ran.exit_code = WEXITSTATUS(status);
  return ran;
}

std::string ContentOf(const char* program) {
  std::string bytes(std::filesystem::file_size(program), '\0');
  std::ifstream(program, std::ios::binary)
      .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

// A program's file holds the mangled names of the functions that are linked into it: a namespace is
// its length and its name.
bool Holds(const std::string& program, std::string_view mangled) {
  return memmem(program.data(), program.size(), mangled.data(), mangled.size()) != nullptr;
}

class Programs : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "programs-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    // As in an image: the one program, alone.
    std::filesystem::copy_file(MUSTER, folder_ / "muster");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Alone() const { return (folder_ / "muster").string(); }

  std::filesystem::path folder_;
};

TEST_F(Programs, TheServiceHoldsNeitherTheApiServerNorTheSimulators) {
  const std::string service = ContentOf(MUSTER);
  const std::string lab = ContentOf(MUSTER_LAB);
  // The server; what lint asks of it, its schemas and pod rules, is in both.
  for (const char* space : {"N6muster4kube8embedded10ServerImpl", "N6muster4kube10simulators",
                            "N6muster10simulation", "N6muster3lab"}) {
    EXPECT_TRUE(Holds(lab, space)) << space << ": no such names at all";
    EXPECT_FALSE(Holds(service, space)) << space;
  }
  EXPECT_TRUE(Holds(service, "N6muster8extender"));
}

TEST_F(Programs, TheServiceHandsSimulateToTheOneBesideIt) {
  const std::string arguments = std::string(" simulate --brief ") + kScenario;
  const Ran lab = InShell(MUSTER_LAB + arguments);
  EXPECT_EQ(lab.exit_code, 0) << lab.printed;
  EXPECT_THAT(lab.printed, HasSubstr("GPU"));
  const Ran service = InShell(MUSTER + arguments);
  EXPECT_EQ(service.exit_code, 0) << service.printed;
  EXPECT_EQ(service.printed, lab.printed);
  EXPECT_EQ(InShell(std::string(MUSTER) + " simulate nothing.yaml").exit_code, 2);
  EXPECT_THAT(InShell(std::string(MUSTER) + " demo --help").printed, HasSubstr("--speed"));
}

TEST_F(Programs, OneThatIsNotBesideItIsLookedForOnThePath) {
  const std::string lab_folder = std::filesystem::path(MUSTER_LAB).parent_path().string();
  const Ran found = InShell("PATH=" + lab_folder + ":$PATH " + Alone() + " simulate --help");
  EXPECT_EQ(found.exit_code, 0);
  EXPECT_THAT(found.printed, HasSubstr("--policy"));
}

TEST_F(Programs, WithoutOneTheServiceSaysWhatToInstall) {
  for (const char* command : {"simulate x.yaml", "demo"}) {
    const Ran ran = InShell("PATH=" + folder_.string() + " " + Alone() + " " + command);
    EXPECT_EQ(ran.exit_code, 2) << command;
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("muster-lab"), HasSubstr(folder_.string()),
                                   HasSubstr("./run build muster-lab")));
  }
  EXPECT_THAT(InShell(Alone() + " --help").printed,
              AllOf(HasSubstr("simulate"), HasSubstr("muster-lab")));
}

TEST_F(Programs, TheApiServerIsServedUntilItIsTold) {
  const std::string config = (folder_ / "config").string();
  const Ran ran =
      InShell(std::string(MUSTER_LAB) + " apiserver --kubeconfig=" + config +
              " & while ! test -s " + config + "; do sleep 0.05; done; kill $!; wait $!");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.printed, StartsWith("http://127.0.0.1:"));
  const Ran refused = InShell(std::string(MUSTER_LAB) + " apiserver --address=0.0.0.0");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.printed, HasSubstr("must be a loopback address"));
}

}  // namespace
}  // namespace muster::lab
