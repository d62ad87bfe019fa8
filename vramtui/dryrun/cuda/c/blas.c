/* cuBLAS and cuBLASLt as PyTorch calls them: a handle, settings, and products that do nothing. Workspaces are PyTorch's
 * own decision (cublasSetWorkspace, cublasLtMatmul's argument), so the allocator sees what it would see on the card. */
#include "driver.h"

struct blas {
  struct context *context;
  int math_mode, pointer_mode;
  void *stream;
};

API int cublasCreate_v2(struct blas **handle) {
  RETURN_IF(is_wrong(handle), 7); /* CUBLAS_STATUS_INVALID_VALUE */
  *handle = runtime_context() == NULL ? NULL : make_handle(OBJECTS, sizeof **handle);
  RETURN_IF(*handle == NULL, 3); /* CUBLAS_STATUS_ALLOC_FAILED */
  (*handle)->context = runtime_context();
  load((*handle)->context, BLAS_HANDLE);
  return 0;
}
API int cublasDestroy_v2(struct blas *handle) {
  RETURN_IF(!is_handle(OBJECTS, handle), 1); /* CUBLAS_STATUS_NOT_INITIALIZED */
  unload(handle->context, BLAS_HANDLE);
  end_handle(OBJECTS, handle);
  return 0;
}
ANSWER(cublasGetVersion_v2, (void *handle UNUSED, int *version), version, 10 * runtime_version()) /* 12.8.0: 120800 */
API size_t cublasLtGetVersion(void) { return 10 * (size_t)runtime_version(); }
API size_t cublasLtGetCudartVersion(void) { return (size_t)runtime_version(); }
#define SETTING(name, type, field)                                                                               \
  ANSWER_OF(is_handle(OBJECTS, handle), 1, cublasSet##name, (struct blas *handle, type is), &handle->field, is) \
  ANSWER_OF(is_handle(OBJECTS, handle), 1, cublasGet##name, (struct blas *handle, type *is), is, handle->field)
SETTING(MathMode, int, math_mode) SETTING(PointerMode_v2, int, pointer_mode) SETTING(Stream_v2, void *, stream)
OBJECT(cublasLtCreate, cublasLtDestroy, sizeof(struct blas), 3)
OBJECT(cublasLtMatmulDescCreate, cublasLtMatmulDescDestroy, 512, 3)
OBJECT(cublasLtMatmulPreferenceCreate, cublasLtMatmulPreferenceDestroy, 512, 3)
OBJECT(cublasLtMatrixLayoutCreate, cublasLtMatrixLayoutDestroy, 512, 3)

/* cublasLtMatmulHeuristicResult_t. */
struct heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

/* One way of doing it, which needs no workspace beyond what PyTorch has made already. */
API int cublasLtMatmulAlgoGetHeuristic(void *handle UNUSED, void *operation UNUSED, void *a UNUSED, void *b UNUSED,
                                       void *c UNUSED, void *d UNUSED, void *preference UNUSED, int wanted,
                                       struct heuristic *results, int *count) {
  RETURN_IF(is_wrong(results) || is_wrong(count), 7);
  *count = wanted > 0;
  if (wanted > 0) {
    memset(results, 0, sizeof *results);
    results->waves = 1;
  }
  return 0;
}

#define IN_FOUR(rest) DONE(cublasS##rest) DONE(cublasD##rest) DONE(cublasC##rest) DONE(cublasZ##rest)
#define IN_TWO(rest) DONE(cublasS##rest) DONE(cublasD##rest)

DONE(cublasSetWorkspace_v2) DONE(cublasSetSmCountTarget) DONE(cublasSetAtomicsMode) DONE(cublasGemmEx)
DONE(cublasGemmStridedBatchedEx) DONE(cublasGemmBatchedEx) DONE(cublasSgemmEx) DONE(cublasDotEx) DONE(cublasHgemm)
DONE(cublasHgemmStridedBatched) DONE(cublasLtMatmul) DONE(cublasLtMatmulDescSetAttribute)
DONE(cublasLtMatmulPreferenceSetAttribute) DONE(cublasLtMatrixLayoutSetAttribute) IN_FOUR(gemm_v2) IN_FOUR(gemmBatched)
IN_FOUR(gemmStridedBatched) IN_FOUR(gemv_v2) IN_FOUR(getrfBatched) IN_FOUR(getrsBatched) IN_FOUR(trsm_v2)
IN_FOUR(trsmBatched) IN_FOUR(axpy_v2) IN_FOUR(copy_v2) IN_FOUR(scal_v2) IN_FOUR(swap_v2) IN_FOUR(symm_v2)
IN_FOUR(syrk_v2) IN_FOUR(trmm_v2) IN_TWO(dot_v2) IN_TWO(ger_v2) IN_TWO(nrm2_v2) IN_TWO(asum_v2) DONE(cublasCdotc_v2)
DONE(cublasCdotu_v2) DONE(cublasZdotc_v2) DONE(cublasZdotu_v2) DONE(cublasScnrm2_v2) DONE(cublasDznrm2_v2)

/* These tell the host at once whether an argument was wrong. */
#define INFORM(name, parameters) \
  API int name parameters {      \
    add_work();                  \
    TELL(info, 0);               \
    return 0;                    \
  }
#define IN_FOUR_INFORM(rest, parameters)                                         \
  INFORM(cublasS##rest, parameters) INFORM(cublasD##rest, parameters) INFORM(cublasC##rest, parameters) \
  INFORM(cublasZ##rest, parameters)
IN_FOUR_INFORM(geqrfBatched, (void *handle UNUSED, int m UNUSED, int n UNUSED, void *a UNUSED, int lda UNUSED,
                              void *tau UNUSED, int *info))
IN_FOUR_INFORM(gelsBatched, (void *handle UNUSED, int trans UNUSED, int m UNUSED, int n UNUSED, int rhs UNUSED,
                             void *a UNUSED, int lda UNUSED, void *c UNUSED, int ldc UNUSED, int *info))

/* What MAGMA, which PyTorch's linear algebra is linked with, calls beside these. */
#define IN_COMPLEX(rest) DONE(cublasC##rest) DONE(cublasZ##rest)
IN_FOUR(rot_v2) IN_FOUR(rotg_v2) IN_FOUR(symv_v2) IN_FOUR(syr_v2) IN_FOUR(syr2_v2) IN_FOUR(syr2k_v2) IN_FOUR(trmv_v2)
IN_FOUR(trsv_v2) IN_TWO(rotm_v2) IN_TWO(rotmg_v2) IN_COMPLEX(gerc_v2) IN_COMPLEX(geru_v2) IN_COMPLEX(hemm_v2)
IN_COMPLEX(hemv_v2) IN_COMPLEX(her_v2) IN_COMPLEX(her2_v2) IN_COMPLEX(her2k_v2) IN_COMPLEX(herk_v2)
DONE(cublasCsrot_v2) DONE(cublasZdrot_v2) DONE(cublasCsscal_v2) DONE(cublasZdscal_v2) DONE(cublasScasum_v2)
DONE(cublasDzasum_v2) DONE(cublasIsamax_v2) DONE(cublasIdamax_v2) DONE(cublasIcamax_v2) DONE(cublasIzamax_v2)
DONE(cublasIsamin_v2) DONE(cublasIdamin_v2) DONE(cublasIcamin_v2) DONE(cublasIzamin_v2) DONE(cublasGetMatrixAsync)
DONE(cublasGetVectorAsync) DONE(cublasSetMatrixAsync) DONE(cublasSetVectorAsync)
