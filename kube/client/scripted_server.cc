#include "kube/client/scripted_server.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>

namespace muster::kube {
namespace {

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return tolower(c); });
  return text;
}

std::string Unescape(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      result += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

X509* ParseCertificate(const std::string& pem) {
  BIO* bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  return certificate;
}

SSL_CTX* MakeContext(const ScriptedServer::Tls& tls) {
  SSL_CTX* context = MakeServerContext(tls.certificate, tls.key);
  if (!tls.client_ca.empty()) {
    X509* ca = ParseCertificate(tls.client_ca);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca);
    X509_free(ca);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  }
  return context;
}

std::string ClientName(ssl_st* ssl) {
  X509* certificate = ssl ? SSL_get1_peer_certificate(ssl) : nullptr;
  if (!certificate) return "";
  char name[256] = {};
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
  X509_free(certificate);
  return name;
}

}  // namespace

std::string ScriptedRequest::path() const { return target.substr(0, target.find('?')); }

std::string ScriptedRequest::query(const std::string& name) const {
  size_t begin = target.find('?');
  while (begin != std::string::npos) {
    const size_t end = target.find('&', ++begin);
    const std::string item = target.substr(begin, end - begin);
    if (item.starts_with(name + "=")) return Unescape(item.substr(name.size() + 1));
    begin = end;
  }
  return "";
}

void ScriptedConnection::WriteRaw(std::string_view bytes) {
  while (!bytes.empty() && !closed_) {
    const auto size = static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20));
    const int written = ssl_ ? SSL_write(ssl_, bytes.data(), size)
                             : static_cast<int>(send(fd_, bytes.data(), size, MSG_NOSIGNAL));
    if (written <= 0) {
      closed_ = true;
      return;
    }
    bytes.remove_prefix(written);
  }
}

int ScriptedConnection::Read(char* data, int size) {
  if (closed_) return 0;
  return ssl_ ? SSL_read(ssl_, data, size) : static_cast<int>(recv(fd_, data, size, 0));
}

void ScriptedConnection::Reply(int status, std::string_view body,
                               const std::string& extra_headers) {
  WriteRaw(fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n{}\r\n{}", status, body.size(),
                       extra_headers, body));
}

void ScriptedConnection::StartStream(int status) {
  WriteRaw(fmt::format("HTTP/1.1 {} X\r\nTransfer-Encoding: chunked\r\n\r\n", status));
}

bool ScriptedConnection::Write(std::string_view bytes) {
  WriteRaw(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
  return !closed_;
}

void ScriptedConnection::EndStream() { WriteRaw("0\r\n\r\n"); }

void ScriptedConnection::Close() {
  closed_ = true;
  shutdown(fd_, SHUT_RDWR);
}

void ScriptedConnection::WaitForClose() {
  char data[256];
  while (Read(data, sizeof data) > 0) {
  }
  closed_ = true;
}

ScriptedServer::ScriptedServer(Script script, const Tls* tls)
    : script_(std::move(script)),
      context_(tls ? MakeContext(*tls) : nullptr),
      listener_([this](int socket, int number) { Serve(socket, number); }) {}

ScriptedServer::~ScriptedServer() {
  listener_.Stop();
  SSL_CTX_free(context_);
}

std::string ScriptedServer::url() const {
  return fmt::format("{}://127.0.0.1:{}", context_ ? "https" : "http", port());
}

void ScriptedServer::Serve(int fd, int number) {
  ScriptedConnection connection;
  connection.fd_ = fd;
  if (context_) {
    connection.ssl_ = SSL_new(context_);
    SSL_set_fd(connection.ssl_, fd);
    if (SSL_accept(connection.ssl_) != 1) connection.closed_ = true;
  }
  std::string buffer;
  ScriptedRequest request;
  while (!listener_.stopping() && !connection.closed_ && ReadRequest(connection, buffer, request)) {
    request.connection = number;
    request.client_name = ClientName(connection.ssl_);
    ++requests_;
    script_(request, connection);
  }
  SSL_free(connection.ssl_);
  ERR_clear_error();
}

bool ScriptedServer::ReadRequest(ScriptedConnection& connection, std::string& buffer,
                                 ScriptedRequest& request) {
  const auto read_more = [&] {
    char data[16384];
    const int size = connection.Read(data, sizeof data);
    if (size > 0) buffer.append(data, size);
    return size > 0;
  };
  size_t end = 0;
  while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
    if (!read_more()) return false;
  }
  request = {};
  const size_t line_end = buffer.find("\r\n");
  const size_t first = buffer.find(' ');
  const size_t second = buffer.find(' ', first + 1);
  request.method = buffer.substr(0, first);
  request.target = buffer.substr(first + 1, second - first - 1);
  for (size_t at = line_end + 2; at < end;) {
    const size_t next = buffer.find("\r\n", at);
    const size_t colon = buffer.find(':', at);
    size_t value = colon + 1;
    while (value < next && buffer[value] == ' ') ++value;
    request.headers[Lower(buffer.substr(at, colon - at))] = buffer.substr(value, next - value);
    at = next + 2;
  }
  buffer.erase(0, end + 4);
  const auto length = request.headers.find("content-length");
  const size_t size = length == request.headers.end() ? 0 : std::stoul(length->second);
  while (buffer.size() < size) {
    if (!read_more()) return false;
  }
  request.body = buffer.substr(0, size);
  buffer.erase(0, size);
  return true;
}

}  // namespace muster::kube
