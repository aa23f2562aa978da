/* A stand-in for the NVIDIA driver: memory is malloc, kernels are a few C loops, calls are logged.

   The tests build it as libcuda.so.1. Device addresses carry a tag, so a host access to device
   memory crashes. A module is text: "FAKE" (cubin) or ".version 8.0" (PTX), then one line
   "kernel <symbol> <action> <buffers> <dims> [<tensor maps>]" each, then "end".
   Environment: FAKE_CUDA_LOG (file), FAKE_CUDA_VERSION, FAKE_CUDA_DEVICES, FAKE_CUDA_CAPABILITY
   (90), FAKE_CUDA_MEMORY (bytes), FAKE_CUDA_POOLS, FAKE_CUDA_GRID (limit), and faults:
   FAKE_CUDA_INIT, FAKE_CUDA_FAIL (the function), FAKE_CUDA_LOAD, FAKE_CUDA_LAUNCH,
   FAKE_CUDA_SYNC_AFTER_LAUNCH (the CUresult to return). */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG (1ull << 60)
#define MARK 0x7e507e507e507e50ull /* in front of a tensor map */
#define HOST(address) ((void*)(uintptr_t)((address) & ~TAG))
#define OUT __attribute__((visibility("default")))

typedef int Result;
typedef struct {
  char symbol[64], action[32];
  int buffers, dims, maps;
} Kernel;
typedef struct {
  int count;
  Kernel kernels[16];
} Module;
typedef struct {
  size_t size;
  char padding[56];
} Header;
typedef struct { /* a launch, or a copy where there is no kernel */
  Kernel* kernel;
  uint64_t words[24]; /* the parameters' values; or target, source, size */
} Node;
typedef struct {
  int count;
  Node nodes[64];
} Graph;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long live, bytes, numbered;
static int contexts, launched;
static __thread int current;
enum { EVENTS = 4096 };
static long acted, recorded[EVENTS];
static __thread Graph* capturing;
static __thread void* captured;

static long setting(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text ? strtol(text, NULL, 0) : otherwise;
}

/* Whether this function is the one that the test wants to fail. */
static int told(const char* name) {
  const char* text = getenv("FAKE_CUDA_FAIL");
  return text && !strcmp(text, name);
}

static void say(const char* format, long a, long b, long c) {
  const char* path = getenv("FAKE_CUDA_LOG");
  if (!path) return;
  FILE* file = fopen(path, "a");
  fprintf(file, format, a, b, c);
  fclose(file);
}

static void count(long objects, long size) {
  pthread_mutex_lock(&lock);
  live += objects;
  bytes += size;
  pthread_mutex_unlock(&lock);
}

/* Objects that are still alive, and bytes of device memory: asked by the tests at the end. */
OUT long fake_live(void) { return live; }
OUT long fake_bytes(void) { return bytes; }
OUT int fake_contexts(void) { return contexts; }

OUT Result cuInit(unsigned flags) { return flags ? 1 : (Result)setting("FAKE_CUDA_INIT", 0); }
OUT Result cuDriverGetVersion(int* version) {
  if (told("cuDriverGetVersion")) return 1;
  *version = (int)setting("FAKE_CUDA_VERSION", 13000);
  return 0;
}
OUT Result cuGetErrorName(Result result, const char** name) {
  switch (result) {
    case 1:
      *name = "CUDA_ERROR_INVALID_VALUE";
      return 0;
    case 2:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      return 0;
    case 100:
      *name = "CUDA_ERROR_NO_DEVICE";
      return 0;
    case 200:
      *name = "CUDA_ERROR_INVALID_IMAGE";
      return 0;
    case 201:
      *name = "CUDA_ERROR_INVALID_CONTEXT";
      return 0;
    case 222:
      *name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION";
      return 0;
    case 500:
      *name = "CUDA_ERROR_NOT_FOUND";
      return 0;
    case 700:
      *name = "CUDA_ERROR_ILLEGAL_ADDRESS";
      return 0;
    case 719:
      *name = "CUDA_ERROR_LAUNCH_FAILED";
      return 0;
    default:
      return 1;
  }
}
OUT Result cuGetErrorString(Result result, const char** text) {
  *text = result == 2 ? "out of memory" : "as the fake was told";
  return 0;
}

