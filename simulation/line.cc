#include "simulation/line.h"

#include <algorithm>
#include <tuple>

namespace muster::simulation {
namespace {

// A pod that is given a place has started by then.
constexpr absl::Duration kStart = absl::Seconds(30);

int NeedOf(const v1::Gang& gang) {
  int64_t bound = 0, succeeded = 0;
  for (const v1::Member& member : gang.members()) {
    bound += member.state() == v1::MEMBER_BOUND || member.state() == v1::RUNNING;
    succeeded += member.state() == v1::SUCCEEDED;
  }
  if (bound + succeeded >= gang.min_member()) return 2;
  return bound > 0 ? 0 : 1;
}

}  // namespace

bool Stands(const v1::Gang& gang) { return NeedOf(gang) != 1; }

absl::Time TimeOf(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

bool ComesBefore(const v1::Gang& one, const v1::Gang& other) {
  const auto place = [](const v1::Gang& gang) {
    return std::tuple(-int64_t{gang.priority()}, NeedOf(gang), TimeOf(gang.created_at()),
                      gang.namespace_() + "/" + gang.name());
  };
  return place(one) < place(other);
}

bool IsKeptFrom(const v1::Gang& gang, const std::vector<const kube::Pod*>& unbound,
                const v1::Gang& holder, const std::string& node, absl::Time now) {
  const v1::Reservation& kept = holder.reservation();
  if (std::ranges::count(kept.nodes(), node) == 0 || !ComesBefore(holder, gang)) return false;
  if (!kept.has_free_by()) return true;
  return std::ranges::any_of(unbound, [&](const kube::Pod* pod) {
    return pod->GoneBy(now + kStart) > TimeOf(kept.free_by());
  });
}

}  // namespace muster::simulation
