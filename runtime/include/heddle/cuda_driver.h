// The CUDA driver API, opened at run time: one wheel serves machines with and without a GPU.
//
// Names, types and values are those of the "CUDA Driver API" reference (NVIDIA, CUDA 13.0).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace heddle::cuda {

using DeviceHandle = int;
using Context = struct ContextHandle*;
using StreamHandle = void*;
using EventHandle = struct EventObject*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Graph = struct GraphHandle*;
using GraphExec = struct GraphExecHandle*;
using MemoryPool = struct MemoryPoolHandle*;
using Address = std::uint64_t;  // CUdeviceptr

enum Result : int {
  kSuccess = 0,
  kOutOfMemory = 2,
  kUnsupportedPtxVersion = 222,
  kContained = 226,
  kEccUncorrectable = 214,
  kNvlinkUncorrectable = 220,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kContextIsDestroyed = 709,
  kAssert = 710,
  kHardwareStackError = 714,
  kLaunchFailed = 719,
  kTensorMemoryLeak = 721,
  kUnknown = 999,
};

enum DeviceAttribute : int {
  kMaxGridX = 5,
  kMaxGridY = 6,
  kMaxGridZ = 7,
  kMultiprocessors = 16,
  kL2Bytes = 38,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kMaxSharedPerBlock = 97,  // with opt-in
  kMemoryPools = 115,
};

constexpr int kMaxDynamicSharedSize = 8;     // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned kStreamNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
constexpr unsigned kEventDefault = 0;        // CU_EVENT_DEFAULT
constexpr unsigned kEventDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
constexpr int kJitErrorLog = 5;              // CU_JIT_ERROR_LOG_BUFFER
constexpr int kJitErrorLogBytes = 6;         // CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
constexpr int kCaptureThreadLocal = 1;       // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
constexpr int kNotCapturing = 0;             // CU_STREAM_CAPTURE_STATUS_NONE
constexpr int kPointerMemoryType = 2;        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int kPointerDevice = 9;            // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr unsigned kHostMemory = 1;          // CU_MEMORYTYPE_HOST
constexpr int kPoolInternalOrder = 3;        // CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
constexpr int kPoolReleaseThreshold = 4;     // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
constexpr int kPoolReserved = 5;             // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
constexpr int kLocationDevice = 1;           // CU_MEM_LOCATION_TYPE_DEVICE
constexpr int kAllocationPinned = 1;         // CU_MEM_ALLOCATION_TYPE_PINNED
constexpr int kAccessReadWrite = 3;          // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
constexpr unsigned kHostPortable = 1;        // CU_MEMHOSTALLOC_PORTABLE
constexpr int kOldestOverlap = 12030;        // the first that captures programmatic launches
constexpr int kOldestDriver = 12000;         // the first release that runs sm_90a code

enum LaunchAttributeKind : int { kLaunchCluster = 4, kLaunchProgrammatic = 6 };

// CUlaunchAttribute: the value is a union of 64 bytes.
struct LaunchAttribute {
  LaunchAttributeKind kind;
  unsigned padding;
  unsigned value[16];
};

// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared;
  StreamHandle stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

// CUtensorMap.
struct alignas(64) EncodedTensorMap {
  std::uint64_t words[16];
};

constexpr int kPromoteTo256Bytes = 3;  // CU_TENSOR_MAP_L2_PROMOTION_L2_256B

static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);

struct MemoryLocation {
  int type;
  int id;
};

// CUmemPoolProps.
struct PoolProperties {
  int allocation;
  int handles;
  MemoryLocation location;
  void* security;
  std::size_t most;
  unsigned short usage;
  unsigned char reserved[54];
};

// CUmemAccessDesc.
struct PoolAccess {
  MemoryLocation location;
  int flags;
};

