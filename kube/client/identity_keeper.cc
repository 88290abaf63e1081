#include "kube/client/identity_keeper.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"

namespace muster::kube {
namespace {

// The wall clock may be stepped while a thread waits for a moment on it.
constexpr absl::Duration kLongestWait = absl::Minutes(1);

bool SameIdentity(const Identity& a, const Identity& b) {
  return a.token == b.token && a.certificate_pem == b.certificate_pem && a.key_pem == b.key_pem;
}

}  // namespace

IdentityKeeper::IdentityKeeper(std::shared_ptr<Credentials> credentials, absl::Duration interval,
                               std::function<void()> changed)
    : credentials_(std::move(credentials)), interval_(interval), changed_(std::move(changed)) {
  thread_ = std::thread([this] { Run(); });
}

IdentityKeeper::~IdentityKeeper() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

IdentityKeeper::View IdentityKeeper::Get() const {
  std::lock_guard lock(mutex_);
  return view_;
}

uint64_t IdentityKeeper::Refetch() {
  std::lock_guard lock(mutex_);
  if (view_.identity && view_.identity->refresh_at == absl::InfiniteFuture()) return 0;
  if (!wanted_ && absl::Now() - last_fetch_ < interval_) return 0;
  wanted_ = true;
  wake_.notify_all();
  return view_.fetches + 1;
}

void IdentityKeeper::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const absl::Time now = absl::Now();
    const absl::Time due =
        std::max(view_.identity ? view_.identity->refresh_at : now, last_fetch_ + interval_);
    if (!wanted_ && now < due) {
      wake_.wait_for(lock, absl::ToChronoNanoseconds(std::min(due - now, kLongestWait)));
      continue;
    }
    lock.unlock();
    auto fetched = credentials_->Fetch();
    lock.lock();
    wanted_ = false;
    last_fetch_ = absl::Now();
    view_.error = fetched.status();
    ++view_.fetches;
    if (fetched.ok()) {
      if (!view_.identity || !SameIdentity(*view_.identity, *fetched)) ++view_.generation;
      view_.identity = std::make_shared<const Identity>(*std::move(fetched));
    }
    lock.unlock();
    changed_();
    lock.lock();
  }
}

}  // namespace muster::kube
