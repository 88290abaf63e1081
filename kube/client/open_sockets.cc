#include "kube/client/open_sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace muster::kube {
namespace {

bool IsSilent(int socket, absl::Duration silence) {
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return info.tcpi_state == TCP_ESTABLISHED &&
         absl::Milliseconds(info.tcpi_last_data_recv) >= silence;
}

}  // namespace

void OpenSockets::Attach(CURL* easy) {
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, &OpenSockets::Open);
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, this);
  curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, &OpenSockets::Close);
  curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, this);
}

bool OpenSockets::AnySilent(absl::Duration silence) const {
  return std::ranges::any_of(open_,
                             [silence](curl_socket_t socket) { return IsSilent(socket, silence); });
}

size_t OpenSockets::CutSilent(absl::Duration silence) {
  size_t cut = 0;
  for (const curl_socket_t socket : open_) {
    if (IsSilent(socket, silence) && shutdown(socket, SHUT_RDWR) == 0) ++cut;
  }
  return cut;
}

curl_socket_t OpenSockets::Open(void* sockets, curlsocktype, curl_sockaddr* address) {
  const int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  if (fd < 0) return CURL_SOCKET_BAD;
  static_cast<OpenSockets*>(sockets)->open_.insert(fd);
  return fd;
}

int OpenSockets::Close(void* sockets, curl_socket_t socket) {
  static_cast<OpenSockets*>(sockets)->open_.erase(socket);
  return close(socket);
}

}  // namespace muster::kube
