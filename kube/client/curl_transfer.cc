#include "kube/client/curl_transfer.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <new>
#include <utility>

namespace muster::kube {
namespace {

constexpr long kKeepAliveIdleSeconds = 15;
constexpr long kKeepAliveIntervalSeconds = 5;
constexpr unsigned kUnansweredDataMs = 30'000;
constexpr long kBufferBytes = 64 << 10;

// Bytes sent that stay unacknowledged for this long break the connection, where TCP alone would try
// for a quarter of an hour.
int OnSocket(void*, curl_socket_t socket, curlsocktype) {
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnansweredDataMs, sizeof kUnansweredDataMs);
  return CURL_SOCKOPT_OK;
}

bool IsUnreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

void AppendEscaped(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  for (const char c : text) {
    if (IsUnreserved(c)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
}

void Set(CURL* easy, CURLoption option, const std::string& text) {
  curl_easy_setopt(easy, option, text.c_str());
}

void SetBlob(CURL* easy, CURLoption option, const std::string& bytes) {
  if (bytes.empty()) {
    curl_easy_setopt(easy, option, nullptr);
    return;
  }
  curl_blob blob = {const_cast<char*>(bytes.data()), bytes.size(), CURL_BLOB_COPY};
  curl_easy_setopt(easy, option, &blob);
}

void Append(curl_slist*& list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list, line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  list = longer;
}

// Frees what curl_url_get hands out.
std::string Part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  std::string result = text;
  curl_free(text);
  return result;
}

}  // namespace

std::string Target(const Request& request) {
  std::string target = request.path;
  char separator = '?';
  for (const auto& [name, value] : request.query) {
    target += separator;
    AppendEscaped(target, name);
    target += '=';
    AppendEscaped(target, value);
    separator = '&';
  }
  return target;
}

void WatchState::Cancel() {
  cancelled_ = true;
  if (runner_ == std::this_thread::get_id()) return;
  std::lock_guard wait(running_);
}

template <typename Callback>
void WatchState::Run(const Callback& callback) {
  if (cancelled_) return;
  runner_ = std::this_thread::get_id();
  callback();
  runner_ = std::thread::id();
}

void WatchState::DeliverBegun() {
  std::lock_guard lock(running_);
  if (on_begun_) Run(on_begun_);
}

bool WatchState::DeliverLine(std::string_view line) {
  std::lock_guard lock(running_);
  Run([&] { on_line_(line); });
  return !cancelled_;
}

void WatchState::DeliverEnd(absl::StatusOr<Response> end) {
  std::lock_guard lock(running_);
  Run([&] { on_end_(std::move(end)); });
  on_begun_ = nullptr;
  on_line_ = nullptr;
  on_end_ = nullptr;
}

absl::StatusOr<TransferSettings> MakeTransferSettings(ClientConfig config) {
  TransferSettings settings;
  CURLU* url = curl_url();
  const bool parsed = curl_url_set(url, CURLUPART_URL, config.server.c_str(), 0) == CURLUE_OK;
  const std::string scheme = Part(url, CURLUPART_SCHEME);
  const std::string host = Part(url, CURLUPART_HOST);
  const std::string port = Part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  const bool plain = Part(url, CURLUPART_USER).empty() && Part(url, CURLUPART_QUERY).empty();
  std::string path = Part(url, CURLUPART_PATH);
  curl_url_cleanup(url);
  if (!parsed || host.empty() || !plain || (scheme != "https" && scheme != "http")) {
    return absl::InvalidArgumentError(
        fmt::format("server \"{}\" is not a URL like https://host:port", config.server));
  }
  while (path.ends_with('/')) path.pop_back();
  settings.base_url = fmt::format("{}://{}:{}{}", scheme, host, port, path);
  if (!config.tls_server_name.empty() && scheme == "https") {
    settings.base_url = fmt::format("https://{}:{}{}", config.tls_server_name, port, path);
    settings.connect_to = fmt::format("{}:{}:{}:{}", config.tls_server_name, port, host, port);
    settings.host_header = fmt::format("{}:{}", host, port);
  }
  settings.config = std::move(config);
  return settings;
}

CurlTransfer::CurlTransfer(const TransferSettings& settings, OpenSockets& sockets)
    : settings_(settings), easy_(curl_easy_init()), lines_(settings.max_line_bytes) {
  if (easy_ == nullptr) throw std::bad_alloc();
  curl_easy_setopt(easy_, CURLOPT_PRIVATE, this);
  curl_easy_setopt(easy_, CURLOPT_ERRORBUFFER, error_);
  curl_easy_setopt(easy_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy_, CURLOPT_HEADERFUNCTION, &CurlTransfer::OnHeader);
  curl_easy_setopt(easy_, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(easy_, CURLOPT_WRITEFUNCTION, &CurlTransfer::OnBody);
  curl_easy_setopt(easy_, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(easy_, CURLOPT_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(easy_, CURLOPT_CONNECTTIMEOUT_MS, settings.connect_timeout_ms);
  curl_easy_setopt(easy_, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy_, CURLOPT_TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  curl_easy_setopt(easy_, CURLOPT_TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  curl_easy_setopt(easy_, CURLOPT_SOCKOPTFUNCTION, &OnSocket);
  sockets.Attach(easy_);
  curl_easy_setopt(easy_, CURLOPT_PROTOCOLS_STR, "http,https");
  // Without the option libcurl takes the environment's.
  if (!settings.config.proxy_url.empty() || !settings.config.proxy_of_environment) {
    Set(easy_, CURLOPT_PROXY, settings.config.proxy_url);
  }
  Set(easy_, CURLOPT_USERAGENT, settings.user_agent);
  if (!settings.is_https()) {
    curl_easy_setopt(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    return;
  }
  curl_easy_setopt(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2TLS));
  // Rather wait for the first connection to be up than open one for each request.
  curl_easy_setopt(easy_, CURLOPT_PIPEWAIT, 1L);
  curl_easy_setopt(easy_, CURLOPT_SSL_VERIFYPEER, settings.config.insecure ? 0L : 1L);
  curl_easy_setopt(easy_, CURLOPT_SSL_VERIFYHOST, settings.config.insecure ? 0L : 2L);
  if (!settings.config.ca_pem.empty()) {
    SetBlob(easy_, CURLOPT_CAINFO_BLOB, settings.config.ca_pem);
    // The blob stands in for the default file; the default folder would still be trusted beside it.
    curl_easy_setopt(easy_, CURLOPT_CAPATH, nullptr);
  }
  if (!settings.connect_to.empty()) {
    Append(connect_to_, settings.connect_to);
    curl_easy_setopt(easy_, CURLOPT_CONNECT_TO, connect_to_);
  }
}

CurlTransfer::~CurlTransfer() {
  curl_easy_cleanup(easy_);
  curl_slist_free_all(headers_);
  curl_slist_free_all(connect_to_);
}

CurlTransfer* CurlTransfer::Of(CURL* handle) {
  char* transfer = nullptr;
  curl_easy_getinfo(handle, CURLINFO_PRIVATE, &transfer);
  return reinterpret_cast<CurlTransfer*>(transfer);
}

void CurlTransfer::SetHeaders(const Identity& identity) {
  curl_slist_free_all(std::exchange(headers_, nullptr));
  Append(headers_, "Accept: application/json");
  // Else libcurl would wait for a "100 Continue" before large bodies over HTTP/1.1.
  Append(headers_, "Expect:");
  // Without one this takes away the form type that libcurl gives to bodies.
  Append(headers_, exchange_.request.content_type.empty()
                       ? "Content-Type:"
                       : "Content-Type: " + exchange_.request.content_type);
  if (!settings_.host_header.empty()) Append(headers_, "Host: " + settings_.host_header);
  if (!identity.token.empty()) Append(headers_, "Authorization: Bearer " + identity.token);
  curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, headers_);
}

void CurlTransfer::SetMethod() {
  const Request& request = exchange_.request;
  const char* verb = nullptr;
  switch (request.method) {
    case Method::kGet:
      curl_easy_setopt(easy_, CURLOPT_CUSTOMREQUEST, nullptr);
      curl_easy_setopt(easy_, CURLOPT_HTTPGET, 1L);
      return;
    case Method::kPost:
      break;
    case Method::kPut:
      verb = "PUT";
      break;
    case Method::kPatch:
      verb = "PATCH";
      break;
    case Method::kDelete:
      verb = "DELETE";
      break;
  }
  curl_easy_setopt(easy_, CURLOPT_POST, 1L);
  curl_easy_setopt(easy_, CURLOPT_POSTFIELDSIZE_LARGE,
                   static_cast<curl_off_t>(request.body.size()));
  curl_easy_setopt(easy_, CURLOPT_POSTFIELDS, request.body.c_str());
  curl_easy_setopt(easy_, CURLOPT_CUSTOMREQUEST, verb);
}

void CurlTransfer::Prepare(Exchange exchange, const Identity& identity, uint64_t generation) {
  exchange_ = std::move(exchange);
  body_.clear();
  lines_ = LineSplitter(settings_.max_line_bytes);
  body_too_large_ = false;
  bytes_received_ = 0;
  error_[0] = '\0';
  if (generation != generation_ && settings_.is_https()) {
    SetBlob(easy_, CURLOPT_SSLCERT_BLOB, identity.certificate_pem);
    SetBlob(easy_, CURLOPT_SSLKEY_BLOB, identity.key_pem);
  }
  generation_ = generation;
  Set(easy_, CURLOPT_URL, settings_.base_url + Target(exchange_.request));
  SetMethod();
  SetHeaders(identity);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      exchange_.deadline - std::chrono::steady_clock::now());
  curl_easy_setopt(easy_, CURLOPT_TIMEOUT_MS, std::max(1L, static_cast<long>(left.count())));
}

// The empty line ends a header, perhaps of an interim answer.
size_t CurlTransfer::OnHeader(char* data, size_t size, size_t count, void* transfer) {
  auto* self = static_cast<CurlTransfer*>(transfer);
  const size_t bytes = size * count;
  if (self->exchange_.watch && std::string_view(data, bytes) == "\r\n") {
    long status = 0;
    curl_easy_getinfo(self->easy_, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) self->exchange_.watch->DeliverBegun();
  }
  return bytes;
}

size_t CurlTransfer::OnBody(char* data, size_t size, size_t count, void* transfer) {
  const size_t bytes = size * count;
  return static_cast<CurlTransfer*>(transfer)->Receive({data, bytes});
}

size_t CurlTransfer::Receive(std::string_view bytes) {
  constexpr size_t kStop = 0;
  bytes_received_ += bytes.size();
  if (exchange_.watch) {
    long status = 0;
    curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) {
      const bool go_on = lines_.Feed(
          bytes, [this](std::string_view line) { return exchange_.watch->DeliverLine(line); });
      return go_on ? bytes.size() : kStop;
    }
  }
  if (body_.size() + bytes.size() > settings_.max_body_bytes) {
    body_too_large_ = true;
    return kStop;
  }
  body_.append(bytes);
  return bytes.size();
}

bool CurlTransfer::WasSent() const {
  curl_off_t ready = 0;
  curl_easy_getinfo(easy_, CURLINFO_PRETRANSFER_TIME_T, &ready);
  return ready > 0;
}

absl::Status CurlTransfer::NoAnswer(CURLcode code) const {
  const std::string text = fmt::format("{} {}: {}", settings_.config.server, exchange_.request.path,
                                       error_[0] != '\0' ? error_ : curl_easy_strerror(code));
  if (lines_.too_long()) {
    return absl::DataLossError(fmt::format("{}: a watch event is longer than {} bytes",
                                           exchange_.request.path, settings_.max_line_bytes));
  }
  if (body_too_large_) {
    return absl::DataLossError(fmt::format("{}: the answer is larger than {} bytes",
                                           exchange_.request.path, settings_.max_body_bytes));
  }
  if (!WasSent()) return absl::UnavailableError(text);
  if (code == CURLE_OPERATION_TIMEDOUT) return absl::DeadlineExceededError(text);
  return absl::UnknownError(text);
}

absl::StatusOr<Response> CurlTransfer::Finish(CURLcode code) {
  if (code != CURLE_OK) return NoAnswer(code);
  Response response;
  long status = 0;
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  response.status = static_cast<int>(status);
  curl_off_t seconds = 0;
  curl_easy_getinfo(easy_, CURLINFO_RETRY_AFTER, &seconds);
  if (seconds > 0) response.retry_after = absl::Seconds(seconds);
  response.body = std::exchange(body_, {});
  return response;
}

size_t CurlTransfer::connections_opened() const {
  long opened = 0;
  curl_easy_getinfo(easy_, CURLINFO_NUM_CONNECTS, &opened);
  return static_cast<size_t>(std::max(0L, opened));
}

}  // namespace muster::kube
