/* Streams, events and graphs of the fake driver. */
#include "fake_cuda.h"

enum { STREAMS = 512, EVENTS = 1 << 16, FIRST = 16 };
typedef struct {
  int device, live, blocking;
  long given, done, room;
  Work* work;
} Stream;
typedef struct {
  long stream, position, time;
  int captured;
} Event;

static Stream streams[STREAMS];
static Event events[EVENTS];
static long stream_count = FIRST, event_count = 1, acted, ids;
static long spare_events[EVENTS], spares;
static long stream_ids[STREAMS];
static __thread Graph* capturing;
static __thread void* captured;

/* Somebody's capture of mode GLOBAL (0) bars what is unsafe, but for threads of mode THREAD_LOCAL. */
static __thread int thread_mode;
static int globals;
OUT void fake_capture_elsewhere(int begins) { globals = begins; }
static int barred(void) { return globals && thread_mode == 0; }

static Stream* find(void* handle) {
  const long number = (long)(uintptr_t)handle;
  if (number == LEGACY) {
    streams[LEGACY].device = current_device(), streams[LEGACY].live = 1;
    return &streams[LEGACY];
  }
  return number >= FIRST && number < stream_count && streams[number].live ? &streams[number] : NULL;
}

/* Whether the default stream waits for one that is captured: it is refused then. */
static int is_implied(void* stream) {
  const Stream* other = capturing ? find(captured) : NULL;
  return stream == (void*)LEGACY && other && other->blocking;
}

int device_of_stream(long stream) { return streams[stream].device; }

static void run_until(long stream, long position);

static void run_one(int device, Work* work) {
  switch (work->kind) {
    case RUN:
      for (int i = 0; i < work->graph->count; i++) act(device, &work->graph->nodes[i]);
      free(work->graph);
      acted++;
      break;
    case TO_DEVICE:
      check_access(device, work->target, work->size);
      memcpy(HOST(work->target), work->from, work->size);
      break;
    case TO_HOST:
      check_access(device, work->source, work->size);
      memcpy(work->to, HOST(work->source), work->size);
      break;
    case FILL:
      check_access(device, work->target, work->size);
      memset(HOST(work->target), 0, work->size);
      break;
    case ALLOCATE:
      begin_life(work->target);
      break;
    case FREE:
      end_life(work->target);
      break;
    case WAIT:
      run_until(work->stream, work->position);
      break;
  }
}

static void run_until(long stream, long position) {
  Stream* s = &streams[stream];
  while (s->done < position) {
    Work work = s->work[s->done++];
    run_one(s->device, &work);
  }
}

Result give(void* handle, Work work) {
  pthread_mutex_lock(&lock);
  Stream* s = find(handle);
  if (s) {
    if (s->given == s->room) {
      s->room = s->room ? 2 * s->room : 16;
      s->work = realloc(s->work, (size_t)s->room * sizeof *s->work);
    }
    s->work[s->given++] = work;
    if (setting("FAKE_CUDA_EAGER", 0)) run_until(s - streams, s->given);
  }
  pthread_mutex_unlock(&lock);
  return s ? 0 : 400;
}

/* Lets the device get on with everything. */
OUT void fake_catch_up(void) {
  pthread_mutex_lock(&lock);
  for (long i = 0; i < stream_count; i++) run_until(i, streams[i].given);
  pthread_mutex_unlock(&lock);
}

OUT Result cuStreamCreate(void** stream, unsigned flags) {
  if (told("cuStreamCreate") || flags > 1) return 1;
  if (current_device() < 0) return 201;
  pthread_mutex_lock(&lock);
  Stream* s = &streams[stream_count];
  *s = (Stream){current_device(), 1, !flags, 0, 0, 0, NULL};
  stream_ids[stream_count] = ++ids;
  *stream = (void*)(uintptr_t)stream_count++;
  count(1);
  pthread_mutex_unlock(&lock);
  return 0;
}
/* What it was given still runs; its number is soon another's. */
OUT Result cuStreamDestroy_v2(void* stream) {
  Stream* s = find(stream);
  if (!s) return 400;
  s->live = 0;
  count(-1);
  return 0;
}
OUT Result cuStreamGetCtx(void* stream, void** context) {
  Stream* s = find(stream);
  if (!s) return 400;
  *context = (void*)(uintptr_t)(s->device + 1);
  return 0;
}
OUT Result cuStreamGetId(void* stream, unsigned long long* id) {
  Stream* s = find(stream);
  if (!s) return 400;
  *id = (unsigned long long)stream_ids[s - streams];
  return 0;
}
OUT Result cuStreamIsCapturing(void* stream, int* status) {
  if (told("cuStreamIsCapturing")) return 1;
  if (!find(stream)) return 400;
  if (is_implied(stream)) return 906;
  *status = capturing && stream == captured;
  return 0;
}
OUT Result cuThreadExchangeStreamCaptureMode(int* mode) {
  const int before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return 0;
}
OUT Result cuStreamSynchronize(void* stream) {
  if (capturing && stream == captured) return 900;
  Stream* s = find(stream);
  if (!s) return 400;
  say("synchronize %ld\n", (long)(uintptr_t)stream, 0, 0);
  if (told("cuStreamSynchronize")) return 1;
  if (current_device() < 0) return 201;
  pthread_mutex_lock(&lock);
  run_until(s - streams, s->given);
  pthread_mutex_unlock(&lock);
  return sticky();
}
OUT Result cuStreamWaitEvent(void* stream, long event, unsigned flags) {
  say("wait %ld %ld\n", (long)(uintptr_t)stream, event, 0);
  if (told("cuStreamWaitEvent") || flags) return 1;
  if (capturing && stream == captured && !events[event].captured) return 905;
  if (current_device() < 0) return 201;
  Work work = {.kind = WAIT, .stream = events[event].stream, .position = events[event].position};
  return give(stream, work);
}

