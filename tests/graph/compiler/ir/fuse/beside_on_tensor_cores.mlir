// run cuda: fuse
// Queries, keys and values are products of few rows, by the same rows of x, on tensor cores: one
// kernel, which reads the transposed weight as it is. The product of z has another left side, and
// those of float32 and of 65 rows have no strips. That of k is read by the epilogue of u alone: its gate.
func.func @main(%x: bf16[n, 64], %z: bf16[n, 64], %w: f32[n, 64], %many: bf16[65, 64]) -> (bf16[n, 32], bf16[n, 8], f32[n, 8], bf16[n, 8], f32[n, 8], f32[n, 8], bf16[65, 8], bf16[65, 8]) attributes {heddle.symbols = {n = [1, 99]}} {
  %wq = weight() {name = "q"} : () -> bf16[32, 64]
  %wk = weight() {name = "k"} : () -> bf16[64, 8]
  %wf = weight() {name = "f"} : () -> f32[64, 8]
  %t = transpose(%wq) {permutation = array<i64: 1, 0>} : (bf16[32, 64]) -> bf16[64, 32]
  %q = matmul(%x, %t) {precision = "full"} : (bf16[n, 64], bf16[64, 32]) -> bf16[n, 32]
  %other = matmul(%z, %wk) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %k = matmul(%x, %wk) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %v = matmul(%x, %wk) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %wide = cast(%v) {dtype = f32} : (bf16[n, 8]) -> f32[n, 8]
  %u = matmul(%x, %wk) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %product = mul(%u, %k) : (bf16[n, 8], bf16[n, 8]) -> bf16[n, 8]
  %f = matmul(%w, %wf) {precision = "full"} : (f32[n, 64], f32[64, 8]) -> f32[n, 8]
  %g = matmul(%w, %wf) {precision = "full"} : (f32[n, 64], f32[64, 8]) -> f32[n, 8]
  %r = matmul(%many, %wk) {precision = "full"} : (bf16[65, 64], bf16[64, 8]) -> bf16[65, 8]
  %s = matmul(%many, %wk) {precision = "full"} : (bf16[65, 64], bf16[64, 8]) -> bf16[65, 8]
  return %q, %product, %wide, %other, %f, %g, %r, %s : bf16[n, 32], bf16[n, 8], f32[n, 8], bf16[n, 8], f32[n, 8], f32[n, 8], bf16[65, 8], bf16[65, 8]
}

// gives
module {
  func.func @main(%arg0: bf16[n, 64], %arg1: bf16[n, 64], %arg2: f32[n, 64], %arg3: bf16[65, 64]) -> (bf16[n, 32], bf16[n, 8], f32[n, 8], bf16[n, 8], f32[n, 8], f32[n, 8], bf16[65, 8], bf16[65, 8]) attributes {heddle.symbols = {n = [1, 99]}} {
    %0 = weight() {name = "q"} : () -> bf16[32, 64]
    %1 = weight() {name = "k"} : () -> bf16[64, 8]
    %2 = weight() {name = "f"} : () -> f32[64, 8]
    %3 = fused(%arg1, %1) ({
    ^bb0(%arg4: bf16[n, 64], %arg5: bf16[64, 8]):
      %10 = matmul(%arg4, %arg5) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      yield(%10) : (bf16[n, 8]) -> ()
    }) : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
    %4:2 = fused(%arg0, %0, %1) ({
    ^bb0(%arg4: bf16[n, 64], %arg5: bf16[32, 64], %arg6: bf16[64, 8]):
      %10 = transpose(%arg5) {permutation = array<i64: 1, 0>} : (bf16[32, 64]) -> bf16[64, 32]
      %11 = matmul(%arg4, %10) {precision = "full"} : (bf16[n, 64], bf16[64, 32]) -> bf16[n, 32]
      %12 = matmul(%arg4, %arg6) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      %13 = cast(%12) {dtype = f32} : (bf16[n, 8]) -> f32[n, 8]
      yield(%11, %13) : (bf16[n, 32], f32[n, 8]) -> ()
    }) : (bf16[n, 64], bf16[32, 64], bf16[64, 8]) -> (bf16[n, 32], f32[n, 8])
    %5:2 = fused(%arg0, %1, %1) ({
    ^bb0(%arg4: bf16[n, 64], %arg5: bf16[64, 8], %arg6: bf16[64, 8]):
      %10 = matmul(%arg4, %arg6) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      %11 = matmul(%arg4, %arg5) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      %12 = mul(%11, %10) : (bf16[n, 8], bf16[n, 8]) -> bf16[n, 8]
      yield(%12, %10) : (bf16[n, 8], bf16[n, 8]) -> ()
    }) : (bf16[n, 64], bf16[64, 8], bf16[64, 8]) -> (bf16[n, 8], bf16[n, 8])
    %6 = fused(%arg2, %2) ({
    ^bb0(%arg4: f32[n, 64], %arg5: f32[64, 8]):
      %10 = matmul(%arg4, %arg5) {precision = "full"} : (f32[n, 64], f32[64, 8]) -> f32[n, 8]
      yield(%10) : (f32[n, 8]) -> ()
    }) : (f32[n, 64], f32[64, 8]) -> f32[n, 8]
    %7 = fused(%arg2, %2) ({
    ^bb0(%arg4: f32[n, 64], %arg5: f32[64, 8]):
      %10 = matmul(%arg4, %arg5) {precision = "full"} : (f32[n, 64], f32[64, 8]) -> f32[n, 8]
      yield(%10) : (f32[n, 8]) -> ()
    }) : (f32[n, 64], f32[64, 8]) -> f32[n, 8]
    %8 = fused(%arg3, %1) ({
    ^bb0(%arg4: bf16[65, 64], %arg5: bf16[64, 8]):
      %10 = matmul(%arg4, %arg5) {precision = "full"} : (bf16[65, 64], bf16[64, 8]) -> bf16[65, 8]
      yield(%10) : (bf16[65, 8]) -> ()
    }) : (bf16[65, 64], bf16[64, 8]) -> bf16[65, 8]
    %9 = fused(%arg3, %1) ({
    ^bb0(%arg4: bf16[65, 64], %arg5: bf16[64, 8]):
      %10 = matmul(%arg4, %arg5) {precision = "full"} : (bf16[65, 64], bf16[64, 8]) -> bf16[65, 8]
      yield(%10) : (bf16[65, 8]) -> ()
    }) : (bf16[65, 64], bf16[64, 8]) -> bf16[65, 8]
    return %4#0, %5#0, %4#1, %3, %6, %7, %8, %9 : bf16[n, 32], bf16[n, 8], f32[n, 8], bf16[n, 8], f32[n, 8], f32[n, 8], bf16[65, 8], bf16[65, 8]
  }
}
