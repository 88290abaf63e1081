// Linked into tests that are declared SINGLE_THREADED (cmake/muster.cmake), which the thread
// sanitizer doesn't run: starting a thread ends them.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

extern "C" int pthread_create(pthread_t* /*thread*/, const pthread_attr_t* /*attributes*/,
                              void* (* /*start*/)(void*), void* /*argument*/) noexcept {
  std::fputs("this test is declared SINGLE_THREADED, but starts a thread\n", stderr);
  std::abort();
}
