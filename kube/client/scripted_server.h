// An HTTP/1.1 server for tests that does exactly what its script says, faults included.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

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

  int port() const { return port_; }
  std::string url() const;
  int requests() const { return requests_; }
  int connections() const { return connections_; }

 private:
  void Accept();
  void Serve(int fd, int number);
  bool ReadRequest(ScriptedConnection& connection, std::string& buffer, ScriptedRequest& request);

  Script script_;
  ssl_ctx_st* context_ = nullptr;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> requests_ = 0;
  std::atomic<int> connections_ = 0;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::list<int> open_;
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace muster::kube
