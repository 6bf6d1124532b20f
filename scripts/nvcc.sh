# For `source`, in the folder of the tree: the nvcc that builds kernels.

# Prints which one kernels/build.rs takes, or fails when that takes none. An older one is passed
# over.
find_nvcc() {
    local nvcc release oldest=12.8 target=${CARGO_TARGET_DIR:-target}
    # Of the library's own targets some end with an f.
    [[ ! "${RADIXKV_CUDA_ARCHS-f}" =~ f( |$) ]] || oldest=12.9
    while read -r nvcc; do
        release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p') || continue
        if printf '%s\n' "${release:-0}" $oldest | sort -VC -r; then
            realpath -s "$nvcc"
            return
        fi
    done < <(PATH="${CUDA_HOME:+$CUDA_HOME/bin:}$target/cuda/home/bin:target/cuda/home/bin:$PATH" \
        type -ap nvcc)
    return 1
}
