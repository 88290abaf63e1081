// How the snapshot writes its journal.
#pragma once

#include <string>

#include "cluster/journal.h"

namespace muster::cluster {

// Every function costs a look-up by name.
class JournalRecorder {
 public:
  // Moves out what was recorded; what follows starts anew.
  Journal Take();

  void NodeCame(const std::string& name);
  // Of a node that is there; nothing is recorded if `changes` are empty.
  void NodeChanged(const std::string& name, NodeChanges changes);
  // `changes` are what goes with it.
  void NodeWent(const std::string& name, NodeChanges changes);
  // `name`, which has come, is what the virtual node `formerly` became.
  void NodeBecame(const std::string& name, const std::string& formerly);

  // Something changed that predicates read of the object. One without any of that counts as one
  // that isn't there.
  void Changed(Journal::ByName<ObjectChange> Journal::* kind, const std::string& name,
               bool was_there, bool is_there);

 private:
  Journal journal_;
};

}  // namespace muster::cluster