OUT Result cuDeviceGetCount(int* devices) {
  if (told("cuDeviceGetCount")) return 1;
  *devices = (int)setting("FAKE_CUDA_DEVICES", 1);
  return 0;
}
OUT Result cuDeviceGet(int* device, int index) {
  *device = index;
  return index < setting("FAKE_CUDA_DEVICES", 1) ? 0 : 101;
}
OUT Result cuDeviceGetName(char* name, int size, int device) {
  if (told("cuDeviceGetName")) return 1;
  snprintf(name, (size_t)size, "Fake %d", device);
  return 0;
}
OUT Result cuDeviceTotalMem_v2(size_t* size, int device) {
  if (told("cuDeviceTotalMem_v2")) return 1;
  (void)device;
  *size = (size_t)setting("FAKE_CUDA_MEMORY", 1 << 30);
  return 0;
}
OUT Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (told("cuDeviceGetAttribute")) return 1;
  (void)device;
  int capability = (int)setting("FAKE_CUDA_CAPABILITY", 90);
  switch (attribute) {
    case 5:
      *value = 2147483647;
      return 0;
    case 6:
    case 7:
      *value = (int)setting("FAKE_CUDA_GRID", 65535);
      return 0;
    case 16:
      *value = 132;
      return 0;
    case 38:
      *value = 1 << 20;
      return 0;
    case 75:
      *value = capability / 10;
      return 0;
    case 76:
      *value = capability % 10;
      return 0;
    case 97:
      *value = 232448;
      return 0;
    case 115:
      *value = (int)setting("FAKE_CUDA_POOLS", 1);
      return 0;
    default:
      return 1;
  }
}

OUT Result cuDevicePrimaryCtxRetain(void** context, int device) {
  if (told("cuDevicePrimaryCtxRetain")) return 1;
  *context = (void*)(uintptr_t)(device + 1);
  contexts++;
  return 0;
}
OUT Result cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  contexts--;
  return 0;
}
OUT Result cuCtxPushCurrent_v2(void* context) {
  if (told("cuCtxPushCurrent_v2")) return 1;
  return context ? (current++, 0) : 201;
}
OUT Result cuCtxPopCurrent_v2(void** context) {
  *context = NULL;
  return current > 0 ? (current--, 0) : 201;
}

static Result allocate(uint64_t* address, size_t size, size_t limit) {
  if (!current) return 201;
  if (!size) return 1;
  if ((size_t)bytes + size > limit) return 2;
  Header* header = aligned_alloc(64, (sizeof(Header) + size + 127) / 64 * 64);
  header->size = size;
  memset(header + 1, 0xAB, size); /* fresh memory is never zero by luck */
  count(1, (long)size);
  *address = (uint64_t)(uintptr_t)(header + 1) | TAG;
  return 0;
}
static Result release(uint64_t address) {
  if (!current) return 201;
  Header* header = (Header*)HOST(address) - 1;
  count(-1, -(long)header->size);
  free(header);
  return 0;
}
OUT Result cuMemAlloc_v2(uint64_t* address, size_t size) {
  say("alloc %ld\n", (long)size, 0, 0);
  return allocate(address, size, (size_t)setting("FAKE_CUDA_MEMORY", 1 << 30));
}
OUT Result cuMemFree_v2(uint64_t address) { return release(address); }
OUT Result cuMemAllocAsync(uint64_t* address, size_t size, void* stream) {
  say("alloc_async %ld %ld\n", (long)size, (long)(uintptr_t)stream, 0);
  return allocate(address, size, (size_t)setting("FAKE_CUDA_MEMORY", 1 << 30));
}
OUT Result cuMemFreeAsync(uint64_t address, void* stream) {
  (void)stream;
  return release(address);
}
OUT Result cuMemcpyHtoDAsync_v2(uint64_t target, const void* source, size_t size, void* stream) {
  if (told("cuMemcpyHtoDAsync_v2")) return 1;
  say("to_device %ld %ld\n", (long)size, (long)(uintptr_t)stream, 0);
  memcpy(HOST(target), source, size);
  return current ? 0 : 201;
}
OUT Result cuMemcpyDtoHAsync_v2(void* target, uint64_t source, size_t size, void* stream) {
  if (told("cuMemcpyDtoHAsync_v2")) return 1;
  say("to_host %ld %ld\n", (long)size, (long)(uintptr_t)stream, 0);
  memcpy(target, HOST(source), size);
  return current ? 0 : 201;
}
OUT Result cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t size, void* stream) {
  if (capturing && stream == captured) {
    capturing->nodes[capturing->count++] = (Node){NULL, {target, source, size}};
    return current ? 0 : 201;
  }
  say("on_device %ld %ld\n", (long)size, (long)(uintptr_t)stream, 0);
  memcpy(HOST(target), HOST(source), size);
  return current ? 0 : 201;
}
OUT Result cuMemsetD8Async(uint64_t target, unsigned char value, size_t size, void* stream) {
  if (told("cuMemsetD8Async")) return 1;
  (void)stream;
  memset(HOST(target), value, size);
  return current ? 0 : 201;
}

