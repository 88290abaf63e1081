// A reflector's sink for one kind: decodes each object on the way.
#pragma once

#include <functional>
#include <utility>

#include "kube/client/reflector.h"
#include "kube/objects/decode.h"

namespace muster::kube {

template <typename T>
class TypedSink : public ReflectorSink {
 public:
  struct Callbacks {
    std::function<void(T object)> upsert;
    std::function<void(const ObjectHeader& header)> remove;
    std::function<void(ReflectorState state, const absl::Status& why)> state_changed;
    // The object exists or has changed, but its JSON has a wrong type somewhere (decode.h); what
    // the consumer knows of it is out of date.
    std::function<void(const ObjectHeader& header, const absl::Status& error)> undecodable;
  };

  // All four must be set.
  explicit TypedSink(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}

  void Upsert(const ObjectHeader& header, std::string_view json) override {
    auto object = Decode<T>(json);
    if (object.ok()) {
      callbacks_.upsert(*std::move(object));
    } else {
      callbacks_.undecodable(header, object.status());
    }
  }
  void Remove(const ObjectHeader& header) override { callbacks_.remove(header); }
  void StateChanged(ReflectorState state, const absl::Status& why) override {
    callbacks_.state_changed(state, why);
  }

 private:
  Callbacks callbacks_;
};

}  // namespace muster::kube
