/* NVIDIA's own runtime library, where another library brings it along, asks a driver for undocumented tables, and to
 * prove by one of them that it is NVIDIA's. This driver gives none: the request is reported with who made it, but for
 * those that do without where they are used here: cuDNN's graphs without a device, the compiler, cuBLASLt's tables. */
#include "driver.h"

API CUresult cuGetExportTable(const void **table, const unsigned char uuid[16] UNUSED) {
  RETURN_IF(is_wrong(table), CUDA_ERROR_INVALID_VALUE);
  static const char *const WITHOUT[] = {"/libcudnn", "/libnvrtc", "/libcublas"};
  Dl_info where = {0};
  bool does_without = false;
  if (dladdr(__builtin_return_address(0), &where) != 0 && where.dli_fname != NULL) {
    for (size_t at = 0; at < sizeof WITHOUT / sizeof WITHOUT[0]; at++) {
      does_without |= strstr(where.dli_fname, WITHOUT[at]) != NULL;
    }
  }
  if (!does_without) {
    report_unmodelled("cuGetExportTable", __builtin_return_address(0));
  }
  *table = NULL;
  return CUDA_ERROR_NOT_FOUND;
}
