// Who may see what: a bearer token is somebody's, and he may do what he wants, if the API server
// says so.
//
//   Check --> is the answer known? ------------------------------> done, at once
//               | no                                                ^
//               +-> TokenReview --> SubjectAccessReview ------------+  later
//
// Answers are kept for their lifetime, also while the API server can't be reached. Questions that
// are alike wait for one review. Tokens are known by a keyed digest alone, so that nothing that is
// kept, or ever printed, is one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "extender/access/answer_cache.h"
#include "extender/access/review_queue.h"
#include "extender/access/reviews.h"
#include "kube/api.h"

namespace muster::extender {

struct AccessOptions {
  // Whom a token must be meant for, one of them; none: the API server itself.
  std::vector<std::string> audiences = {"muster.dev"};
  // For so long a token that was withdrawn, or a right, may still serve.
  absl::Duration accepted_for = absl::Minutes(1);
  // For so long one that was given since may be refused.
  absl::Duration refused_for = absl::Seconds(10);
  // Of each kind of answer. Refused tokens have a cache of their own: whoever invents tokens drives
  // out nobody's that is good.
  size_t capacity = 4096;
  ReviewQueue::Options queue = {};
};

// Thread-safe.
class AccessControl {
 public:
  using Clock = std::function<absl::Time()>;
  // `transport` must outlive this, and call nobody back any more once this goes.
  AccessControl(kube::Transport& transport, Clock clock, AccessOptions options);

  // `done` gets the answer, exactly once: inline if it is known, else on the transport's thread.
  //   Unauthenticated     no bearer token, or none that is accepted
  //   PermissionDenied    its owner may not
  //   Unavailable         the API server couldn't be asked
  //   ResourceExhausted   too much is being asked already
  using Done = std::function<void(absl::Status)>;
  // `authorization` is the header's value: "Bearer TOKEN". `source` is the address that it came
  // from.
  void Check(std::string_view authorization, const std::string& source, Wanted wanted, Done done);
  // For one who is known already.
  void CheckCaller(Caller caller, const std::string& source, Wanted wanted, Done done);

  // Whoever waits is told Unavailable, now and from now on, unless the answer is known.
  void Stop();

  enum Kind { kTokens, kRights, kKinds };
  enum Refusal { kUnauthenticated, kForbidden, kUnavailable, kOverloaded, kRefusals };
  struct Stats {
    struct Cache {
      uint64_t hits = 0;
      uint64_t misses = 0;
      size_t entries = 0;
    };
    Cache caches[kKinds] = {};
    uint64_t refusals[kRefusals] = {};
    ReviewQueue::Stats reviews = {};
  };
  Stats stats() const;

 private:
  using Token = absl::StatusOr<Caller>;
  // Whoever waits for one review, by what it is about.
  template <typename Answer>
  using Asking = std::map<std::string, std::vector<std::function<void(const Answer&)>>>;

  void FindCaller(const std::string& token, const std::string& source,
                  std::function<void(const Token&)> done);
  void OnToken(const std::string& digest, const Token& answer);
  void FindRight(const Caller& caller, const std::string& source, const Wanted& wanted,
                 std::function<void(const absl::Status&)> done);
  void OnRight(const std::string& digest, const absl::Status& answer);
  void Finish(const absl::Status& answer, const Done& done);
  std::string DigestOf(std::string_view text) const;

  const Clock clock_;
  const AccessOptions options_;
  const std::string key_;  // of the digests; this process's alone
  ReviewQueue queue_;
  mutable std::mutex mutex_;  // guards what follows
  bool stopped_ = false;
  AnswerCache<Token> accepted_;
  AnswerCache<Token> refused_;
  AnswerCache<absl::Status> granted_;
  AnswerCache<absl::Status> denied_;
  Asking<Token> asking_whose_;
  Asking<absl::Status> asking_rights_;
  Stats stats_;
};

}  // namespace muster::extender
