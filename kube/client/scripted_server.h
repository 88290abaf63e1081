// An HTTP/1.1 server for tests that does exactly what its script says, faults included.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "kube/client/loopback_listener.h"

struct ssl_ctx_st;
struct ssl_st;

namespace muster::kube {

struct ScriptedRequest {
  std::string method;
  std::string target;                          // path and query as they came
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;
  std::string client_name;  // common name of the TLS client certificate
  int connection = 0;       // counts from 1

  std::string path() const;
  // Unescaped; empty if absent.
  std::string query(const std::string& name) const;
};

// The connection a request came on, for its script to write to.
class ScriptedConnection {
 public:
  void Reply(int status, std::string_view body, const std::string& extra_headers = "");
  void StartStream(int status = 200);
  // One chunk. False once the client has gone.
  bool Write(std::string_view bytes);
  bool WriteLine(std::string_view line) { return Write(std::string(line) + "\n"); }
  void EndStream();
  // Cut, without an ordinary end.
  void Close();
  void WriteRaw(std::string_view bytes);
  // Until the client closes the connection or the server stops.
  void WaitForClose();

 private:
  friend class ScriptedServer;
  int Read(char* data, int size);

  int fd_ = -1;
  ssl_st* ssl_ = nullptr;
  bool closed_ = false;
};

class ScriptedServer {
 public:
  using Script = std::function<void(const ScriptedRequest&, ScriptedConnection&)>;

  // PEM texts for TLS; without them the server speaks plain HTTP.
  struct Tls {
    std::string certificate;
    std::string key;
    std::string client_ca;  // empty: client certificates aren't asked for
  };

  // The script runs on the connection's own thread, once for each request.
  explicit ScriptedServer(Script script) : ScriptedServer(std::move(script), nullptr) {}
  ScriptedServer(Script script, const Tls* tls);
  ~ScriptedServer();

  int port() const { return listener_.port(); }
  std::string url() const;
  int requests() const { return requests_; }
  int connections() const { return listener_.connections(); }

 private:
  void Serve(int fd, int number);
  bool ReadRequest(ScriptedConnection& connection, std::string& buffer, ScriptedRequest& request);

  const Script script_;
  ssl_ctx_st* const context_;
  std::atomic<int> requests_ = 0;
  LoopbackListener listener_;  // last: its threads use the rest
};

}  // namespace muster::kube