static Result handle(void** made) {
  *made = (void*)(uintptr_t)__sync_add_and_fetch(&numbered, 1);
  count(1, 0);
  return current ? 0 : 201;
}
static Result unhandle(void) {
  count(-1, 0);
  return current ? 0 : 201;
}
OUT Result cuStreamBeginCapture_v2(void* stream, int mode) {
  if (told("cuStreamBeginCapture_v2") || capturing || !stream || mode != 1) return 1;
  capturing = calloc(1, sizeof *capturing);
  captured = stream;
  count(1, 0);
  return current ? 0 : 201;
}
OUT Result cuStreamEndCapture(void* stream, Graph** graph) {
  if (!capturing || stream != captured) return 1;
  *graph = capturing;
  capturing = NULL;
  return told("cuStreamEndCapture") ? 901 : 0;
}
OUT Result cuGraphInstantiateWithFlags(Graph** made, Graph* graph, uint64_t flags) {
  if (told("cuGraphInstantiateWithFlags") || flags) return 1;
  *made = malloc(sizeof *graph);
  **made = *graph;
  say("graph %ld\n", graph->count, 0, 0);
  count(1, 0);
  return 0;
}
OUT Result cuGraphDestroy(Graph* graph) {
  free(graph);
  return unhandle();
}
OUT Result cuGraphExecDestroy(Graph* graph) {
  free(graph);
  return unhandle();
}
OUT Result cuStreamCreate(void** stream, unsigned flags) {
  if (told("cuStreamCreate")) return 1;
  return flags == 1 ? handle(stream) : 1;
}
OUT Result cuStreamDestroy_v2(void* stream) { return stream ? unhandle() : 1; }
OUT Result cuStreamSynchronize(void* stream) {
  if (capturing && stream == captured) return 900;
  say("synchronize %ld\n", (long)(uintptr_t)stream, 0, 0);
  return launched ? (Result)setting("FAKE_CUDA_SYNC_AFTER_LAUNCH", 0) : 0;
}
OUT Result cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  say("wait %ld %ld\n", (long)(uintptr_t)stream, (long)(uintptr_t)event, 0);
  return flags ? 1 : 0;
}
OUT Result cuEventCreate(void** event, unsigned flags) {
  if (told("cuEventCreate")) return 1;
  return flags == 2 || !flags ? handle(event) : 1;
}
OUT Result cuEventRecord(void* event, void* stream) {
  say("record %ld %ld\n", (long)(uintptr_t)event, (long)(uintptr_t)stream, 0);
  recorded[(uintptr_t)event % EVENTS] = acted;
  return told("cuEventRecord");
}
/* A launch takes a millisecond. */
OUT Result cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  *milliseconds = (float)(recorded[(uintptr_t)end % EVENTS] - recorded[(uintptr_t)begin % EVENTS]);
  return 0;
}
OUT Result cuEventDestroy_v2(void* event) { return event ? unhandle() : 1; }

