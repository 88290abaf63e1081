// libcudart.so and libcuda.so.1 of a node with one GPU, for libfabric and aws-ofi-nccl to start
// with where there is none. Its memory is the host's, and it computes nothing.
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED
constexpr int kVersion = 13000;
constexpr size_t kPage = 4096;

int Success() { return kSuccess; }
int Name(int /*error*/, const char** name) {
  *name = "CUDA_SUCCESS";
  return kSuccess;
}
int DriverVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
int Device(int* device) {
  *device = 0;
  return kSuccess;
}
// Of all that is asked for: memory can be given to network cards, but not as a file.
int Attribute(int* value, int attribute, int /*device*/) {
  constexpr int kDmaBuf = 124;  // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
  *value = attribute == kDmaBuf ? 0 : 1;
  return kSuccess;
}
int NotSupported() { return kNotSupported; }
// The GPU's memory: size by address.
std::map<unsigned long long, size_t>& Allocated() {
  static std::map<unsigned long long, size_t> allocated;
  return allocated;
}
bool IsOnGpu(unsigned long long address) {
  const auto after = Allocated().upper_bound(address);
  if (after == Allocated().begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return address < begin + size;
}
int Allocate(unsigned long long* address, size_t size) {
  const size_t whole = (size + kPage - 1) / kPage * kPage;
  *address = reinterpret_cast<unsigned long long>(std::aligned_alloc(kPage, whole));
  if (*address == 0) return kOutOfMemory;
  Allocated()[*address] = whole;
  return kSuccess;
}
int Free(unsigned long long address) {
  Allocated().erase(address);
  std::free(reinterpret_cast<void*>(address));
  return kSuccess;
}
int PointerAttribute(void* value, int attribute, unsigned long long address) {
  constexpr int kMemoryType = 2;  // CU_POINTER_ATTRIBUTE_*; the device is number 0
  constexpr int kRangeSize = 12;
  constexpr unsigned int kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE
  if (!IsOnGpu(address)) return kInvalidValue;
  if (attribute == kRangeSize) {
    *static_cast<size_t*>(value) = std::prev(Allocated().upper_bound(address))->second;
  } else {
    *static_cast<unsigned int*>(value) = attribute == kMemoryType ? kDeviceMemory : 0;
  }
  return kSuccess;
}
// As the driver: success and zeroes for what isn't on the GPU.
int PointerAttributes(unsigned int count, const int* attributes, void** values,
                      unsigned long long address) {
  for (unsigned int i = 0; i < count; ++i) {
    *static_cast<unsigned int*>(values[i]) = 0;
    PointerAttribute(values[i], attributes[i], address);
  }
  return kSuccess;
}

struct Function {
  const char* name;
  void* address;
};
template <typename F>
Function Of(const char* name, F* function) {
  return {name, reinterpret_cast<void*>(function)};
}

}  // namespace

extern "C" {

// The driver's.
int cuGetErrorName(int error, const char** name) { return Name(error, name); }
int cuGetErrorString(int error, const char** name) { return Name(error, name); }
int cuPointerGetAttribute(void* value, int attribute, unsigned long long address) {
  return PointerAttribute(value, attribute, address);
}
int cuPointerGetAttributes(unsigned int count, const int* attributes, void** values,
                           unsigned long long address) {
  return PointerAttributes(count, attributes, values, address);
}
int cuPointerSetAttribute() { return kSuccess; }
int cuDeviceCanAccessPeer(int* can, int /*device*/, int /*peer*/) {
  *can = 1;
  return kSuccess;
}
int cuMemGetAddressRange_v2() { return kNotSupported; }
int cuMemGetAddressRange() { return kNotSupported; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  return Attribute(value, attribute, device);
}
int cuDeviceGet(int* device, int /*index*/) { return Device(device); }
int cuMemGetHandleForAddressRange() { return kNotSupported; }

// The runtime's.
int cudaMemcpy(void* to, const void* from, size_t size, int /*kind*/) {
  std::memcpy(to, from, size);
  return kSuccess;
}
int cudaDeviceSynchronize() { return kSuccess; }
int cudaMalloc(void** address, size_t size) {
  return Allocate(reinterpret_cast<unsigned long long*>(address), size);
}
int cudaFree(void* address) { return Free(reinterpret_cast<unsigned long long>(address)); }
const char* cudaGetErrorName(int /*error*/) { return "cudaSuccess"; }
const char* cudaGetErrorString(int /*error*/) { return "no error"; }
int cudaHostRegister() { return kSuccess; }
int cudaHostUnregister() { return kSuccess; }
int cudaGetDeviceCount(int* count) {
  *count = 1;
  return kSuccess;
}
int cudaGetDevice(int* device) { return Device(device); }
int cudaSetDevice() { return kSuccess; }
int cudaIpcOpenMemHandle() { return kNotSupported; }
int cudaIpcGetMemHandle() { return kNotSupported; }
int cudaIpcCloseMemHandle() { return kSuccess; }
int cudaRuntimeGetVersion(int* version) { return DriverVersion(version); }
int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int /*version*/,
                                     unsigned long long /*flags*/, int* result) {
  static const Function kFunctions[] = {
      Of("cuDriverGetVersion", DriverVersion),
      Of("cuGetErrorName", Name),
      Of("cuGetErrorString", Name),
      Of("cuCtxGetDevice", Device),
      Of("cuDeviceGetAttribute", Attribute),
      Of("cuMemAlloc", Allocate),
      Of("cuMemFree", Free),
      Of("cuMemGetHandleForAddressRange", NotSupported),
      Of("cuPointerGetAttributes", PointerAttributes),
  };
  *result = 0;  // cudaDriverEntryPointSuccess
  *function = reinterpret_cast<void*>(Success);
  for (const Function& known : kFunctions) {
    if (std::strcmp(known.name, name) == 0) *function = known.address;
  }
  return kSuccess;
}

}  // extern "C"
