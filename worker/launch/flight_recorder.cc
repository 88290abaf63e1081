#include "worker/launch/flight_recorder.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker/communicator/deadline.h"
#include "worker/communicator/tcp_socket.h"

namespace muster::worker {
namespace {

constexpr std::string_view kPipe = "pipe_";
constexpr std::string_view kDump = "dump_";
constexpr std::string_view kPipeEnd = ".pipe";

// What a pickle holds, as far as it matters here: numbers and texts as text, lists and tuples,
// maps.
struct Value {
  std::string text;
  std::vector<std::shared_ptr<Value>> list;
  std::map<std::string, std::shared_ptr<Value>> map;
};
using ValuePointer = std::shared_ptr<Value>;

ValuePointer Text(std::string text) {
  return std::make_shared<Value>(Value{.text = std::move(text), .list = {}, .map = {}});
}

// Python's pickle, protocol 2, without classes: what a function would make of its arguments is its
// first argument, which is right for PyTorch's type tags and lists of numbers.
class Unpickler {
 public:
  explicit Unpickler(std::string_view bytes) : bytes_(bytes) {}

  ValuePointer Read() {
    while (!failed_ && !bytes_.empty()) {
      const char code = Take(1)[0];
      if (code == '.') return stack_.size() == 1 ? stack_.back() : nullptr;
      Do(code);
    }
    return nullptr;
  }

 private:
  std::string_view Take(size_t size) {
    static constexpr std::string_view kZeros("\0\0\0\0\0\0\0\0", 8);
    if (size > bytes_.size()) {
      failed_ = true;
      bytes_ = {};
      return kZeros.substr(0, std::min<size_t>(size, 8));
    }
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  // Little-endian; `is_signed`: by its highest bit.
  int64_t Integer(size_t size, bool is_signed) {
    const std::string_view taken = Take(size);
    uint64_t number = 0;
    for (size_t i = 0; i < std::min<size_t>(taken.size(), 8); ++i) {
      number |= static_cast<uint64_t>(static_cast<unsigned char>(taken[i])) << (8 * i);
    }
    if (is_signed && size > 0 && size < 8 && ((number >> (8 * size - 1)) & 1) != 0) {
      number |= ~uint64_t{0} << (8 * size);
    }
    return static_cast<int64_t>(number);
  }

  void Push(ValuePointer value) { stack_.push_back(std::move(value)); }
  void PushNumber(int64_t number) { Push(Text(absl::StrCat(number))); }

  // The top of the stack, which must be there.
  ValuePointer Top() {
    if (stack_.empty()) failed_ = true;
    return stack_.empty() ? Text("") : stack_.back();
  }

  std::vector<ValuePointer> PopTo(size_t size) {
    if (size > stack_.size()) {
      failed_ = true;
      return {};
    }
    std::vector<ValuePointer> popped(stack_.begin() + static_cast<std::ptrdiff_t>(size),
                                     stack_.end());
    stack_.resize(size);
    return popped;
  }
  std::vector<ValuePointer> PopToMark() {
    if (marks_.empty()) {
      failed_ = true;
      return {};
    }
    const size_t mark = marks_.back();
    marks_.pop_back();
    return PopTo(mark);
  }
  std::vector<ValuePointer> Pop(size_t count) {
    if (count <= stack_.size()) return PopTo(stack_.size() - count);
    failed_ = true;
    return {};
  }

  void PushList(std::vector<ValuePointer> list) {
    Push(std::make_shared<Value>(Value{.text = {}, .list = std::move(list), .map = {}}));
  }

  void Line() {
    const size_t end = bytes_.find('\n');
    Take(end == std::string_view::npos ? bytes_.size() + 1 : end + 1);
  }

  void SetItems(const std::vector<ValuePointer>& items) {
    const ValuePointer map = Top();
    for (size_t i = 0; i + 1 < items.size(); i += 2) map->map[items[i]->text] = items[i + 1];
  }

  void Do(char code) {
    switch (static_cast<unsigned char>(code)) {
      case 0x80:  // PROTO
        Take(1);
        break;
      case '}':
      case ']':
      case ')':
        PushList({});
        break;
      case '(':
        marks_.push_back(stack_.size());
        break;
      case 'u':
        SetItems(PopToMark());
        break;
      case 's':
        SetItems(Pop(2));
        break;
      case 'e': {
        const std::vector<ValuePointer> items = PopToMark();
        const ValuePointer list = Top();
        list->list.insert(list->list.end(), items.begin(), items.end());
        break;
      }
      case 'a': {
        const std::vector<ValuePointer> items = Pop(1);
        const ValuePointer list = Top();
        list->list.insert(list->list.end(), items.begin(), items.end());
        break;
      }
      case 't':
        PushList(PopToMark());
        break;
      case 0x85:  // TUPLE1, 2, 3
      case 0x86:
      case 0x87:
        PushList(Pop(static_cast<unsigned char>(code) - 0x84));
        break;
      case 'X':
        Push(Text(std::string(Take(static_cast<size_t>(Integer(4, /*is_signed=*/false))))));
        break;
      case 'K':
        PushNumber(Integer(1, /*is_signed=*/false));
        break;
      case 'M':
        PushNumber(Integer(2, /*is_signed=*/false));
        break;
      case 'J':
        PushNumber(Integer(4, /*is_signed=*/true));
        break;
      case 0x8a:  // LONG1
        PushNumber(Integer(static_cast<size_t>(Integer(1, /*is_signed=*/false)),
                           /*is_signed=*/true));
        break;
      case 'G':
        Take(8);
        Push(Text(""));
        break;
      case 'N':
      case 0x88:  // NEWTRUE, NEWFALSE
      case 0x89:
        Push(Text(""));
        break;
      case 'q':
        memo_[Integer(1, /*is_signed=*/false)] = Top();
        break;
      case 'r':
        memo_[Integer(4, /*is_signed=*/false)] = Top();
        break;
      case 'h':
        Recall(Integer(1, /*is_signed=*/false));
        break;
      case 'j':
        Recall(Integer(4, /*is_signed=*/false));
        break;
      case 'c':  // GLOBAL: module and name
        Line();
        Line();
        Push(Text(""));
        break;
      case 'R': {
        const std::vector<ValuePointer> call = Pop(2);
        if (failed_ || call[1]->list.empty()) {
          failed_ = true;
          break;
        }
        Push(call[1]->list[0]);
        break;
      }
      default:
        failed_ = true;
    }
  }

  void Recall(int64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) {
      failed_ = true;
    } else {
      Push(found->second);
    }
  }

