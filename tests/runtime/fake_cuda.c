/* Devices, contexts, modules and kernels of the fake driver; fake_cuda.h says what it is. */
#define _GNU_SOURCE
#include "fake_cuda.h"

typedef struct {
  int count;
  Kernel kernels[16];
} Module;

enum { DEPTH = 64, DEVICES = 8 };
pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static long live, faults;
static int contexts;
static Result lost[DEVICES];
static __thread int stack[DEPTH], depth;

Result give_node(void* stream, const Node* node);

long setting(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text ? strtol(text, NULL, 0) : otherwise;
}

int told(const char* name) {
  const char* text = getenv("FAKE_CUDA_FAIL");
  return text && !strcmp(text, name);
}

void say(const char* format, long a, long b, long c) {
  const char* path = getenv("FAKE_CUDA_LOG");
  if (!path) return;
  FILE* file = fopen(path, "a");
  fprintf(file, format, a, b, c);
  fclose(file);
}

void count(long objects) { __sync_add_and_fetch(&live, objects); }

/* What no correct host makes a device do. */
void fault(const char* what, uint64_t address) {
  fprintf(stderr, "fake driver: %s, at %llx\n", what, (unsigned long long)address);
  __sync_add_and_fetch(&faults, 1);
}

/* Objects that are still alive, faults, and contexts: asked by the tests at the end. */
OUT long fake_live(void) { return live; }
OUT long fake_faults(void) { return faults; }
OUT int fake_contexts(void) { return contexts; }

int current_device(void) { return depth ? stack[depth - 1] : -1; }
Result sticky(void) {
  const int device = current_device();
  if (device >= 0) return lost[device];
  for (int i = 0; i < DEVICES; i++) {
    if (lost[i]) return lost[i];
  }
  return 0;
}
void lose(int device, Result result) { lost[device] = result; }

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
    case 400:
      *name = "CUDA_ERROR_INVALID_HANDLE";
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
  if (!context || depth == DEPTH) return 201;
  stack[depth++] = (int)(uintptr_t)context - 1;
  return 0;
}
OUT Result cuCtxPopCurrent_v2(void** context) {
  if (!depth) return 201;
  *context = (void*)(uintptr_t)(stack[--depth] + 1);
  return 0;
}

OUT Result cuModuleLoadDataEx(Module** made, const char* image, unsigned options, int* keys,
                              void** values) {
  long broken = setting(image[0] == 'F' ? "FAKE_CUDA_LOAD" : "FAKE_CUDA_PTX", 0);
  say(image[0] == 'F' ? "load cubin\n" : "load ptx\n", 0, 0, 0);
  for (unsigned i = 0; broken && i < options; i++) {
    if (keys[i] == 5) strcpy(values[i], "fake assembler: line 1");
  }
  if (broken || current_device() < 0) return broken ? (Result)broken : 201;
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
  count(1);
  *made = module;
  return 0;
}
OUT Result cuModuleUnload(Module* module) {
  memset(module, 0xDD, sizeof *module); /* what still runs has a copy */
  free(module);
  count(-1);
  return 0;
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
static void run_kernel(int device, const Kernel* k, const uint64_t* words) {
  void* buffers[16];
  int64_t size = (int64_t)words[k->buffers];
  const int checks = !strcmp(k->action, "check");
  for (int i = 0; i < k->buffers; i++) {
    buffers[i] = HOST(words[i]);
    check_access(device, words[i], checks && i == 2 ? 32 : 4 * (size_t)size);
  }
  if (faults) return;
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
  } else if (checks) { /* negative numbers are out of range */
    float *a = buffers[0], *b = buffers[1];
    int64_t* status = buffers[2];
    for (int64_t i = 0; i < size; i++) {
      b[i] = a[i];
      if (a[i] < 0 && !status[0]) status[0] = 1, status[1] = (int64_t)a[i], status[2] = size;
    }
  }
}
void act(int device, const Node* node) {
  const uint64_t* words = node->words;
  if (lost[device]) return;
  if (node->kernel.buffers) {
    if (setting("FAKE_CUDA_FAULT", 0)) lose(device, (Result)setting("FAKE_CUDA_FAULT", 0));
    run_kernel(device, &node->kernel, words);
    return;
  }
  check_access(device, words[0], words[2]);
  if (strcmp(node->kernel.action, "peer")) check_access(device, words[1], words[2]);
  memmove(HOST(words[0]), HOST(words[1]), words[2]);
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
  if (is_captured(stream) && told("capture")) return 900;
  long broken = setting("FAKE_CUDA_LAUNCH", 0);
  if (broken || extra || current_device() < 0) return broken ? (Result)broken : 1;
  Node node = {*k, {0}};
  for (int i = 0; i < k->buffers + k->dims; i++) node.words[i] = *(uint64_t*)parameters[i];
  return sticky() ? sticky() : give_node(stream, &node);
}
#endif
