/* NVIDIA's own runtime library, where another library brings it along, asks a driver for undocumented tables, and to
 * prove by one of them that it is NVIDIA's. This driver gives none: the request is reported with who made it. */
#include "driver.h"

API CUresult cuGetExportTable(const void **table, const unsigned char uuid[16] UNUSED) {
  report_unmodelled("cuGetExportTable", __builtin_return_address(0));
  *table = NULL;
  return CUDA_ERROR_NOT_FOUND;
}
