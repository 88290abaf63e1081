#include "extender/leadership.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <utility>

#include "fmt/format.h"
#include "kube/client/lease_runner.h"

namespace muster::extender {
namespace {

// How often it is asked whether a look is due and the lead still stands.
constexpr absl::Duration kTick = absl::Milliseconds(100);

class AlwaysLeading : public Leadership {
 public:
  bool Leads() const override { return !stopped_; }
  std::string Holder() const override { return ""; }
  std::string WhyNoLeader() const override { return ""; }
  std::string WhyOutOfTouch() const override { return ""; }
  std::optional<int64_t> transitions() const override { return std::nullopt; }
  void Stop(absl::Duration) override { stopped_ = true; }

 private:
  std::atomic<bool> stopped_ = false;
};

class Elected : public Leadership {
 public:
  Elected(kube::Transport& transport, kube::Timer& timer, const kube::LeaseOptions& options,
          Changed changed)
      : timer_(timer), options_(options), runner_(transport, timer, options, std::move(changed)) {}

  bool Leads() const override { return runner_.IsLeader(); }
  std::string Holder() const override { return runner_.Status().holder; }
  std::optional<int64_t> transitions() const override { return runner_.Status().transitions; }
  void Stop(absl::Duration patience) override {
    runner_.Stop();
    runner_.AwaitStopped(patience);
  }

  // A candidate takes a Lease that nobody renews, so what is in the way is that it can't be read or
  // written; a single failure isn't worth telling.
  std::string WhyNoLeader() const override {
    const kube::LeaseStatus status = runner_.Status();
    const absl::Time now = timer_.Now();
    const std::lock_guard lock(mutex_);
    if (status.leading || status.last_error.ok()) {
      failing_since_ = absl::InfiniteFuture();
      if (status.leading || !status.holder.empty()) return "";
      return fmt::format("no muster leads: Lease {}/{} is not held yet", options_.name_space,
                         options_.name);
    }
    failing_since_ = std::min(failing_since_, now);
    if (!status.holder.empty() && now < failing_since_ + options_.duration) return "";
    return fmt::format("no muster is known to lead: Lease {}/{}: {}", options_.name_space,
                       options_.name, std::string(status.last_error.message()));
  }
  // What is in the way of a candidate that knows no leader is just that.
  std::string WhyOutOfTouch() const override {
    return runner_.Status().last_error.ok() ? "" : WhyNoLeader();
  }

 private:
  kube::Timer& timer_;
  const kube::LeaseOptions options_;
  mutable std::mutex mutex_;
  mutable absl::Time failing_since_ = absl::InfiniteFuture();  // as seen by WhyNoLeader
  kube::LeaseRunner runner_;
};

class Following : public Leadership {
 public:
  Following(kube::Transport& transport, kube::Timer& timer, LeaseFollowerOptions options,
            Changed changed)
      : state_(std::make_shared<State>(transport, timer, std::move(options), std::move(changed))) {
    state_->Run();
  }
  ~Following() override { state_->Close(); }

  bool Leads() const override { return state_->Leads(); }
  std::string Holder() const override {
    const std::lock_guard lock(state_->mutex);
    return state_->follower.holder();
  }
  std::string WhyNoLeader() const override {
    const std::lock_guard lock(state_->mutex);
    return state_->follower.WhyNoLeader(state_->timer.Now());
  }
  std::string WhyOutOfTouch() const override {
    const std::lock_guard lock(state_->mutex);
    return state_->follower.WhyOutOfTouch(state_->timer.Now());
  }
  std::optional<int64_t> transitions() const override {
    const std::lock_guard lock(state_->mutex);
    return state_->follower.transitions();
  }
  void Stop(absl::Duration) override {
    const std::lock_guard lock(state_->mutex);
    state_->stopped = true;
    state_->Report();
  }

 private:
  struct State : std::enable_shared_from_this<State> {
    State(kube::Transport& tr, kube::Timer& ti, LeaseFollowerOptions o, Changed c)
        : transport(tr), timer(ti), changed(std::move(c)), follower(std::move(o)) {}

    bool Leads() const { return absl::ToUnixNanos(timer.Now()) < leading_until; }

