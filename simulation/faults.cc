#include "simulation/faults.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string>

namespace muster::simulation {
namespace {

// What is said of the kind, or of `any`; null if neither.
template <typename T>
const T* Find(const std::map<std::string, T, std::less<>>& of, std::string_view kind) {
  auto it = of.find(kind);
  if (it == of.end()) it = of.find("any");
  return it == of.end() ? nullptr : &it->second;
}

// What the API server or something before it answers instead of carrying a request out: a conflict
// that wasn't there, priority and fairness, a webhook or etcd that fails, a server that stops.
constexpr int kRefusals[] = {409, 429, 500, 503};

}  // namespace

Faults::Faults(const FaultSpec* spec, absl::Time start)
    : spec_(spec),
      until_(spec == nullptr ? start : start + spec->until),
      writes_(spec == nullptr ? 0 : spec->seed, 1),
      watches_(spec == nullptr ? 0 : spec->seed, 2),
      calls_(spec == nullptr ? 0 : spec->seed, 3) {}

Faults::Trip Faults::OfWrite(std::string_view kind) {
  Trip trip;
  const WriteFaults* of = Find(spec_->writes, kind);
  if (of == nullptr) return trip;
  trip.there = writes_.In(of->request);
  trip.back = writes_.In(of->answer);
  if (writes_.Chance(of->lost)) {
    trip.fate = Trip::Fate::kLost;
  } else if (writes_.Chance(of->refused)) {
    trip.fate = Trip::Fate::kRefused;
    trip.refusal = kRefusals[writes_.Between(0, std::size(kRefusals) - 1)];
  } else if (writes_.Chance(of->unanswered)) {
    trip.fate = Trip::Fate::kUnanswered;
    trip.back = std::max(trip.back, kAnswerTimeout - trip.there);
  }
  return trip;
}

Faults::Delivery Faults::OfEvent(std::string_view kind) {
  Delivery delivery;
  const WatchFaults* of = Find(spec_->watches, kind);
  if (of == nullptr) return delivery;
  delivery.delay = watches_.In(of->latency);
  delivery.repeats_older = watches_.Chance(of->repeats);
  delivery.breaks = watches_.Chance(of->breaks);
  if (delivery.breaks || watches_.Chance(of->stalls)) delivery.delay += watches_.In(of->stall);
  return delivery;
}

Faults::Call Faults::OfBind() {
  Call call;
  const CallFaults& of = spec_->calls;
  call.there = calls_.In(of.latency);
  call.back = calls_.In(of.latency);
  call.lost = calls_.Chance(of.lost);
  call.unanswered = calls_.Chance(of.unanswered);
  call.repeated = calls_.Chance(of.repeated);
  return call;
}

bool Faults::FilterFails() { return calls_.Chance(spec_->calls.filter_fails); }

}  // namespace muster::simulation
