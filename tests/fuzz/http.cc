// The bytes of a connection, to the HTTP server and its router: requests, and what is none. The
// server speaks through a pair of sockets, without its threads and without a network.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "http/connection.h"
#include "http/server.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

// Answers with what the request was understood to be.
void Echo(const http::Request& request, const http::Responder& responder) {
  for (const std::string& capture : request.captures) {
    Require(!capture.empty(), "a captured segment isn't empty");
  }
  Require(request.path.starts_with('/'), "a path is absolute");
  responder.Send({.body = request.method + " " + request.path + " " + request.body});
}

std::vector<http::Route> Routes() {
  return {{"GET", "/", Echo},
          {"GET", "/v1/gangs", Echo},
          {"GET", "/v1/gangs/{namespace}/{name}", Echo},
          {"GET", "/v1/queues/{name}", Echo},
          {"POST", "/filter", Echo}};
}

// What the client has got by the time that the server is done with it.
std::string ReadAll(int client) {
  std::string text;
  std::array<char, 4096> piece;
  ssize_t count = 0;
  while ((count = ::recv(client, piece.data(), piece.size(), MSG_DONTWAIT)) > 0) {
    text.append(piece.data(), static_cast<size_t>(count));
  }
  return text;
}

// The answers to a client that sends `bytes` and then no more.
std::string Converse(std::string_view bytes) {
  std::array<int, 2> ends{};
  Require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "sockets exist");
  const auto [server, client] = ends;
  Require(::send(client, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
          "the input fits into the socket");
  ::shutdown(client, SHUT_WR);
  auto core = std::make_shared<http::ServerCore>(
      http::ServerOptions{.threads = 1, .header_limit = 2048, .body_limit = 4096}, Routes());
  boost::asio::ip::tcp::socket socket(core->context, boost::asio::ip::tcp::v4(), server);
  http::MakeConnection(core, std::move(socket), nullptr)->Start();
  // Until nothing is under way: the connection has ended.
  core->context.run();
  std::string answers = ReadAll(client);
  ::close(client);
  return answers;
}

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  using namespace muster::fuzz;
  const std::string answers = Converse(input);
  Require(answers.empty() || answers.starts_with("HTTP/1."), "an answer is HTTP");
  Require(answers.size() <= 300 * (input.size() + 10), "answers are about as large as questions");
}
