#include "lab/http_extender_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

namespace muster::lab {
namespace {

using Json = nlohmann::json;
using kube::simulators::BindCall;
using kube::simulators::FilterCall;
using kube::simulators::FilterResult;

// How long the thread sleeps at most when curl has nothing to do; new calls wake it.
constexpr int kPollMs = 1000;

size_t Append(char* data, size_t size, size_t count, void* out) {
  static_cast<std::string*>(out)->append(data, size * count);
  return size * count;
}

curl_slist* Headers() {
  static curl_slist* const kHeaders = [] {
    curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
    // Otherwise curl holds a larger body back until the server has said that it wants it.
    return curl_slist_append(list, "Expect:");
  }();
  return kHeaders;
}

// `body` and `answer` must live until the transfer has ended.
void Prepare(CURL* curl, const HttpExtenderOptions& options, const char* verb,
             const std::string& body, std::string* answer) {
  const std::string url = options.url + verb;
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.c_str());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, Headers());
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS,
                   static_cast<long>(options.timeout / absl::Milliseconds(1)));
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
}

// Empty if the call was answered with 200.
std::string WhyFailed(CURL* curl, CURLcode code, const std::string& url, const char* verb) {
  if (code != CURLE_OK)
    return fmt::format("Post \"{}{}\": {}", url, verb, curl_easy_strerror(code));
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (status == 200) return "";
  return fmt::format("failed {} with extender at URL {}, code {}", verb, url, status);
}

// A member that may be absent or null; of the wrong type it counts as absent and sets `bad`.
template <typename T>
T Member(const Json& object, const char* key, bool* bad) {
  auto it = object.find(key);
  if (it == object.end() || it->is_null()) return {};
  try {
    return it->get<T>();
  } catch (const Json::exception&) {
    *bad = true;
    return {};
  }
}

FilterResult ReadFilterResult(const std::string& body) {
  using Reasons = std::map<std::string, std::string>;
  FilterResult result;
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  bool bad = !json.is_object();
  if (!bad) {
    result.error = Member<std::string>(json, "Error", &bad);
    result.node_names = Member<std::vector<std::string>>(json, "NodeNames", &bad);
    result.failed = Member<Reasons>(json, "FailedNodes", &bad);
    result.failed.merge(Member<Reasons>(json, "FailedAndUnresolvableNodes", &bad));
  }
  if (bad) result.error = "the extender's answer is no ExtenderFilterResult: " + body;
  return result;
}

std::string ReadBindResult(const std::string& body) {
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  bool bad = !json.is_object();
  std::string error = bad ? "" : Member<std::string>(json, "Error", &bad);
  return bad ? "the extender's answer is no ExtenderBindingResult: " + body : error;
}

}  // namespace

// All bind calls on one thread, by curl's multi interface.
class HttpExtenderClient::Binder {
 public:
  explicit Binder(const HttpExtenderOptions& options)
      : options_(options), multi_(curl_multi_init()), thread_([this] { Run(); }) {}

  ~Binder() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    curl_multi_wakeup(multi_);
    thread_.join();
    for (auto& [curl, call] : under_way_) {
      curl_multi_remove_handle(multi_, curl);
      curl_easy_cleanup(curl);
      call->done("the scheduler is stopping");
    }
    for (auto& call : waiting_) call->done("the scheduler is stopping");
    curl_multi_cleanup(multi_);
  }

  void Start(std::string body, BindDone done) {
    {
      const std::lock_guard lock(mutex_);
      if (count_ < options_.max_binds) {
        ++count_;
        waiting_.push_back(std::make_unique<Call>(Call{std::move(body), {}, std::move(done)}));
        done = nullptr;
      }
    }
    if (done) {
      done(fmt::format("{} bind calls are under way", options_.max_binds));
    } else {
      curl_multi_wakeup(multi_);
    }
  }

 private:
  struct Call {
    std::string body;
    std::string answer;
    BindDone done;
  };

  void Run() {
    while (TakeWaiting()) {
      int running = 0;
      curl_multi_perform(multi_, &running);
      int left = 0;
      while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
        if (message->msg == CURLMSG_DONE) End(message->easy_handle, message->data.result);
      }
      curl_multi_poll(multi_, nullptr, 0, kPollMs, nullptr);
    }
  }

  // False when stopping.
  bool TakeWaiting() {
    std::deque<std::unique_ptr<Call>> calls;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return false;
      calls.swap(waiting_);
    }
    for (std::unique_ptr<Call>& call : calls) {
      CURL* curl = curl_easy_init();
      Prepare(curl, options_, "/bind", call->body, &call->answer);
      curl_multi_add_handle(multi_, curl);
      under_way_.emplace(curl, std::move(call));
    }
    return true;
  }

  void End(CURL* curl, CURLcode code) {
    auto entry = under_way_.extract(curl);
    std::string error = WhyFailed(curl, code, options_.url, "/bind");
    curl_multi_remove_handle(multi_, curl);
    curl_easy_cleanup(curl);
    {
      const std::lock_guard lock(mutex_);
      --count_;
    }
    if (error.empty()) error = ReadBindResult(entry.mapped()->answer);
    entry.mapped()->done(std::move(error));
  }

  const HttpExtenderOptions& options_;
  CURLM* const multi_;
  std::mutex mutex_;
  bool stopping_ = false;                             // guarded by mutex_
  size_t count_ = 0;                                  // guarded by mutex_; waiting and under way
  std::deque<std::unique_ptr<Call>> waiting_;         // guarded by mutex_
  std::map<CURL*, std::unique_ptr<Call>> under_way_;  // the thread's
  std::thread thread_;
};

HttpExtenderClient::HttpExtenderClient(HttpExtenderOptions options)
    : options_(std::move(options)),
      filter_curl_(curl_easy_init()),
      binder_(std::make_unique<Binder>(options_)) {}

HttpExtenderClient::~HttpExtenderClient() {
  binder_.reset();
  curl_easy_cleanup(filter_curl_);
}

FilterResult HttpExtenderClient::Filter(const FilterCall& call) {
  // The pod goes as it is: it is JSON already.
  const std::string body = fmt::format(R"({{"Pod":{},"Nodes":null,"NodeNames":{}}})", call.pod_json,
                                       Json(call.node_names).dump());
  std::string answer;
  Prepare(filter_curl_, options_, "/filter", body, &answer);
  const CURLcode code = curl_easy_perform(filter_curl_);
  FilterResult result;
  result.error = WhyFailed(filter_curl_, code, options_.url, "/filter");
  return result.error.empty() ? ReadFilterResult(answer) : result;
}

void HttpExtenderClient::Bind(const BindCall& call, BindDone done) {
  const Json body = {{"PodName", call.pod_name},
                     {"PodNamespace", call.pod_namespace},
                     {"PodUID", call.pod_uid},
                     {"Node", call.node}};
  binder_->Start(body.dump(), std::move(done));
}

}  // namespace muster::lab
