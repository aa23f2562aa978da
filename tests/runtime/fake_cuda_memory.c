/* Memory, pools and copies of the fake driver. */
#include "fake_cuda.h"

enum { BLOCKS = 1 << 16, DEVICES = 8 };
typedef struct {
  uint64_t address;
  size_t size;
  int device, alive, held; /* alive as a stream sees it, held as the host does */
  void* freed_on;
} Block;
typedef struct {
  int device, readers;
  uint64_t threshold;
  long reserved;
} Pool;

static Block blocks[BLOCKS];
static long block_count, used[DEVICES], readers[DEVICES];

Result give_node(void* stream, const Node* node);

static Block* find(uint64_t address) {
  for (long i = block_count; i-- > 0;) {
    Block* b = &blocks[i];
    if (address >= b->address && address < b->address + b->size) return b;
  }
  return NULL;
}

void check_access(int device, uint64_t address, size_t size) {
  if (!size) return;
  Block* b = find(address);
  if (!b || address + size > b->address + b->size) {
    fault("an access outside of all memory", address);
  } else if (!b->alive) {
    fault("an access to memory before its allocation or after its end", address);
  } else if (b->device != device && !(readers[b->device] >> device & 1)) {
    fault("an access to another device's memory", address);
  }
}
void begin_life(uint64_t address) {
  Block* b = find(address);
  if (b->alive) fault("an allocation before the end of what was there", address);
  b->alive = 1;
  memset(HOST(address), 0xAB, b->size); /* fresh memory is never zero by luck */
}
void end_life(uint64_t address) {
  Block* b = find(address);
  if (!b->alive) fault("an end before the allocation", address);
  b->alive = 0;
  memset(HOST(address), 0xDD, b->size);
}

OUT long fake_bytes(void) {
  long bytes = 0;
  for (int i = 0; i < DEVICES; i++) bytes += used[i];
  return bytes;
}

/* Memory that was freed on the same stream is given out again before the device gets there. */
static Result allocate(uint64_t* address, size_t size, void* stream) {
  const int device = current_device();
  if (device < 0) return 201;
  if (!size) return 1;
  if (sticky()) return sticky();
  if (used[device] + (long)size > setting("FAKE_CUDA_MEMORY", 1 << 30)) return 2;
  pthread_mutex_lock(&lock);
  Block* b = NULL;
  for (long i = 0; i < block_count && !b && stream; i++) {
    Block* other = &blocks[i];
    if (!other->held && other->freed_on == stream && other->size == size &&
        other->device == device) {
      b = other;
    }
  }
  if (!b) {
    b = &blocks[block_count++];
    b->address = (uint64_t)(uintptr_t)aligned_alloc(64, (size + 127) / 64 * 64) | TAG;
    b->size = size;
    b->device = device;
  }
  b->held = 1;
  used[device] += (long)size;
  count(1);
  *address = b->address;
  pthread_mutex_unlock(&lock);
  return 0;
}
OUT Result cuMemAlloc_v2(uint64_t* address, size_t size) {
  say("alloc %ld\n", (long)size, 0, 0);
  const Result result = allocate(address, size, NULL);
  if (!result) begin_life(*address);
  return result;
}
static Block* release(uint64_t address) {
  pthread_mutex_lock(&lock);
  Block* b = find(address);
  b->held = 0;
  used[b->device] -= (long)b->size;
  count(-1);
  pthread_mutex_unlock(&lock);
  return b;
}
OUT Result cuMemFree_v2(uint64_t address) {
  if (current_device() < 0) return 201;
  say("free\n", 0, 0, 0);
  release(address);
  end_life(address);
  return 0;
}
OUT Result cuMemAllocFromPoolAsync(uint64_t* address, size_t size, Pool* pool, void* stream) {
  say("alloc_async %ld %ld\n", (long)size, (long)(uintptr_t)stream, 0);
  Result result = allocate(address, size, stream);
  if (result) return result;
  if (used[pool->device] > pool->reserved) pool->reserved = used[pool->device];
  return give(stream, (Work){.kind = ALLOCATE, .target = *address});
}
OUT Result cuMemFreeAsync(uint64_t address, void* stream) {
  if (current_device() < 0) return 201;
  say("free_async %ld\n", (long)(uintptr_t)stream, 0, 0);
  Result result = give(stream, (Work){.kind = FREE, .target = address});
  if (!result) release(address)->freed_on = stream;
  return result;
}
OUT Result cuMemGetInfo_v2(size_t* unused, size_t* total) {
  if (current_device() < 0) return 201;
  *total = (size_t)setting("FAKE_CUDA_MEMORY", 1 << 30);
  *unused = *total - (size_t)used[current_device()];
  return 0;
}

