#include "cluster/journal_recorder.h"

#include <utility>

namespace muster::cluster {

Journal JournalRecorder::Take() { return std::exchange(journal_, {}); }

void JournalRecorder::NodeCame(const std::string& name) {
  auto [it, unnamed] = journal_.nodes.try_emplace(name);
  if (unnamed) it->second.is_new = true;
  it->second.observed |= NodeChange::kCame;
}

void JournalRecorder::NodeChanged(const std::string& name, NodeChanges changes) {
  if (!changes.empty()) journal_.nodes[name].observed |= changes;
}

void JournalRecorder::NodeWent(const std::string& name, NodeChanges changes) {
  auto [it, unnamed] = journal_.nodes.try_emplace(name);
  if (it->second.is_new) {
    journal_.nodes.erase(it);
    return;
  }
  it->second.observed |= changes | NodeChange::kWent;
  it->second.formerly.clear();
}

void JournalRecorder::NodeBecame(const std::string& name, const std::string& formerly) {
  journal_.nodes[name].formerly = formerly;
}

void JournalRecorder::Changed(Journal::ByName<ObjectChange> Journal::* kind,
                              const std::string& name, bool was_there, bool is_there) {
  auto [it, unnamed] = (journal_.*kind).try_emplace(name);
  ObjectChange& change = it->second;
  if (unnamed) {
    change = !was_there ? ObjectChange::kCame
             : is_there ? ObjectChange::kChanged
                        : ObjectChange::kWent;
  } else if (!is_there && change == ObjectChange::kCame) {
    (journal_.*kind).erase(it);
  } else if (!is_there) {
    change = ObjectChange::kWent;
  } else if (change == ObjectChange::kWent) {
    change = ObjectChange::kChanged;
  }
}

}  // namespace muster::cluster
