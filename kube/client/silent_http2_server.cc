#include "kube/client/silent_http2_server.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <string>
#include <string_view>

namespace muster::kube {
namespace {

// RFC 9113, 3.4 and 6.
constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHeaderBytes = 9;
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kSettings = 4;
constexpr uint8_t kAck = 1;
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kEndHeaders = 4;
// RFC 7541, appendix A: ":status: 200" and ":status: 204" of the static table.
constexpr char kStatus200 = static_cast<char>(0x88);
constexpr char kStatus204 = static_cast<char>(0x89);

int SelectHttp2(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                unsigned in_size, void*) {
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  unsigned char* selected = nullptr;
  const int result = SSL_select_next_proto(&selected, out_size, kHttp2, sizeof kHttp2, in, in_size);
  *out = selected;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

SSL_CTX* MakeContext(const TestCertificate& certificate) {
  SSL_CTX* context = MakeServerContext(certificate.certificate_pem, certificate.key_pem);
  SSL_CTX_set_alpn_select_cb(context, &SelectHttp2, nullptr);
  return context;
}

bool ReadFully(SSL* ssl, std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const int size = SSL_read(ssl, bytes.data() + done, static_cast<int>(bytes.size() - done));
    if (size <= 0) return false;
    done += size;
  }
  return true;
}

// `stream` is the frame's four bytes that name the stream.
void WriteFrame(SSL* ssl, uint8_t type, uint8_t flags, std::string_view stream,
                std::string_view payload) {
  std::string frame = {0, 0, static_cast<char>(payload.size()), static_cast<char>(type),
                       static_cast<char>(flags)};
  frame += stream;
  frame += payload;
  SSL_write(ssl, frame.data(), static_cast<int>(frame.size()));
}

}  // namespace

SilentHttp2Server::SilentHttp2Server(const TestCertificate& certificate,
                                     std::function<Answer(int)> answer)
    : answer_(std::move(answer)),
      context_(MakeContext(certificate)),
      listener_([this](int socket, int number) { Serve(socket, number); }) {}

SilentHttp2Server::~SilentHttp2Server() {
  listener_.Stop();
  SSL_CTX_free(context_);
}

void SilentHttp2Server::Serve(int fd, int number) {
  constexpr std::string_view kConnection("\0\0\0\0", 4);
  SSL* ssl = SSL_new(context_);
  SSL_set_fd(ssl, fd);
  std::string preface(kPreface.size(), '\0');
  bool open = SSL_accept(ssl) == 1 && ReadFully(ssl, preface) && preface == kPreface;
  if (open) WriteFrame(ssl, kSettings, 0, kConnection, "");
  std::string header(kFrameHeaderBytes, '\0');
  while (open && ReadFully(ssl, header)) {
    const auto byte = [&header](size_t at) { return static_cast<uint8_t>(header[at]); };
    std::string payload(byte(0) << 16 | byte(1) << 8 | byte(2), '\0');
    open = ReadFully(ssl, payload);
    if (byte(3) == kSettings && !(byte(4) & kAck)) {
      WriteFrame(ssl, kSettings, kAck, kConnection, "");
    }
    if (!open || byte(3) != kHeaders) continue;
    const Answer answer = answer_(number);
    if (answer != Answer::kNone) {
      const bool begun = answer == Answer::kBegun;
      WriteFrame(ssl, kHeaders, begun ? kEndHeaders : kEndStream | kEndHeaders, header.substr(5),
                 {begun ? &kStatus200 : &kStatus204, 1});
    }
    ++requests_;
  }
  SSL_free(ssl);
  ERR_clear_error();
}

}  // namespace muster::kube
