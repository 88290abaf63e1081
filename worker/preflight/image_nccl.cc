#include "worker/preflight/image_nccl.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "worker/diagnose/failure.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kNcclFile[] = "libnccl.so.2";

// ---- Where Python has it ----

class PythonSearch {
 public:
  PythonSearch(const std::map<std::string, std::string>& environment, const std::string& program)
      : environment_(environment), program_(program) {}

  std::string Find() const {
    for (absl::string_view folder :
         absl::StrSplit(Variable("PYTHONPATH"), ':', absl::SkipEmpty())) {
      if (std::string found = In(std::string(folder)); !found.empty()) return found;
    }
    for (const fs::path& prefix : Prefixes()) {
      for (const char* libraries : {"lib", "lib64"}) {
        for (const fs::path& python : FoldersOf(prefix / libraries)) {
          for (const char* packages : {"site-packages", "dist-packages"}) {
            if (std::string found = In(python / packages); !found.empty()) return found;
          }
        }
      }
    }
    return "";
  }

 private:
  std::string Variable(const std::string& name) const {
    const auto variable = environment_.find(name);
    return variable == environment_.end() ? "" : variable->second;
  }

  static std::string In(const fs::path& packages) {
    std::error_code error;
    const fs::path file = packages / "nvidia/nccl/lib" / kNcclFile;
    return fs::exists(file, error) ? file.string() : "";
  }

  // python3.12 and the like, sorted.
  static std::vector<fs::path> FoldersOf(const fs::path& libraries) {
    std::vector<fs::path> folders;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(libraries, error)) {
      if (entry.path().filename().string().starts_with("python3")) folders.push_back(entry.path());
    }
    std::ranges::sort(folders);
    return folders;
  }

  // As execvp finds it; empty if it doesn't.
  fs::path FileOf(const std::string& program) const {
    if (program.find('/') != std::string::npos) return program;
    for (absl::string_view folder : absl::StrSplit(Variable("PATH"), ':', absl::SkipEmpty())) {
      std::error_code error;
      const fs::path file = fs::path(std::string(folder)) / program;
      if (fs::exists(file, error)) return file;
    }
    return {};
  }

  // In the order in which they count.
  std::vector<fs::path> Prefixes() const {
    std::vector<fs::path> prefixes;
    const auto add = [&](const fs::path& prefix) {
      if (prefix.empty() || std::ranges::count(prefixes, prefix) > 0) return;
      // What pip installs into a distribution's Python.
      if (prefix == "/usr") prefixes.emplace_back("/usr/local");
      prefixes.push_back(prefix);
    };
    const fs::path beside = FileOf(program_).parent_path().parent_path();
    // What is there for everybody says nothing.
    if (beside != "/usr" && beside != "/") add(beside);
    add(Variable("VIRTUAL_ENV"));
    add(Variable("CONDA_PREFIX"));
    if (const std::string home = Variable("HOME"); !home.empty()) add(fs::path(home) / ".local");
    for (const char* name : {"python3", "python"}) {
      const fs::path python = FileOf(name);
      add(python.parent_path().parent_path());
      std::error_code error;
      const fs::path itself = fs::canonical(python, error);
      if (!error) add(itself.parent_path().parent_path());
    }
    return prefixes;
  }

  const std::map<std::string, std::string>& environment_;
  const std::string& program_;
};

// ---- The libraries ----

// CUDA's driver interface and NCCL's, as far as they are used (cuda.h of CUDA 12 and 13, nccl.h of
// NCCL 2).
using Context = struct ContextHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Nccl = struct NcclHandle*;
using Address = unsigned long long;
// Of each buffer. Alone nothing is timed. Of the rate of 1 GiB, of which the thresholds are three
// quarters, 64 MiB reach 88 % on four H200: too close for a verdict.
constexpr int64_t kMostAlone = int64_t{64} << 20;
constexpr int64_t kMostAmongSeveral = int64_t{512} << 20;
constexpr int kNoError = 0;      // CUDA_SUCCESS, ncclSuccess
constexpr int kNoDevice = 100;   // CUDA_ERROR_NO_DEVICE
constexpr int kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY
constexpr unsigned kPlain = 0;   // CU_EVENT_DEFAULT
constexpr unsigned kOwnWay = 1;  // CU_STREAM_NON_BLOCKING
constexpr int kFloat = 7;        // ncclFloat32
constexpr int kSum = 0;          // ncclSum

