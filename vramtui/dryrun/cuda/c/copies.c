/* The many names of a copy and of a fill; all of them are done before they return. */
#include "driver.h"

API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) { return copy(to, from, size); }
API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, struct stream *stream) {
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  add_graph_node(stream, 1);
  return is_capturing(stream) ? CUDA_SUCCESS : copy(to, from, size);
}
ALSO(cuMemcpyHtoD_v2, cuMemcpy) ALSO(cuMemcpyDtoH_v2, cuMemcpy) ALSO(cuMemcpyDtoD_v2, cuMemcpy)
ALSO(cuMemcpyHtoDAsync_v2, cuMemcpyAsync) ALSO(cuMemcpyDtoHAsync_v2, cuMemcpyAsync)
ALSO(cuMemcpyDtoDAsync_v2, cuMemcpyAsync)
API CUresult cuMemcpyPeer(CUdeviceptr to, void *there UNUSED, CUdeviceptr from, void *here UNUSED, size_t size) {
  return copy(to, from, size);
}
API CUresult cuMemcpyPeerAsync(CUdeviceptr to, void *there UNUSED, CUdeviceptr from, void *here UNUSED, size_t size,
                               struct stream *stream) {
  return cuMemcpyAsync(to, from, size, stream);
}

/* CUDA_MEMCPY2D: offsets and pitches of both sides, each with a type, a host's address, a device's and an array's. */
struct copy_2d {
  size_t from_x, from_y;
  unsigned from_type;
  const void *from_host;
  CUdeviceptr from_device;
  void *from_array;
  size_t from_pitch, to_x, to_y;
  unsigned to_type;
  void *to_host;
  CUdeviceptr to_device;
  void *to_array;
  size_t to_pitch, width, height;
};

API CUresult cuMemcpy2D_v2(const struct copy_2d *what) {
  RETURN_IF(is_wrong(what), CUDA_ERROR_INVALID_VALUE);
  bool is_dense = what->from_pitch >= what->width && what->to_pitch >= what->width;
  bool is_short = (what->from_pitch | what->to_pitch) >> 47 == 0;
  RETURN_IF(what->height > 1 && (!is_dense || !is_short), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr from = what->from_type == 1 ? (CUdeviceptr)what->from_host : what->from_device;
  CUdeviceptr to = what->to_type == 1 ? (CUdeviceptr)what->to_host : what->to_device;
  RETURN_IF(what->from_type == 3 || what->to_type == 3, CUDA_ERROR_NOT_SUPPORTED);
  CUresult result = CUDA_SUCCESS;
  for (size_t row = 0; row < what->height && what->width > 0 && result == CUDA_SUCCESS; row++) {
    result = copy(to + (what->to_y + row) * what->to_pitch + what->to_x,
                  from + (what->from_y + row) * what->from_pitch + what->from_x, what->width);
  }
  return result;
}
ALSO(cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2)
API CUresult cuMemcpy2DAsync_v2(const struct copy_2d *what, struct stream *stream) {
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  add_graph_node(stream, 1);
  return is_capturing(stream) ? CUDA_SUCCESS : cuMemcpy2D_v2(what);
}
API CUresult cudaMemcpy2DAsync(CUdeviceptr to, size_t to_pitch, CUdeviceptr from, size_t from_pitch, size_t width,
                               size_t height, int kind UNUSED, struct stream *stream) {
  struct copy_2d what = {.from_device = from, .from_pitch = from_pitch, .to_device = to, .to_pitch = to_pitch,
                         .width = width, .height = height};
  RETURN_IF(runtime_context() == NULL, keep_error(without_runtime()));
  return keep_error(cuMemcpy2DAsync_v2(&what, stream));
}

static CUresult fill_rows(CUdeviceptr to, size_t pitch, uint32_t value, unsigned size, size_t width, size_t height) {
  RETURN_IF(height > 1 && (pitch < width || pitch >> 47 != 0), CUDA_ERROR_INVALID_VALUE);
  CUresult result = CUDA_SUCCESS;
  for (size_t row = 0; row < height && width > 0 && result == CUDA_SUCCESS; row++) {
    result = fill(to + row * pitch, value, size, width);
  }
  return result;
}

#define FILL(name, filled, ...)                                              \
  API CUresult name##_v2(__VA_ARGS__) { return filled; }                     \
  API CUresult name##Async(__VA_ARGS__, struct stream *stream) {             \
    RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);                \
    add_graph_node(stream, 2);                                               \
    return is_capturing(stream) ? CUDA_SUCCESS : filled;                     \
  }
#define FILLS(bits, type)                                                                                       \
  FILL(cuMemsetD##bits, fill(to, value, bits / 8, count), CUdeviceptr to, type value, size_t count)             \
  FILL(cuMemsetD2D##bits, fill_rows(to, pitch, value, bits / 8, width, height), CUdeviceptr to, size_t pitch, type value, \
       size_t width, size_t height)
FILLS(8, unsigned char) FILLS(16, unsigned short) FILLS(32, unsigned)
