// The NCCL of an image and the driver's CUDA, loaded when they are asked for: built against
// neither, so that the program stays one file for any image.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/diagnose/cause.h"
#include "worker/preflight/all_reduce.h"

namespace muster::worker {

// The libnccl.so.2 that PyTorch's wheels bring, as `program`, if that is of Python, finds it with
// this environment: in nvidia/nccl/lib where PYTHONPATH and then the Python beside it, of the
// virtual environment, of conda, of the user or of PATH keep their packages. Empty if there is
// none. Starts nothing, and reads folders only.
std::string NcclOfPython(const std::map<std::string, std::string>& environment,
                         const std::string& program);

// What NCCL, CUDA or the dynamic linker says isn't right.
struct ImageNcclError {
  CauseId cause = CauseId::kCount;
  std::string text = {};
  std::optional<int> gpu = {};  // the one that it is about, if that is known
};

// NCCL among the GPUs that CUDA shows to this process, each with a communicator and a buffer. None
// of it is taken down again, because that may hang: the process's end does it. Any call may hang or
// crash, as its libraries do.
class ImageNccl {
 public:
  // `nccl` and `cuda` are files, or names for the dynamic linker. NotFound if either can't be
  // loaded: then this image isn't for NCCL, or this container not for GPUs.
  static absl::StatusOr<std::shared_ptr<ImageNccl>> Load(const std::string& nccl,
                                                         const std::string& cuda);
  ImageNccl(const ImageNccl&) = delete;
  ImageNccl& operator=(const ImageNccl&) = delete;
  ~ImageNccl();

  // The file, and its version, "2.28.9"; empty if that isn't known.
  const std::string& library() const { return library_; }
  std::string version() const;

  // Once, before what follows. `begins` hears of each step before it begins.
  using Begins = std::function<void(std::string_view step)>;
  std::optional<ImageNcclError> Start(const Begins& begins);

  // "GPU 0 (0000:1b:00.0)", in CUDA's order.
  const std::vector<std::string>& gpus() const { return gpus_; }

  // For the rank of that number among the GPUs; the thread that makes it uses it, and works on that
  // GPU from then on. What goes wrong is in *error, which must outlive it, and its statuses say the
  // same. This must outlive it, too.
  std::unique_ptr<AllReducer> MakeReducer(int gpu, std::optional<ImageNcclError>* error);

 private:
  struct Functions;
  struct Device;
  class Reducer;

  ImageNccl(void* nccl, void* cuda, const std::string& cuda_name);

  std::optional<ImageNcclError> OfCuda(int result, std::string_view doing,
                                       std::optional<int> gpu = std::nullopt) const;
  std::optional<ImageNcclError> OfNccl(int result, std::string_view doing,
                                       std::optional<int> gpu = std::nullopt) const;
  std::optional<ImageNcclError> FindDevices(const Begins& begins);
  std::optional<ImageNcclError> Allocate();

  std::unique_ptr<Functions> functions_;
  std::string library_;
  std::string missing_;  // a function that one of them lacks
  std::vector<std::string> gpus_;
  std::vector<Device> devices_;  // one for each of gpus_
  int64_t size_ = 0;             // of each buffer, in elements
};

}  // namespace muster::worker
