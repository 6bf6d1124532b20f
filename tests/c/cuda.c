/* M01: CUDA where there is none. With kernels and a GPU the same questions are answered with yes.
 */
#include "misuse.h"
#include "runner_fixture.h"

static rkv_runner_config cuda_runner(void) {
    rkv_runner_config config = small_runner();
    config.backend = RKV_BACKEND_CUDA;
    config.dtype = RKV_DTYPE_BF16;
    config.kv_dtype = RKV_DTYPE_BF16;
    return config;
}

static void never_called(void *user_data, size_t count, rkv_parallel_task run, void *task) {
    (void)user_data, (void)count, (void)run, (void)task;
    CHECK(false);
}

static void m01_cuda_is_refused_with_a_reason(void) {
    fixture f = new_fixture(4, 16);
    rkv_runner_config config = cuda_runner();
    rkv_runner *runner = NULL;
    uint64_t bytes = 77;
    bool has_kernels = (rkv_features() & RKV_FEATURE_CUDA) != 0;
    rkv_status status = rkv_runner_supports(&config, 4, &bytes);
    if (status == RKV_STATUS_OK) {
        CHECK(has_kernels && bytes == 2u * LAYERS * 4 * KV_HEADS * HEAD_DIM * 2);
        CHECK_OK(rkv_runner_create(f.table, &config, &runner));
        rkv_runner_destroy(runner);
    } else {
        /* no kernels in the build, no driver, or no GPU */
        const char *word = has_kernels ? "config." : "no CUDA kernels";
        CHECK(bytes == 77);
        REFUSED(&f, rkv_runner_supports(&config, 4, &bytes), RKV_STATUS_UNSUPPORTED, word);
        REFUSED(&f, rkv_runner_create(f.table, &config, &runner), RKV_STATUS_UNSUPPORTED, word);
        CHECK(bytes == 77 && runner == NULL);
    }
    end_fixture(&f);
}

static void m01_cuda_config(void) {
    fixture f = new_fixture(4, 16);
    rkv_runner_config config = cuda_runner();
    rkv_runner *runner = NULL;
    config.dtype = config.kv_dtype = RKV_DTYPE_F32;
    REFUSED(&f, rkv_runner_create(f.table, &config, &runner), RKV_STATUS_UNSUPPORTED, "dtype");
    config = cuda_runner();
    config.head_dim = 72;
    REFUSED(&f, rkv_runner_supports(&config, 4, NULL), RKV_STATUS_UNSUPPORTED, "head_dim");
    config = cuda_runner();
    config.device = 4096;
    CHECK_STATUS(rkv_runner_create(f.table, &config, &runner), RKV_STATUS_UNSUPPORTED);
    config = cuda_runner();
    config.kv_head_count = 3;
    BAD(&f, rkv_runner_create(f.table, &config, &runner), "kv_head_count");
    /* whose threads compute is not looked at when it is asked what can be computed */
    config = cuda_runner();
    const rkv_status without = rkv_runner_supports(&config, 4, NULL);
    config.parallel_for = never_called;
    CHECK_STATUS(rkv_runner_supports(&config, 4, NULL), without);
    BAD(&f, rkv_runner_create(f.table, &config, &runner), "parallel_for");
    CHECK(runner == NULL);
    end_fixture(&f);
}

int main(void) {
    RUN(m01_cuda_is_refused_with_a_reason);
    RUN(m01_cuda_config);
    return check_result();
}