OUT Result cuMemPoolCreate(Pool** pool, const int* properties) {
  if (told("cuMemPoolCreate") || properties[0] != 1 || properties[2] != 1) return 1;
  *pool = calloc(1, sizeof **pool);
  (*pool)->device = properties[3];
  count(1);
  return 0;
}
OUT Result cuMemPoolDestroy(Pool* pool) {
  free(pool);
  count(-1);
  return 0;
}
OUT Result cuMemPoolSetAttribute(Pool* pool, int attribute, void* value) {
  if (told("cuMemPoolSetAttribute")) return 1;
  if (attribute == 4) pool->threshold = *(uint64_t*)value;
  return 0;
}
OUT Result cuMemPoolGetAttribute(Pool* pool, int attribute, void* value) {
  if (told("cuMemPoolGetAttribute")) return 1;
  *(uint64_t*)value = attribute == 5 ? (uint64_t)pool->reserved : 0;
  return 0;
}
OUT Result cuMemPoolTrimTo(Pool* pool, size_t size) {
  say("trim %ld\n", (long)size, 0, 0);
  pool->reserved = used[pool->device];
  return 0;
}
OUT Result cuMemPoolSetAccess(Pool* pool, const int* access, size_t rows) {
  say("access %ld of %ld\n", access[1], pool->device, 0);
  if (told("cuMemPoolSetAccess") || rows != 1 || access[0] != 1 || access[2] != 3) return 1;
  readers[pool->device] |= 1l << access[1];
  return 0;
}
OUT Result cuDeviceCanAccessPeer(int* possible, int device, int peer) {
  if (told("cuDeviceCanAccessPeer")) return 1;
  *possible = device != peer && setting("FAKE_CUDA_PEERS", 1);
  return 0;
}

OUT Result cuMemHostAlloc(void** memory, size_t size, unsigned flags) {
  if (told("cuMemHostAlloc") || flags != 1) return 1;
  *memory = malloc(size);
  count(1);
  return 0;
}
OUT Result cuMemFreeHost(void* memory) {
  free(memory);
  count(-1);
  return 0;
}
OUT Result cuPointerGetAttribute(int* value, int attribute, uint64_t address) {
  Block* b = find(address);
  if (!b || !b->held) return 1;
  *value = attribute == 2 ? 2 : b->device;
  return 0;
}

OUT Result cuMemcpyHtoDAsync_v2(uint64_t target, const void* source, size_t size, void* stream) {
  if (told("cuMemcpyHtoDAsync_v2")) return 1;
  if (current_device() < 0) return 201;
  say("to_device %ld %ld\n", (long)size, (long)(uintptr_t)stream, 0);
  return give(stream, (Work){.kind = TO_DEVICE, .target = target, .from = source, .size = size});
}
OUT Result cuMemcpyDtoHAsync_v2(void* target, uint64_t source, size_t size, void* stream) {
  if (told("cuMemcpyDtoHAsync_v2")) return 1;
  if (current_device() < 0) return 201;
  say("to_host %ld %ld\n", (long)size, (long)(uintptr_t)stream, 0);
  return give(stream, (Work){.kind = TO_HOST, .to = target, .source = source, .size = size});
}
OUT Result cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t size, void* stream) {
  if (told("cuMemcpyDtoDAsync_v2")) return 1;
  if (current_device() < 0) return 201;
  if (!is_captured(stream)) {
    say("on_device %ld %ld\n", (long)size, (long)(uintptr_t)stream, 0);
  }
  return give_node(stream, &(Node){{"", "", 0, 0, 0}, {target, source, size}});
}
OUT Result cuMemcpyPeerAsync(uint64_t target, void* to, uint64_t source, void* from, size_t size,
                             void* stream) {
  if (told("cuMemcpyPeerAsync") || !to || !from) return 1;
  say("from_peer %ld %ld\n", (long)size, (long)(uintptr_t)stream, 0);
  return give_node(stream, &(Node){{"", "peer", 0, 0, 0}, {target, source, size}});
}
OUT Result cuMemsetD8Async(uint64_t target, unsigned char value, size_t size, void* stream) {
  if (told("cuMemsetD8Async") || value) return 1;
  if (current_device() < 0) return 201;
  say("fill %ld %ld\n", (long)size, (long)(uintptr_t)stream, 0);
  return give(stream, (Work){.kind = FILL, .target = target, .size = size});
}