struct Cuda {
  int (*init)(unsigned flags);
  int (*error_text)(int error, const char** text);
  int (*device_count)(int* count);
  int (*device)(int* device, int index);
  int (*bus_id)(char* text, int size, int device);
  int (*retain)(Context* context, int device);
  int (*make_current)(Context context);
  int (*memory)(size_t* free, size_t* total);
  int (*allocate)(Address* address, size_t bytes);
  int (*copy_in)(Address to, const void* from, size_t bytes, Stream stream);
  int (*copy_out)(void* to, Address from, size_t bytes, Stream stream);
  int (*make_stream)(Stream* stream, unsigned flags);
  int (*finish)(Stream stream);
  int (*make_event)(Event* event, unsigned flags);
  int (*record)(Event event, Stream stream);
  int (*wait)(Event event);
  int (*elapsed)(float* milliseconds, Event begin, Event end);
};

struct NcclFunctions {
  int (*init_all)(Nccl* communicators, int count, const int* devices);
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int operation,
                    Nccl communicator, Stream stream);
  const char* (*error_text)(int error);
  int (*version)(int* version);               // may be null
  const char* (*last_error)(Nccl of_nobody);  // may be null: from 2.13 on
};

// Finds functions, and keeps the name of the first that isn't there.
class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}

  template <typename Function>
  void Find(Function*& function, const char* name) {
    Look(function, name);
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  template <typename Function>
  void Look(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

// What its words show, or else `otherwise`.
CauseId CauseOfWords(const std::string& words, CauseId otherwise) {
  const std::optional<Failure> shown = FailureOf(words, PeerState::kUnknown);
  return shown.has_value() ? shown->cause : otherwise;
}

}  // namespace

struct ImageNccl::Functions {
  Cuda cuda = {};
  NcclFunctions nccl = {};
};

struct ImageNccl::Device {
  Context context = nullptr;
  Nccl communicator = nullptr;
  Address buffer = 0;
};

// Everything goes through one stream, in order.
class ImageNccl::Reducer : public AllReducer {
 public:
  Reducer(const ImageNccl& owner, int gpu, std::optional<ImageNcclError>* error)
      : owner_(owner),
        cuda_(owner.functions_->cuda),
        gpu_(gpu),
        device_(owner.devices_[gpu]),
        error_(error),
        status_(Did(cuda_.make_current(device_.context), "cuCtxSetCurrent")) {
    if (status_.ok()) status_ = Did(cuda_.make_stream(&stream_, kOwnWay), "cuStreamCreate");
    if (status_.ok()) status_ = Did(cuda_.make_event(&begin_, kPlain), "cuEventCreate");
    if (status_.ok()) status_ = Did(cuda_.make_event(&end_, kPlain), "cuEventCreate");
  }

  int64_t size() const override { return owner_.size_; }

  absl::Status Write(int64_t offset, std::span<const float> values) override {
    if (!status_.ok()) return status_;
    return Copied(cuda_.copy_in(At(offset), values.data(), values.size_bytes(), stream_),
                  "cuMemcpyHtoDAsync");
  }

  absl::Status Read(int64_t offset, std::span<float> values) override {
    if (!status_.ok()) return status_;
    return Copied(cuda_.copy_out(values.data(), At(offset), values.size_bytes(), stream_),
                  "cuMemcpyDtoHAsync");
  }

  absl::StatusOr<absl::Duration> AllReduce(Reach /*always the node*/, int64_t count,
                                           int times) override {
    if (status_.ok()) status_ = Did(cuda_.record(begin_, stream_), "cuEventRecord");
    auto* const buffer = reinterpret_cast<void*>(device_.buffer);
    for (int i = 0; i < times && status_.ok(); ++i) {
      const int result = owner_.functions_->nccl.all_reduce(
          buffer, buffer, static_cast<size_t>(count), kFloat, kSum, device_.communicator, stream_);
      status_ = Note(owner_.OfNccl(result, "ncclAllReduce", gpu_));
    }
    if (status_.ok()) status_ = Did(cuda_.record(end_, stream_), "cuEventRecord");
    if (status_.ok()) status_ = Did(cuda_.wait(end_), "after ncclAllReduce");
    float milliseconds = 0;
    if (status_.ok())
      status_ = Did(cuda_.elapsed(&milliseconds, begin_, end_), "cuEventElapsedTime");
    if (!status_.ok()) return status_;
    return absl::Milliseconds(milliseconds) / times;
  }

 private:
  Address At(int64_t offset) const {
    return device_.buffer + static_cast<Address>(offset) * sizeof(float);
  }

  absl::Status Copied(int result, std::string_view doing) {
    status_ = Did(result, doing);
    // From pageable memory it may still be on its way.
    if (status_.ok()) status_ = Did(cuda_.finish(stream_), doing);
    return status_;
  }

  absl::Status Did(int result, std::string_view doing) {
    return Note(owner_.OfCuda(result, doing, gpu_));
  }

  absl::Status Note(std::optional<ImageNcclError> error) {
    if (!error.has_value()) return absl::OkStatus();
    *error_ = *std::move(error);
    return absl::InternalError((*error_)->text);
  }

  const ImageNccl& owner_;
  const Cuda& cuda_;
  const int gpu_;
  const Device& device_;
  std::optional<ImageNcclError>* const error_;
  Stream stream_ = nullptr;
  Event begin_ = nullptr;
  Event end_ = nullptr;
  absl::Status status_;  // the first error stays
};

ImageNccl::~ImageNccl() = default;

absl::StatusOr<std::shared_ptr<ImageNccl>> ImageNccl::Load(const std::string& nccl,
                                                           const std::string& cuda) {
  std::array<void*, 2> handles = {};
  for (const std::string* name : {&nccl, &cuda}) {
    // Global, because CUDA's libraries look for each other's symbols.
    void*& handle = handles[name == &nccl ? 0 : 1];
    handle = dlopen(name->c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr) return absl::NotFoundError(dlerror());
  }
  return std::shared_ptr<ImageNccl>(new ImageNccl(handles[0], handles[1], cuda));
}

ImageNccl::ImageNccl(void* nccl, void* cuda, const std::string& cuda_name)
    : functions_(std::make_unique<Functions>()), library_(kNcclFile) {
  Finder of_nccl(nccl);
  NcclFunctions& n = functions_->nccl;
  of_nccl.Find(n.error_text, "ncclGetErrorString");
  of_nccl.Find(n.init_all, "ncclCommInitAll");
  of_nccl.Find(n.all_reduce, "ncclAllReduce");
  of_nccl.Look(n.version, "ncclGetVersion");
  of_nccl.Look(n.last_error, "ncclGetLastError");
  Dl_info info = {};
  if (n.error_text != nullptr && dladdr(reinterpret_cast<void*>(n.error_text), &info) != 0) {
    library_ = info.dli_fname;
  }
  Finder of_cuda(cuda);
  Cuda& c = functions_->cuda;
  of_cuda.Find(c.init, "cuInit");
  of_cuda.Find(c.error_text, "cuGetErrorString");
  of_cuda.Find(c.device_count, "cuDeviceGetCount");
  of_cuda.Find(c.device, "cuDeviceGet");
  of_cuda.Find(c.bus_id, "cuDeviceGetPCIBusId");
  of_cuda.Find(c.retain, "cuDevicePrimaryCtxRetain");
  of_cuda.Find(c.make_current, "cuCtxSetCurrent");
  of_cuda.Find(c.memory, "cuMemGetInfo_v2");
  of_cuda.Find(c.allocate, "cuMemAlloc_v2");
  of_cuda.Find(c.copy_in, "cuMemcpyHtoDAsync_v2");
  of_cuda.Find(c.copy_out, "cuMemcpyDtoHAsync_v2");
  of_cuda.Find(c.make_stream, "cuStreamCreate");
  of_cuda.Find(c.finish, "cuStreamSynchronize");
  of_cuda.Find(c.make_event, "cuEventCreate");
  of_cuda.Find(c.record, "cuEventRecord");
  of_cuda.Find(c.wait, "cuEventSynchronize");
  of_cuda.Find(c.elapsed, "cuEventElapsedTime");
  if (!of_nccl.missing().empty()) {
    missing_ = Concat(library_, " has no ", of_nccl.missing());
  } else if (!of_cuda.missing().empty()) {
    missing_ = Concat(cuda_name, " has no ", of_cuda.missing());
  }
}

std::string ImageNccl::version() const {
  int code = 0;
  if (functions_->nccl.version == nullptr || functions_->nccl.version(&code) != kNoError) return "";
  // NCCL_VERSION(X, Y, Z) of nccl.h, from 2.9 on.
  return Concat(code / 10'000, ".", code / 100 % 100, ".", code % 100);
}

std::optional<ImageNcclError> ImageNccl::OfCuda(int result, std::string_view doing,
                                                std::optional<int> gpu) const {
  if (result == kNoError) return std::nullopt;
  const char* text = nullptr;
  if (functions_->cuda.error_text(result, &text) != kNoError || text == nullptr) {
    text = "unknown error";
  }
  ImageNcclError error = {.text = Concat(doing, ": ", text, " (CUDA error ", result, ")"),
                          .gpu = gpu};
  error.cause = CauseOfWords(error.text, result == kNoDevice      ? CauseId::kDriverMissing
                                         : result == kOutOfMemory ? CauseId::kOutOfMemory
                                                                  : CauseId::kCudaFailure);
  return error;
}

std::optional<ImageNcclError> ImageNccl::OfNccl(int result, std::string_view doing,
                                                std::optional<int> gpu) const {
  if (result == kNoError) return std::nullopt;
  const NcclFunctions& nccl = functions_->nccl;
  ImageNcclError error = {.text = Concat("NCCL error in ", doing, ": ", nccl.error_text(result)),
                          .gpu = gpu};
  const char* words = nccl.last_error == nullptr ? nullptr : nccl.last_error(nullptr);
  if (words == nullptr) words = "";
  // Its words say more than its code, where they show anything.
  error.cause = CauseOfWords(Concat(error.text, "\n", words), CauseId::kNcclInternalError);
  if (*words != '\0') Append(&error.text, "; ", StripBlanks(words));
  return error;
}

std::optional<ImageNcclError> ImageNccl::Start(const Begins& begins) {
  if (!missing_.empty()) {
    return ImageNcclError{.cause = CauseId::kLibraryMismatch, .text = missing_};
  }
  std::optional<ImageNcclError> error = FindDevices(begins);
  if (error.has_value()) return error;
  std::vector<int> numbers(devices_.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  std::vector<Nccl> communicators(devices_.size());
  begins("ncclCommInitAll");
  error = OfNccl(functions_->nccl.init_all(communicators.data(), static_cast<int>(numbers.size()),
                                           numbers.data()),
                 "ncclCommInitAll");
  if (error.has_value()) return error;
  for (size_t gpu = 0; gpu < devices_.size(); ++gpu) {
    devices_[gpu].communicator = communicators[gpu];
  }
  begins("cuMemAlloc");
  return Allocate();
}

std::optional<ImageNcclError> ImageNccl::FindDevices(const Begins& begins) {
  const Cuda& cuda = functions_->cuda;
  begins("cuInit");
  if (auto error = OfCuda(cuda.init(0), "cuInit")) return error;
  int count = 0;
  if (auto error = OfCuda(cuda.device_count(&count), "cuDeviceGetCount")) return error;
  if (count == 0) return OfCuda(kNoDevice, "cuDeviceGetCount");
  for (int gpu = 0; gpu < count; ++gpu) {
    gpus_.push_back(Concat("GPU ", gpu));
    begins(Concat("cuDevicePrimaryCtxRetain of ", gpus_.back()));
    int device = 0;
    std::array<char, 32> bus_id = {};
    if (auto error = OfCuda(cuda.device(&device, gpu), "cuDeviceGet", gpu)) return error;
    if (cuda.bus_id(bus_id.data(), static_cast<int>(bus_id.size()) - 1, device) == kNoError) {
      gpus_.back() = fmt::format("GPU {} ({})", gpu, bus_id.data());
    }
    const int result = cuda.retain(&devices_.emplace_back().context, device);
    if (auto error = OfCuda(result, "cuDevicePrimaryCtxRetain", gpu)) return error;
  }
  return std::nullopt;
}

std::optional<ImageNcclError> ImageNccl::Allocate() {
  const Cuda& cuda = functions_->cuda;
  int64_t bytes = devices_.size() == 1 ? kMostAlone : kMostAmongSeveral;
  const auto on_each = [&](const auto& doing) -> std::optional<ImageNcclError> {
    for (size_t gpu = 0; gpu < devices_.size(); ++gpu) {
      const auto number = static_cast<int>(gpu);
      const int result = cuda.make_current(devices_[gpu].context);
      if (auto error = OfCuda(result, "cuCtxSetCurrent", number)) return error;
      if (auto error = doing(number)) return error;
    }
    return std::nullopt;
  };
  auto error = on_each([&](int gpu) {
    size_t free = 0;
    size_t total = 0;
    const int result = cuda.memory(&free, &total);
    bytes = std::min(bytes, static_cast<int64_t>(free / 4));
    return OfCuda(result, "cuMemGetInfo", gpu);
  });
  if (error.has_value()) return error;
  size_ = std::max<int64_t>(1, bytes / static_cast<int64_t>(sizeof(float)));
  return on_each([&](int gpu) {
    const auto wanted = static_cast<size_t>(size_) * sizeof(float);
    return OfCuda(cuda.allocate(&devices_[gpu].buffer, wanted), "cuMemAlloc", gpu);
  });
}

std::unique_ptr<AllReducer> ImageNccl::MakeReducer(int gpu, std::optional<ImageNcclError>* error) {
  return std::make_unique<Reducer>(*this, gpu, error);
}

std::string NcclOfPython(const std::map<std::string, std::string>& environment,
                         const std::string& program) {
  return PythonSearch(environment, program).Find();
}

}  // namespace muster::worker