OUT Result cuModuleLoadDataEx(Module** made, const char* image, unsigned options, int* keys,
                              void** values) {
  long fault = setting("FAKE_CUDA_LOAD", 0);
  say(image[0] == 'F' ? "load cubin\n" : "load ptx\n", 0, 0, 0);
  for (unsigned i = 0; fault && i < options; i++) {
    if (keys[i] == 5) strcpy(values[i], "fake assembler: line 1");
  }
  if (fault || !current) return fault ? (Result)fault : 201;
  if (strncmp(image, "FAKE", 4) && strncmp(image, ".version", 8)) return 200;
  Module* module = calloc(1, sizeof *module);
  for (const char* line = strchr(image, '\n') + 1; strncmp(line, "end", 3);
       line = strchr(line, '\n') + 1) {
    Kernel* k = &module->kernels[module->count++];
    if (sscanf(line, "kernel %63s %31s %d %d %d", k->symbol, k->action, &k->buffers, &k->dims,
               &k->maps) < 4) {
      free(module);
      return 200;
    }
  }
  count(1, 0);
  *made = module;
  return 0;
}
OUT Result cuModuleUnload(Module* module) {
  free(module);
  return unhandle();
}
OUT Result cuModuleGetFunction(Kernel** function, Module* module, const char* symbol) {
  if (told("cuModuleGetFunction")) return 1;
  for (int i = 0; i < module->count; i++) {
    *function = &module->kernels[i];
    if (!strcmp(module->kernels[i].symbol, symbol)) return 0;
  }
  return 500;
}
OUT Result cuFuncSetAttribute(Kernel* function, int attribute, int value) {
  if (told("cuFuncSetAttribute")) return 1;
  (void)function;
  say("attribute %ld %ld\n", attribute, value, 0);
  return attribute == 8 ? 0 : 1;
}

/* Actions on float32 buffers of dims[0] elements, the last one written (before a status word). */
static void act(const Kernel* k, const uint64_t* words) {
  __sync_add_and_fetch(&acted, 1);
  void* buffers[16];
  for (int i = 0; i < k->buffers; i++) buffers[i] = HOST(words[i]);
  int64_t size = (int64_t)words[k->buffers];
  if (!strcmp(k->action, "add")) {
    float *a = buffers[0], *b = buffers[1], *c = buffers[2];
    for (int64_t i = 0; i < size; i++) c[i] = a[i] + b[i];
  } else if (!strcmp(k->action, "double")) {
    float *a = buffers[0], *b = buffers[1];
    for (int64_t i = 0; i < size; i++) b[i] = 2 * a[i];
  } else if (!strcmp(k->action, "negate")) {
    float *a = buffers[0], *b = buffers[1];
    for (int64_t i = 0; i < size; i++) b[i] = -a[i];
  } else if (!strcmp(k->action, "scratch")) { /* doubles by way of a workspace; adds counters */
    float *a = buffers[0], *b = buffers[1], *scratch = buffers[2];
    int32_t* counters = buffers[3];
    for (int64_t i = 0; i < size; i++) scratch[i] = 2 * a[i];
    for (int64_t i = 0; i < size; i++) b[i] = scratch[i] + counters[i];
  } else if (!strcmp(k->action, "check")) { /* negative numbers are out of range */
    float *a = buffers[0], *b = buffers[1];
    int64_t* status = buffers[2];
    for (int64_t i = 0; i < size; i++) {
      b[i] = a[i];
      if (a[i] < 0) status[0] = 1, status[1] = (int64_t)a[i], status[2] = size;
    }
  }
}
OUT Result cuGraphLaunch(Graph* graph, void* stream) {
  if (told("cuGraphLaunch")) return 1;
  say("graph_launch %ld stream %ld\n", graph->count, (long)(uintptr_t)stream, 0);
  launched = 1;
  for (int i = 0; i < graph->count; i++) {
    const Node* node = &graph->nodes[i];
    const uint64_t* words = node->words;
    if (node->kernel) {
      act(node->kernel, words);
    } else {
      memcpy(HOST(words[0]), HOST(words[1]), words[2]);
    }
  }
  return current ? 0 : 201;
}

