/* cuFFT, cuSOLVER and cuSPARSE (cufftXt.h, cusolverDn.h, cusparse.h of CUDA 12 and 13) as PyTorch calls them: handles
 * and descriptors are empty, work is done when it is given. What a call would work in beside PyTorch's own tensors is
 * not known: it is said to be nothing, and the result names the function. */
#include "driver.h"

typedef uintptr_t word;

/* All arguments of these functions are words, wherever the one lies that points to the answer. */
#define WORDS                                                                                                       \
  word a0, word a1, word a2, word a3, word a4, word a5, word a6, word a7, word a8, word a9, word a10, word a11,     \
      word a12, word a13, word a14, word a15, word a16, word a17, word a18, word a19
#define ALL a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19

/* No bytes, as a number of the type, where the argument `at` points to. */
#define NO_BYTES(name, type, at) ZERO(name, type, at, 3, report_unmodelled(#name, __builtin_return_address(0)))
#define ZERO(name, type, at, error, report)      \
  API int name(WORDS) {                          \
    const word all[] = {ALL};                    \
    RETURN_IF(is_wrong((void *)all[at]), error); \
    report;                                      \
    *(type *)all[at] = 0;                        \
    return 0;                                    \
  }
/* So on the card and, one argument on, on the host. */
#define NO_BYTES_TWICE(name, at)                           \
  API int name(WORDS) {                                    \
    const word all[] = {ALL};                              \
    RETURN_IF(is_wrong((void *)all[at]) || is_wrong((void *)all[(at) + 1]), 3); \
    report_unmodelled(#name, __builtin_return_address(0)); \
    *(size_t *)all[at] = *(size_t *)all[(at) + 1] = 0;     \
    return 0;                                              \
  }
#define EMPTY(before, name) OBJECT(before##Create##name, before##Destroy##name, 64, 2)
#define IN_FOUR(does, before, rest) \
  does(before##S##rest) does(before##D##rest) does(before##C##rest) does(before##Z##rest)
#define BYTES_IN_FOUR(before, rest, type, at)                                                      \
  NO_BYTES(before##S##rest, type, at) NO_BYTES(before##D##rest, type, at) NO_BYTES(before##C##rest, type, at) \
  NO_BYTES(before##Z##rest, type, at)
/* A factorization has one name for real numbers and another for complex ones. */
#define BYTES_BY_KIND(real, complex, at)                                                                          \
  NO_BYTES(cusolverDnS##real##_bufferSize, int, at) NO_BYTES(cusolverDnD##real##_bufferSize, int, at)             \
  NO_BYTES(cusolverDnC##complex##_bufferSize, int, at) NO_BYTES(cusolverDnZ##complex##_bufferSize, int, at)       \
  DONE(cusolverDnS##real) DONE(cusolverDnD##real) DONE(cusolverDnC##complex) DONE(cusolverDnZ##complex)

/* So cuDNN's CTC (cudnn_ops.h); its batch norm of the older API does take no memory of its own. */
NO_BYTES(cudnnGetCTCLossWorkspaceSize, size_t, 8) NO_BYTES(cudnnGetCTCLossWorkspaceSize_v8, size_t, 5)
ZERO(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, size_t, 8, 2000, )
ZERO(cudnnGetBatchNormalizationBackwardExWorkspaceSize, size_t, 10, 2000, )
ZERO(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, size_t, 5, 2000, )

/* cufftHandle is a number. */
ANSWER(cufftCreate, (int *plan), plan, (load(runtime_context(), FFT), 1))
NO_BYTES(cufftXtMakePlanMany, size_t, 12)
DONE(cufftXtExec) DONE(cufftDestroy) DONE(cufftSetAutoAllocation) DONE(cufftSetStream) DONE(cufftSetWorkArea)

EMPTY(cusolverDn, Params) EMPTY(cusolverDn, GesvdjInfo) EMPTY(cusolverDn, SyevjInfo)
API int cusolverDnCreate(void **made) {
  load(runtime_context(), SOLVER);
  return cusolverDnCreateParams(made);
}
ALSO(cusolverDnDestroy, cusolverDnDestroyParams) DONE(cusolverDnSetStream) BYTES_BY_KIND(syevj, heevj, 7)
DONE(cusolverDnXgesvdjSetMaxSweeps) DONE(cusolverDnXgesvdjSetSortEig) DONE(cusolverDnXgesvdjSetTolerance)
BYTES_BY_KIND(getrf, getrf, 5) BYTES_BY_KIND(geqrf, geqrf, 5) BYTES_BY_KIND(orgqr, ungqr, 7)
BYTES_BY_KIND(ormqr, unmqr, 11) BYTES_BY_KIND(potrf, potrf, 5) BYTES_BY_KIND(sytrf, sytrf, 4)
BYTES_BY_KIND(syevd, heevd, 7) BYTES_BY_KIND(syevjBatched, heevjBatched, 7) BYTES_BY_KIND(gesvd, gesvd, 3)
BYTES_BY_KIND(gesvdj, gesvdj, 12) BYTES_BY_KIND(gesvdjBatched, gesvdjBatched, 11)
BYTES_BY_KIND(gesvdaStridedBatched, gesvdaStridedBatched, 16) IN_FOUR(DONE, cusolverDn, getrs)
IN_FOUR(DONE, cusolverDn, potrs) IN_FOUR(DONE, cusolverDn, potrfBatched) IN_FOUR(DONE, cusolverDn, potrsBatched)
DONE(cusolverDnXpotrs)
#define BYTES_OF_X(name, at) NO_BYTES_TWICE(cusolverDnX##name##_bufferSize, at) DONE(cusolverDnX##name)
BYTES_OF_X(geqrf, 10) BYTES_OF_X(potrf, 8) BYTES_OF_X(syevd, 11) BYTES_OF_X(syevBatched, 11) BYTES_OF_X(geev, 17)
BYTES_OF_X(sytrs, 11)

EMPTY(cusparse, ) EMPTY(cusparse, MatDescr) EMPTY(cusparse, DnMat) EMPTY(cusparse, DnVec) EMPTY(cusparse, Bsrsm2Info)
EMPTY(cusparse, Bsrsv2Info) OBJECT(cusparseCreateCoo, cusparseDestroySpMat, 64, 2)
ALSO(cusparseCreateCsr, cusparseCreateCoo) OBJECT(cusparseSpGEMM_createDescr, cusparseSpGEMM_destroyDescr, 64, 2)
OBJECT(cusparseSpSM_createDescr, cusparseSpSM_destroyDescr, 64, 2)
OBJECT(cusparseSpSV_createDescr, cusparseSpSV_destroyDescr, 64, 2) NO_BYTES(cusparseSpMM_bufferSize, size_t, 10)
NO_BYTES(cusparseSpMV_bufferSize, size_t, 9) NO_BYTES(cusparseSDDMM_bufferSize, size_t, 10)
NO_BYTES(cusparseSpSM_bufferSize, size_t, 10) NO_BYTES(cusparseSpSV_bufferSize, size_t, 9)
NO_BYTES(cusparseSpGEMM_workEstimation, size_t, 11) NO_BYTES(cusparseSpGEMM_compute, size_t, 11)
NO_BYTES(cusparseXcoosort_bufferSizeExt, size_t, 6) NO_BYTES(cusparseXcsrsort_bufferSizeExt, size_t, 6)
NO_BYTES(cusparseXcsrgeam2Nnz, int, 13) BYTES_IN_FOUR(cusparse, csrgeam2_bufferSizeExt, size_t, 19)
BYTES_IN_FOUR(cusparse, bsrsm2_bufferSize, int, 13) BYTES_IN_FOUR(cusparse, bsrsv2_bufferSize, int, 11)
DONE(cusparseSetStream) DONE(cusparseSetPointerMode) DONE(cusparseSetMatDiagType) DONE(cusparseSetMatFillMode)
DONE(cusparseSetMatIndexBase) DONE(cusparseSetMatType) DONE(cusparseDnMatSetStridedBatch) DONE(cusparseCsrSetPointers)
DONE(cusparseCsrSetStridedBatch) DONE(cusparseSpMatSetAttribute) DONE(cusparseSpMM) DONE(cusparseSpMV)
DONE(cusparseSDDMM) DONE(cusparseSDDMM_preprocess) DONE(cusparseSpGEMM_copy) DONE(cusparseSpSM_analysis)
DONE(cusparseSpSM_solve) DONE(cusparseSpSV_analysis) DONE(cusparseSpSV_solve) DONE(cusparseXcoo2csr)
DONE(cusparseXcoosortByRow) DONE(cusparseXcsrsort) DONE(cusparseCreateIdentityPermutation)
DONE(cusparseXbsrsm2_zeroPivot) DONE(cusparseXbsrsv2_zeroPivot) IN_FOUR(DONE, cusparse, csrgeam2)
IN_FOUR(DONE, cusparse, bsrmm) IN_FOUR(DONE, cusparse, bsrmv) IN_FOUR(DONE, cusparse, bsrsm2_analysis)
IN_FOUR(DONE, cusparse, bsrsm2_solve) IN_FOUR(DONE, cusparse, bsrsv2_analysis) IN_FOUR(DONE, cusparse, bsrsv2_solve)
API const char *cusparseGetErrorString(int code UNUSED) { return "the emulated card has none"; }

/* What a product of two sparse matrices holds is computed, and so not known. */
API int cusparseSpMatGetSize(void *matrix UNUSED, int64_t *rows, int64_t *columns, int64_t *filled) {
  RETURN_IF(is_wrong(rows) || is_wrong(columns) || is_wrong(filled), 3);
  report_unmodelled("cusparseSpMatGetSize", __builtin_return_address(0));
  *rows = *columns = *filled = 0;
  return 0;
}