// One row for each function that is used: member, exported symbol, parameters.
#define HEDDLE_CUDA_FUNCTIONS(X)                                                               \
  X(init, "cuInit", (unsigned))                                                                \
  X(get_version, "cuDriverGetVersion", (int*))                                                 \
  X(error_name, "cuGetErrorName", (Result, const char**))                                      \
  X(error_string, "cuGetErrorString", (Result, const char**))                                  \
  X(count_devices, "cuDeviceGetCount", (int*))                                                 \
  X(device_get, "cuDeviceGet", (DeviceHandle*, int))                                           \
  X(device_name, "cuDeviceGetName", (char*, int, DeviceHandle))                                \
  X(device_memory, "cuDeviceTotalMem_v2", (std::size_t*, DeviceHandle))                        \
  X(device_attribute, "cuDeviceGetAttribute", (int*, DeviceAttribute, DeviceHandle))           \
  X(context_retain, "cuDevicePrimaryCtxRetain", (Context*, DeviceHandle))                      \
  X(context_release, "cuDevicePrimaryCtxRelease_v2", (DeviceHandle))                           \
  X(context_push, "cuCtxPushCurrent_v2", (Context))                                            \
  X(context_pop, "cuCtxPopCurrent_v2", (Context*))                                             \
  X(memory_info, "cuMemGetInfo_v2", (std::size_t*, std::size_t*))                              \
  X(memory_allocate, "cuMemAlloc_v2", (Address*, std::size_t))                                 \
  X(memory_free, "cuMemFree_v2", (Address))                                                    \
  X(memory_from_pool, "cuMemAllocFromPoolAsync",                                               \
    (Address*, std::size_t, MemoryPool, StreamHandle))                                         \
  X(memory_free_async, "cuMemFreeAsync", (Address, StreamHandle))                              \
  X(pool_create, "cuMemPoolCreate", (MemoryPool*, const PoolProperties*))                      \
  X(pool_destroy, "cuMemPoolDestroy", (MemoryPool))                                            \
  X(pool_set, "cuMemPoolSetAttribute", (MemoryPool, int, void*))                               \
  X(pool_get, "cuMemPoolGetAttribute", (MemoryPool, int, void*))                               \
  X(pool_trim, "cuMemPoolTrimTo", (MemoryPool, std::size_t))                                   \
  X(pool_access, "cuMemPoolSetAccess", (MemoryPool, const PoolAccess*, std::size_t))           \
  X(can_access, "cuDeviceCanAccessPeer", (int*, DeviceHandle, DeviceHandle))                   \
  X(host_allocate, "cuMemHostAlloc", (void**, std::size_t, unsigned))                          \
  X(host_free, "cuMemFreeHost", (void*))                                                       \
  X(pointer_attribute, "cuPointerGetAttribute", (void*, int, Address))                         \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2", (Address, const void*, std::size_t, StreamHandle)) \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void*, Address, std::size_t, StreamHandle))         \
  X(copy_on_device, "cuMemcpyDtoDAsync_v2", (Address, Address, std::size_t, StreamHandle))     \
  X(copy_from_peer, "cuMemcpyPeerAsync",                                                       \
    (Address, Context, Address, Context, std::size_t, StreamHandle))                           \
  X(fill_bytes, "cuMemsetD8Async", (Address, unsigned char, std::size_t, StreamHandle))        \
  X(stream_create, "cuStreamCreate", (StreamHandle*, unsigned))                                \
  X(stream_destroy, "cuStreamDestroy_v2", (StreamHandle))                                      \
  X(stream_synchronize, "cuStreamSynchronize", (StreamHandle))                                 \
  X(stream_context, "cuStreamGetCtx", (StreamHandle, Context*))                                \
  X(stream_id, "cuStreamGetId", (StreamHandle, unsigned long long*))                           \
  X(stream_is_capturing, "cuStreamIsCapturing", (StreamHandle, int*))                          \
  X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int*))                        \
  X(stream_wait_event, "cuStreamWaitEvent", (StreamHandle, EventHandle, unsigned))             \
  X(event_create, "cuEventCreate", (EventHandle*, unsigned))                                   \
  X(event_record, "cuEventRecord", (EventHandle, StreamHandle))                                \
  X(event_query, "cuEventQuery", (EventHandle))                                                \
  X(event_synchronize, "cuEventSynchronize", (EventHandle))                                    \
  X(event_elapsed, "cuEventElapsedTime", (float*, EventHandle, EventHandle))                   \
  X(event_destroy, "cuEventDestroy_v2", (EventHandle))                                         \
  X(capture_begin, "cuStreamBeginCapture_v2", (StreamHandle, int))                             \
  X(capture_end, "cuStreamEndCapture", (StreamHandle, Graph*))                                 \
  X(graph_instantiate, "cuGraphInstantiateWithFlags", (GraphExec*, Graph, std::uint64_t))      \
  X(graph_launch, "cuGraphLaunch", (GraphExec, StreamHandle))                                  \
  X(graph_destroy, "cuGraphDestroy", (Graph))                                                  \
  X(graph_exec_destroy, "cuGraphExecDestroy", (GraphExec))                                     \
  X(module_load, "cuModuleLoadDataEx", (Module*, const void*, unsigned, int*, void**))         \
  X(module_unload, "cuModuleUnload", (Module))                                                 \
  X(module_function, "cuModuleGetFunction", (Function*, Module, const char*))                  \
  X(function_set, "cuFuncSetAttribute", (Function, int, int))                                  \
  X(launch, "cuLaunchKernelEx", (const LaunchConfig*, Function, void**, void**))               \
  X(encode_tensor_map, "cuTensorMapEncodeTiled",                                               \
    (EncodedTensorMap*, int, std::uint32_t, void*, const std::uint64_t*, const std::uint64_t*, \
     const std::uint32_t*, const std::uint32_t*, int, int, int, int))

// The loaded driver. There is one for the process; it is never unloaded.
class Driver {
 public:
  // Loads libcuda.so.1 and initialises it at the first call. Throws DeviceError each time where
  // there is no driver, one older than CUDA 12.0, or no device.
  static const Driver& get();

  // Why there is no usable driver, or an empty text.
  static std::string unavailable();

  int version() const { return version_; }
  int device_count() const { return device_count_; }

  // Throws DeviceError "<where>: CUDA_ERROR_...: text" unless `result` is success.
  void check(Result result, const std::string& where) const;
  std::string explain(Result result) const;

#define HEDDLE_CUDA_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  HEDDLE_CUDA_FUNCTIONS(HEDDLE_CUDA_MEMBER)
#undef HEDDLE_CUDA_MEMBER

 private:
  Driver() = default;
  std::string load();  // what is wrong, or an empty text
  static const Driver& instance();

  int version_ = 0;
  int device_count_ = 0;
  std::string problem_;
};

// "13.0" for 13000.
std::string version_text(int version);

}  // namespace heddle::cuda
