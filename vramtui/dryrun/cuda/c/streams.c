/* Streams and events: all work is done when it is given, so nothing is ever waited for. */
#include "driver.h"

struct event {
  struct capture *capture;
  struct timespec at;
};

static uint64_t last_stream;
/* The default streams: a stream's handle is NULL, 1 (legacy) or 2 (of this thread), or the stream's own. */
static struct stream default_stream;

bool is_stream(const struct stream *stream) { return (uintptr_t)stream <= 2 || is_handle(STREAMS, stream); }
static struct stream *own(struct stream *stream) { return is_handle(STREAMS, stream) ? stream : &default_stream; }

struct capture *capture_of(struct stream *stream) {
  struct stream *asked = own(stream);
  if (asked->capture != NULL && !asked->capture->is_on) {
    asked->capture = NULL; /* the stream it began on has ended it */
  }
  return asked->capture;
}

void set_capture(struct stream *stream, struct capture *capture) { own(stream)->capture = capture; }
API CUresult cuStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority) {
  struct context *context = current_context();
  RETURN_IF(is_wrong(stream), CUDA_ERROR_INVALID_VALUE);
  struct stream *made = context == NULL ? NULL : make_handle(STREAMS, sizeof *made);
  RETURN_IF(made == NULL, context == NULL ? without_context() : CUDA_ERROR_OUT_OF_MEMORY);
  *made = (struct stream){.context = context, .flags = flags, .priority = priority};
  load(context, STREAM);
  made->id = __atomic_add_fetch(&last_stream, 1, __ATOMIC_RELAXED) + 2;
  *stream = made;
  return CUDA_SUCCESS;
}
API CUresult cuStreamCreate(struct stream **stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}
ENDED(cuStreamDestroy_v2, struct stream, STREAMS, CUDA_ERROR_INVALID_HANDLE)

#define OF_STREAM(name, type, where, answer) \
  ANSWER_OF(is_stream(stream), CUDA_ERROR_INVALID_HANDLE, name, (struct stream *stream, type *where), where, answer)
static struct context *context_with(struct stream *stream) {
  return own(stream)->context == NULL ? current_context() : own(stream)->context;
}
OF_STREAM(cuStreamGetPriority, int, priority, own(stream)->priority)
OF_STREAM(cuStreamGetFlags, unsigned, flags, own(stream)->flags)
OF_STREAM(cuStreamGetId, uint64_t, id, (uintptr_t)stream <= 2 ? (uintptr_t)stream : stream->id)
OF_STREAM(cuStreamGetCtx, struct context *, context, context_with(stream))
API CUresult cuStreamGetCtx_v2(struct stream *stream, struct context **context, void **green) {
  RETURN_IF(is_wrong(green), CUDA_ERROR_INVALID_VALUE);
  *green = NULL;
  return cuStreamGetCtx(stream, context);
}
API CUresult cuStreamGetDevice(struct stream *stream, CUdevice *device) {
  RETURN_IF(is_wrong(device), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  struct context *context = context_with(stream);
  RETURN_IF(context == NULL, without_context());
  *device = context->device;
  return CUDA_SUCCESS;
}
API CUresult cuStreamSynchronize(struct stream *stream) {
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  return is_capturing(stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
API CUresult cuStreamAddCallback(struct stream *stream, void (*call)(struct stream *, CUresult, void *), void *data,
                                 unsigned flags UNUSED) {
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  RETURN_IF(!is_code((const void *)call), CUDA_ERROR_INVALID_VALUE);
  call(stream, CUDA_SUCCESS, data);
  return CUDA_SUCCESS;
}
API CUresult cuLaunchHostFunc(struct stream *stream, void (*call)(void *), void *data) {
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  RETURN_IF(!is_code((const void *)call), CUDA_ERROR_INVALID_VALUE);
  add_graph_node(stream, 3);
  if (!is_capturing(stream)) {
    call(data);
  }
  return CUDA_SUCCESS;
}
API CUresult cuStreamGetAttribute(struct stream *stream UNUSED, int number UNUSED, unsigned char value[64]) {
  RETURN_IF(is_wrong(value), CUDA_ERROR_INVALID_VALUE);
  memset(value, 0, 64);
  return CUDA_SUCCESS;
}

#define MEMORY_OPERATIONS(bits)                                                                     \
  API CUresult cuStreamWriteValue##bits##_v2(struct stream *stream UNUSED, CUdeviceptr address,     \
                                             uint##bits##_t value, unsigned flags UNUSED) {         \
    return copy(address, (CUdeviceptr)&value, sizeof value);                                        \
  }
MEMORY_OPERATIONS(32) MEMORY_OPERATIONS(64)
MADE(cuEventCreate, (struct event **event, unsigned flags UNUSED), event, EVENTS)
ENDED(cuEventDestroy_v2, struct event, EVENTS, CUDA_ERROR_INVALID_HANDLE)
API CUresult cuEventRecordWithFlags(struct event *event, struct stream *stream, unsigned flags UNUSED) {
  RETURN_IF(!is_handle(EVENTS, event) || !is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  LOCKED;
  event->capture = capture_of(stream);
  clock_gettime(CLOCK_MONOTONIC, &event->at);
  return CUDA_SUCCESS;
}

/* Nothing is computed: what passes is the host's time, whose chances must not choose among kernels (cudnn.benchmark,
 * autotuning). A millisecond, then, which is no 0 to divide by, and whole seconds, for who waits. */
API CUresult cuEventElapsedTime(float *milliseconds, struct event *from, struct event *to) {
  RETURN_IF(!is_handle(EVENTS, from) || !is_handle(EVENTS, to), CUDA_ERROR_INVALID_HANDLE);
  RETURN_IF(is_wrong(milliseconds), CUDA_ERROR_INVALID_VALUE);
  double seconds = (double)(to->at.tv_sec - from->at.tv_sec) + (double)(to->at.tv_nsec - from->at.tv_nsec) / 1e9;
  *milliseconds = 1 + 1000 * (float)(int64_t)seconds;
  return CUDA_SUCCESS;
}

/* A stream that waits for an event of a stream that is captured is captured with it. */
API CUresult cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags UNUSED) {
  RETURN_IF(!is_handle(EVENTS, event) || !is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  LOCKED;
  if (event->capture != NULL && event->capture->is_on && capture_of(stream) == NULL) {
    set_capture(stream, event->capture);
  }
  return CUDA_SUCCESS;
}
