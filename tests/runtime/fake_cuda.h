/* A stand-in for the NVIDIA driver, as lazy as a device may be: what a stream is given runs when
   the host waits for it, and then no more than that. So a missing wait reads what is not there yet,
   and memory that was freed too early is used when it is gone: each is a fault, which the tests ask
   for.

   The tests build it as libcuda.so.1. Device addresses carry a tag, so a host access to device
   memory crashes. A module is text: "FAKE" (cubin) or ".version 8.0" (PTX), then one line
   "kernel <symbol> <action> <buffers> <dims> [<tensor maps>]" each, then "end".
   Environment: FAKE_CUDA_LOG (file), FAKE_CUDA_VERSION, FAKE_CUDA_DEVICES, FAKE_CUDA_CAPABILITY
   (90), FAKE_CUDA_MEMORY (bytes), FAKE_CUDA_POOLS, FAKE_CUDA_GRID (limit), FAKE_CUDA_EAGER (work
   runs as soon as it may), and what fails: FAKE_CUDA_INIT, FAKE_CUDA_FAIL (the function,
   or "capture", of launches), FAKE_CUDA_LOAD (of a cubin), FAKE_CUDA_PTX, FAKE_CUDA_LAUNCH,
   FAKE_CUDA_FAULT (a kernel that runs; the CUresult of all that comes later). */
#pragma once
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG (1ull << 60)
#define MARK 0x7e507e507e507e50ull /* in front of a tensor map */
#define HOST(address) ((void*)(uintptr_t)((address) & ~TAG))
#define OUT __attribute__((visibility("default")))
#define LEGACY 1

typedef int Result;
typedef struct {
  char symbol[64], action[32];
  int buffers, dims, maps;
} Kernel;
typedef struct { /* a launch, or a copy where there is no kernel */
  Kernel kernel;
  uint64_t words[24]; /* the parameters' values; or target, source, size */
} Node;
typedef struct {
  int count;
  Node nodes[64];
} Graph;

enum Kind { RUN, TO_DEVICE, TO_HOST, FILL, ALLOCATE, FREE, WAIT };
typedef struct {
  enum Kind kind;
  uint64_t target, source;
  size_t size;
  const void* from; /* on the host */
  void* to;
  Graph* graph;
  long stream, position; /* what a WAIT is for */
} Work;

long setting(const char* name, long otherwise);
int told(const char* name); /* whether this function is the one that the test wants to fail */
void say(const char* format, long a, long b, long c);
void fault(const char* what, uint64_t address);
void count(long objects);
int current_device(void); /* -1: no context is current */
Result sticky(void);      /* the fault of the current device */
void lose(int device, Result result);

/* Queues work, or runs it in the order of its stream. */
Result give(void* stream, Work work);
int device_of_stream(long stream);
int is_captured(void* stream);

/* Memory of a device, at the time at which a stream gets there. */
void check_access(int device, uint64_t address, size_t size);
void begin_life(uint64_t address);
void end_life(uint64_t address);
void act(int device, const Node* node);

extern pthread_mutex_t lock; /* recursive */