  std::string_view bytes_;
  bool failed_ = false;
  std::vector<ValuePointer> stack_;
  std::vector<size_t> marks_;
  std::map<int64_t, ValuePointer> memo_;
};

const Value* Find(const Value& map, const std::string& key) {
  const auto found = map.map.find(key);
  return found == map.map.end() ? nullptr : found->second.get();
}

int64_t NumberIn(const Value& map, const std::string& key) {
  const Value* value = Find(map, key);
  int64_t number = 0;
  return value != nullptr && absl::SimpleAtoi(value->text, &number) ? number : 0;
}

std::string GroupOf(const Value& entry) {
  const Value* group = Find(entry, "process_group");  // its name and its description
  if (group == nullptr) return "";
  return group->list.empty() ? group->text : group->list[0]->text;
}

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::optional<Recording> ReadRecording(std::string_view dump) {
  const ValuePointer root = Unpickler(dump).Read();
  if (root == nullptr || Find(*root, "version") == nullptr) return std::nullopt;
  Recording recording;
  if (const Value* entries = Find(*root, "entries"); entries != nullptr) {
    for (const ValuePointer& entry : entries->list) {
      const int64_t number =
          std::max(NumberIn(*entry, "collective_seq_id"), NumberIn(*entry, "seq_id"));
      Recording::Group& group = recording.groups[GroupOf(*entry)];
      if (number < group.enqueued) continue;
      group.enqueued = number;
      if (const Value* name = Find(*entry, "profiling_name")) group.last = name->text;
    }
  }
  return recording;
}

Standstill WhoIsBehind(const std::map<int, Recording>& recordings) {
  std::set<std::string> groups;
  for (const auto& [rank, recording] : recordings) {
    for (const auto& [name, group] : recording.groups) groups.insert(name);
  }
  for (const std::string& name : groups) {
    std::optional<std::pair<int, int64_t>> least;
    const Recording::Group* most = nullptr;
    for (const auto& [rank, recording] : recordings) {
      const auto group = recording.groups.find(name);
      if (group == recording.groups.end()) continue;
      const int64_t enqueued = group->second.enqueued;
      if (!least.has_value() || enqueued < least->second) least = {rank, enqueued};
      if (most == nullptr || enqueued > most->enqueued) most = &group->second;
    }
    if (!least.has_value() || least->second == most->enqueued) continue;
    return {.rank = least->first,
            .detail =
                absl::StrCat("rank ", least->first, " has enqueued ", least->second,
                             " collectives of its group when others had enqueued ", most->enqueued,
                             ", the last a ", most->last, " (PyTorch's flight recorder)")};
  }
  return {};
}

FlightRecorders::FlightRecorders() {
  std::error_code error;
  std::string path = std::filesystem::temp_directory_path(error) / "muster-launch-XXXXXX";
  if (!error && mkdtemp(path.data()) != nullptr) folder_ = path;
}

FlightRecorders::~FlightRecorders() {
  std::error_code error;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
}

Environment FlightRecorders::Variables(const Environment& pod) const {
  Environment variables;
  if (folder_.empty()) return variables;
  const std::string pipe = absl::StrCat(folder_, "/", std::string(kPipe));
  const std::string dump = absl::StrCat(folder_, "/", std::string(kDump));
  for (const auto& [name, value] : Environment{{"TORCH_FR_BUFFER_SIZE", "2000"},
                                               {"TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"},
                                               {"TORCH_FR_DUMP_TEMP_FILE", dump},
                                               {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", dump},
                                               {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", pipe}}) {
    if (pod.contains(name)) return {};
    variables.emplace(name, value);
  }
  return variables;
}

std::map<int, Recording> FlightRecorders::Ask(absl::Duration patience) const {
  std::map<int, Recording> recordings;
  if (folder_.empty()) return recordings;
  std::set<int> asked;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    std::string_view name = entry.path().filename().native();
    std::string stem(name);
    int rank = 0;
    if (!name.starts_with(kPipe) || !name.ends_with(kPipeEnd)) continue;
    stem = stem.substr(kPipe.size(), stem.size() - kPipe.size() - kPipeEnd.size());
    if (!absl::SimpleAtoi(stem, &rank)) continue;
    const Socket pipe(open(entry.path().c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    if (pipe.open() && write(pipe.fd(), "1", 1) == 1) asked.insert(rank);
  }
  const Deadline deadline = DeadlineAfter(patience);
  while (recordings.size() < asked.size() && TimeLeft(deadline) > absl::ZeroDuration()) {
    poll(nullptr, 0, 100);
    for (const int rank : asked) {
      if (recordings.contains(rank)) continue;
      // Half of a pickle has no end.
      const std::optional<Recording> recording =
          ReadRecording(FileText(absl::StrCat(folder_, "/", std::string(kDump), rank)));
      if (recording.has_value()) recordings.emplace(rank, *recording);
    }
  }
  return recordings;
}

}  // namespace muster::worker
