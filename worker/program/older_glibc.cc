// Two functions of glibc that what is linked in uses, and that images with glibc 2.34 don't have.
#include <sys/random.h>

#include <cstdint>

#define MUSTER_OWN extern "C" __attribute__((visibility("hidden")))

// NOLINTBEGIN(readability-identifier-naming): the names are glibc's.
// glibc 2.35: where exceptions are handled. "Not found" makes libgcc look by dl_iterate_phdr, as it
// did before.
MUSTER_OWN int _dl_find_object(void* address, void* result) noexcept;
int _dl_find_object(void* /*address*/, void* /*result*/) noexcept { return -1; }

// glibc 2.36: what std::random_device takes its numbers from.
MUSTER_OWN uint32_t arc4random() noexcept;
uint32_t arc4random() noexcept {
  uint32_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) continue;
  return number;
}
// NOLINTEND(readability-identifier-naming)
