#include "quota/testing/oracle_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace muster::quota::testing {
namespace {

void Check(bool holds, const char* what) {
  if (holds) return;
  std::perror(what);
  std::abort();
}

}  // namespace

OracleProcess::OracleProcess(const std::string& binary, const std::string& argument) {
  std::array<int, 2> in = {};
  std::array<int, 2> out = {};
  Check(pipe(in.data()) == 0 && pipe(out.data()) == 0, "pipe");
  process_ = fork();
  Check(process_ >= 0, "fork");
  if (process_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    for (int end : {in[0], in[1], out[0], out[1]}) close(end);
    const char* given = argument.empty() ? nullptr : argument.c_str();
    execl(binary.c_str(), binary.c_str(), given, nullptr);
    std::perror(binary.c_str());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
}

OracleProcess::~OracleProcess() {
  close(to_);
  close(from_);
  waitpid(process_, nullptr, 0);
}

nlohmann::json OracleProcess::Ask(const nlohmann::json& question) {
  const std::string line = question.dump() + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count = write(to_, line.data() + sent, line.size() - sent);
    Check(count > 0, "writing to the oracle");
    sent += static_cast<size_t>(count);
  }
  size_t end = unread_.find('\n');
  while (end == std::string::npos) {
    std::array<char, 1 << 16> chunk;
    const ssize_t count = read(from_, chunk.data(), chunk.size());
    Check(count > 0, "reading from the oracle");
    unread_.append(chunk.data(), static_cast<size_t>(count));
    end = unread_.find('\n');
  }
  nlohmann::json answer = nlohmann::json::parse(unread_.substr(0, end));
  unread_.erase(0, end + 1);
  return answer;
}

}  // namespace muster::quota::testing