    void Run() {
      const std::lock_guard lock(mutex);
      if (closed) return;
      if (auto look = follower.Tick(timer.Now())) {
        transport.Send(*std::move(look), [weak = weak_from_this()](auto answer) {
          if (const auto alive = weak.lock()) alive->OnAnswer(answer);
        });
      }
      Report();
      alarm = timer.After(kTick, [weak = weak_from_this()] {
        if (const auto alive = weak.lock()) alive->Run();
      });
    }

    void OnAnswer(const absl::StatusOr<kube::Response>& answer) {
      const std::lock_guard lock(mutex);
      if (closed) return;
      follower.OnAnswer(timer.Now(), answer);
      Report();
    }

    // Under the lock.
    void Report() {
      const bool leading = !stopped && follower.IsLeader(timer.Now());
      leading_until = leading ? absl::ToUnixNanos(follower.leading_until()) : kNever;
      if (leading == reported) return;
      reported = leading;
      changed(leading);
    }

    void Close() {
      kube::Timer::Id last = 0;
      {
        const std::lock_guard lock(mutex);
        closed = true;
        leading_until = kNever;
        last = alarm;
      }
      timer.Cancel(last);
    }

    static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

    kube::Transport& transport;
    kube::Timer& timer;
    const Changed changed;
    std::mutex mutex;
    LeaseFollower follower;
    kube::Timer::Id alarm = 0;
    bool reported = false;
    bool stopped = false;
    bool closed = false;
    std::atomic<int64_t> leading_until = kNever;
  };

  const std::shared_ptr<State> state_;
};

class WithReason : public Leadership::Restricted {
 public:
  WithReason(const std::function<std::unique_ptr<Leadership>(Changed)>& make, Changed changed,
             std::string why)
      : changed_(std::move(changed)), why_(std::move(why)), may_(why_.empty()) {
    inner_ = make([this](bool leading) {
      const std::lock_guard lock(mutex_);
      inner_leads_ = leading;
      Report();
    });
  }
  // Its callbacks use what is here.
  ~WithReason() override { inner_.reset(); }

  void SetReason(std::string why) override {
    const std::lock_guard lock(mutex_);
    why_ = std::move(why);
    may_ = why_.empty();
    Report();
  }
  std::string Reason() const override {
    const std::lock_guard lock(mutex_);
    return why_;
  }
  bool HoldsLead() const override { return inner_->Leads(); }
  bool Leads() const override { return may_ && inner_->Leads(); }
  std::string Holder() const override { return inner_->Holder(); }
  std::string WhyNoLeader() const override { return inner_->WhyNoLeader(); }
  std::string WhyOutOfTouch() const override { return inner_->WhyOutOfTouch(); }
  std::optional<int64_t> transitions() const override { return inner_->transitions(); }
  void Stop(absl::Duration patience) override { inner_->Stop(patience); }

 private:
  // Under the lock.
  void Report() {
    const bool leading = inner_leads_ && may_;
    if (leading == reported_) return;
    reported_ = leading;
    changed_(leading);
  }

  const Changed changed_;
  mutable std::mutex mutex_;
  std::string why_;
  bool inner_leads_ = false;
  bool reported_ = false;
  std::atomic<bool> may_;
  std::unique_ptr<Leadership> inner_;
};

}  // namespace

std::unique_ptr<Leadership::Restricted> Leadership::Restrict(
    const std::function<std::unique_ptr<Leadership>(Changed)>& make, Changed changed,
    std::string why) {
  return std::make_unique<WithReason>(make, std::move(changed), std::move(why));
}

std::unique_ptr<Leadership> Leadership::Always(const Changed& changed) {
  changed(true);
  return std::make_unique<AlwaysLeading>();
}

std::unique_ptr<Leadership> Leadership::Elect(kube::Transport& transport, kube::Timer& timer,
                                              const kube::LeaseOptions& options, Changed changed) {
  return std::make_unique<Elected>(transport, timer, options, std::move(changed));
}

std::unique_ptr<Leadership> Leadership::Follow(kube::Transport& transport, kube::Timer& timer,
                                               LeaseFollowerOptions options, Changed changed) {
  return std::make_unique<Following>(transport, timer, std::move(options), std::move(changed));
}

}  // namespace muster::extender