OUT Result cuEventCreate(long* event, unsigned flags) {
  if (told("cuEventCreate") || (flags != 2 && flags)) return 1;
  if (current_device() < 0) return 201;
  pthread_mutex_lock(&lock);
  *event = spares ? spare_events[--spares] : event_count++;
  events[*event] = (Event){0, 0, 0, 0};
  count(1);
  pthread_mutex_unlock(&lock);
  return 0;
}
OUT Result cuEventDestroy_v2(long event) {
  pthread_mutex_lock(&lock);
  spare_events[spares++] = event;
  count(-1);
  pthread_mutex_unlock(&lock);
  return current_device() < 0 ? 201 : 0;
}
OUT Result cuEventRecord(long event, void* stream) {
  say("record %ld %ld\n", event, (long)(uintptr_t)stream, 0);
  if (told("cuEventRecord")) return 1;
  if (is_implied(stream)) return 906;
  if (current_device() < 0) return 201;
  pthread_mutex_lock(&lock);
  Stream* s = find(stream);
  if (s) {
    if (s == &streams[LEGACY]) { /* which is behind all streams that do not opt out */
      for (long i = FIRST; i < stream_count; i++) {
        Work work = {.kind = WAIT, .stream = i, .position = streams[i].given};
        if (streams[i].blocking) give(stream, work);
      }
    }
    events[event] = (Event){s - streams, s->given, acted, capturing && stream == captured};
  }
  pthread_mutex_unlock(&lock);
  return s ? sticky() : 400;
}
OUT Result cuEventQuery(long event) {
  say("query %ld\n", event, 0, 0);
  if (events[event].captured) return 907;
  if (barred()) return 900;
  if (current_device() < 0) return 201;
  pthread_mutex_lock(&lock);
  const int done = streams[events[event].stream].done >= events[event].position;
  pthread_mutex_unlock(&lock);
  if (told("cuEventQuery")) return 1;
  return sticky() ? sticky() : done ? 0 : 600;
}
OUT Result cuEventSynchronize(long event) {
  say("synchronize_event %ld\n", event, 0, 0);
  if (events[event].captured) return 907;
  if (told("cuEventSynchronize")) return 1;
  if (current_device() < 0) return 201;
  pthread_mutex_lock(&lock);
  run_until(events[event].stream, events[event].position);
  pthread_mutex_unlock(&lock);
  return sticky();
}
/* A step of a graph takes a millisecond; who asks has waited for each launch. */
OUT Result cuEventElapsedTime(float* milliseconds, long begin, long end) {
  const Event *from = &events[begin], *to = &events[end];
  long steps = 0;
  for (long i = from->position; i < to->position; i++) {
    const Work* work = &streams[to->stream].work[i];
    if (work->kind == RUN) steps += (long)work->size;
  }
  *milliseconds = (float)steps;
  return 0;
}

OUT Result cuStreamBeginCapture_v2(void* stream, int mode) {
  if (told("cuStreamBeginCapture_v2") || capturing || !find(stream) || mode != 1) return 1;
  capturing = calloc(1, sizeof *capturing);
  captured = stream;
  count(1);
  return 0;
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
  count(1);
  return 0;
}
OUT Result cuGraphDestroy(Graph* graph) {
  free(graph);
  count(-1);
  return 0;
}
OUT Result cuGraphExecDestroy(Graph* graph) { return cuGraphDestroy(graph); }

static Result give_graph(void* stream, const Graph* graph) {
  Work work = {.kind = RUN, .graph = malloc(sizeof *graph), .size = (size_t)graph->count};
  *work.graph = *graph;
  return give(stream, work);
}
OUT Result cuGraphLaunch(Graph* graph, void* stream) {
  if (told("cuGraphLaunch")) return 1;
  say("graph_launch %ld stream %ld\n", graph->count, (long)(uintptr_t)stream, 0);
  return sticky() ? sticky() : give_graph(stream, graph);
}

/* A launch or a copy on the device, to be captured or queued. */
Result give_node(void* stream, const Node* node) {
  if (capturing && stream == captured) {
    capturing->nodes[capturing->count++] = *node;
    return 0;
  }
  Graph graph = {1, {*node}};
  return give_graph(stream, &graph);
}
int is_captured(void* stream) { return capturing && stream == captured; }
