// A TCP relay on loopback that can stand still, as a server's process does under SIGSTOP:
// connections stay, new ones are taken by the kernel, bytes are acknowledged, and nothing answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace muster::extender {

class StallingRelay {
 public:
  // Relays to this port of 127.0.0.1.
  explicit StallingRelay(uint16_t to);
  ~StallingRelay();
  StallingRelay(const StallingRelay&) = delete;
  StallingRelay& operator=(const StallingRelay&) = delete;

  uint16_t port() const { return port_; }
  void Stall() { stalled_ = true; }
  void GoOn() { stalled_ = false; }

 private:
  void Run();

  const uint16_t to_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stalled_ = false;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace muster::extender