OUT Result cuTensorMapEncodeTiled(uint64_t* map, int type, unsigned rank, void* address,
                                  const uint64_t* shape, const uint64_t* strides,
                                  const unsigned* box, const unsigned* steps, int interleave,
                                  int swizzle, int promotion, int fill) {
  if (told("cuTensorMapEncodeTiled") || (uintptr_t)map % 64 || interleave || promotion != 3 || fill)
    return 1;
  if (rank < 1 || rank > 5 || !((uintptr_t)address & TAG) || (uintptr_t)address % 16) return 1;
  const char* path = getenv("FAKE_CUDA_LOG");
  FILE* file = path ? fopen(path, "a") : NULL;
  if (file) fprintf(file, "tensor map type %d swizzle %d shape", type, swizzle);
  for (unsigned i = 0; i < rank; i++) {
    if (!shape[i] || steps[i] != 1 || !box[i] || (i && strides[i - 1] % 16)) return 1;
    if (file) fprintf(file, " %llu", (unsigned long long)shape[i]);
  }
  if (file) fprintf(file, " strides");
  for (unsigned i = 0; file && i + 1 < rank; i++) {
    fprintf(file, " %llu", (unsigned long long)strides[i]);
  }
  if (file) fprintf(file, " box");
  for (unsigned i = 0; file && i < rank; i++) fprintf(file, " %u", box[i]);
  if (file) fprintf(file, "\n"), fclose(file);
  memset(map, 0, 128);
  map[0] = MARK;
  return 0;
}

#ifndef WITHOUT_LAUNCH
typedef struct {
  int id, padding;
  unsigned value[16];
} Attribute;
typedef struct {
  unsigned grid[3], block[3], shared;
  void* stream;
  Attribute* attributes;
  unsigned count;
} Config;
OUT Result cuLaunchKernelEx(const Config* config, Kernel* k, void** parameters, void** extra) {
  const unsigned *g = config->grid, *b = config->block;
  void* stream = config->stream;
  const char* path = getenv("FAKE_CUDA_LOG");
  if (path) {
    FILE* file = fopen(path, "a");
    fprintf(file, "launch %s grid %u %u %u block %u %u %u shared %u stream %ld dims", k->symbol,
            g[0], g[1], g[2], b[0], b[1], b[2], config->shared, (long)(uintptr_t)stream);
    for (int i = 0; i < k->dims; i++) {
      fprintf(file, " %lld", *(long long*)parameters[k->buffers + i]);
    }
    for (unsigned i = 0; i < config->count; i++) {
      const unsigned* value = config->attributes[i].value;
      if (config->attributes[i].id == 4) {
        fprintf(file, " cluster %u %u %u", value[0], value[1], value[2]);
      } else {
        fprintf(file, " attribute %d %u", config->attributes[i].id, value[0]);
      }
    }
    /* Tensor maps follow the dims; a map of ours begins with its mark. */
    for (int i = k->buffers + k->dims; i < k->buffers + k->dims + k->maps; i++) {
      const uint64_t* map = parameters[i];
      fprintf(file, map[0] == MARK ? " map" : map[0] ? " nonsense" : " no map");
    }
    fprintf(file, "\n");
    fclose(file);
  }
  long fault = setting("FAKE_CUDA_LAUNCH", 0);
  if (fault || extra || !current) return fault ? (Result)fault : 1;
  launched = 1;
  Node node = {k, {0}};
  for (int i = 0; i < k->buffers + k->dims; i++) node.words[i] = *(uint64_t*)parameters[i];
  if (capturing && stream == captured) {
    capturing->nodes[capturing->count++] = node;
  } else {
    act(k, node.words);
  }
  return 0;
}
#endif
