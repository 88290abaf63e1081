#include "http/testing/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/time/clock.h"
#include "fmt/format.h"

namespace muster::http {

bool AllowManyConnections() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return false;
  files.rlim_cur = std::max<rlim_t>(files.rlim_cur, std::min<rlim_t>(files.rlim_max, 10'000));
  return setrlimit(RLIMIT_NOFILE, &files) == 0;
}

RawClient::RawClient(uint16_t port, const char* from)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = inet_addr(from);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd_ < 0 || bind(fd_, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0 ||
      connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    std::perror("RawClient: connect");
    std::abort();
  }
}

RawClient::~RawClient() { close(fd_); }

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawClient::Fill(absl::Time until) {
  if (closed_) return false;
  pollfd poll_fd{fd_, POLLIN, 0};
  const int64_t left = absl::ToInt64Milliseconds(until - absl::Now());
  if (left <= 0 || poll(&poll_fd, 1, static_cast<int>(left)) <= 0) return false;
  char chunk[65536];
  const ssize_t got = recv(fd_, chunk, sizeof chunk, 0);
  if (got <= 0) {
    closed_ = true;
    return false;
  }
  pending_.append(chunk, static_cast<size_t>(got));
  return true;
}

std::string RawClient::ReadUntil(std::string_view end, absl::Duration limit) {
  const absl::Time until = absl::Now() + limit;
  size_t found;
  while ((found = pending_.find(end)) == std::string::npos) {
    if (!Fill(until)) return std::exchange(pending_, {});
  }
  std::string result = pending_.substr(0, found + end.size());
  pending_.erase(0, found + end.size());
  return result;
}

RawClient::Message RawClient::ReadMessage(absl::Duration limit) {
  const absl::Time until = absl::Now() + limit;
  Message message;
  message.header = ReadUntil("\r\n\r\n", limit);
  if (message.header.size() < 12) return message;
  message.status = std::atoi(message.header.c_str() + 9);
  const size_t length_at = message.header.find("Content-Length: ");
  if (length_at == std::string::npos) return message;
  const size_t length = std::strtoul(message.header.c_str() + length_at + 16, nullptr, 10);
  while (pending_.size() < length && Fill(until)) {
  }
  message.body = pending_.substr(0, length);
  pending_.erase(0, length);
  return message;
}

bool RawClient::AwaitClose(absl::Duration limit) {
  const absl::Time until = absl::Now() + limit;
  while (!closed_ && absl::Now() < until) {
    Fill(until);
    pending_.clear();
  }
  return closed_;
}

void RawClient::CloseWriting() { shutdown(fd_, SHUT_WR); }

std::string RawPost(std::string_view path, std::string_view body) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      path, body.size(), body);
}

std::string RawGet(std::string_view path) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
}

}  // namespace muster::http
